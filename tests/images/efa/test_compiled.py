"""OpenMPI of the EFA image, compiled from its own source by the image's recipe, against Debian's PMIx."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.upstreams.efa_upstreams import Compiled
from tests.images.engine import Image, remove

pytestmark = pytest.mark.slow  # compilers at work for minutes

RELEASES = {"pmix": "4.2.6", "version": "4.1.4"}

PROGRAM = """
#include <mpi.h>
#include <mpi-ext.h>
#include <stdio.h>
int main(int argc, char **argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int rank, length;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_library_version(version, &length);
  printf("%d %.15s %d\\n", rank, version, MPIX_CUDA_AWARE_SUPPORT);
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """The image, on which its checks pass: two processes of it talk to each other."""
    served = Compiled()
    built = served.built(openmpi=RELEASES, nccl={"tests": False})
    yield built
    remove(built)
    served.server.close()


def test_compiled_openmpi_has_parts_of_its_recipe(image: Image) -> None:
    parts = image.run("ompi_info", "--parsable").splitlines()
    components = {tuple(part.split(":")[1:3]) for part in parts if part.startswith("mca:")}
    assert "ompi:version:full:4.1.4" in parts
    assert {("pmix", "ext3x"), ("plm", "slurm"), ("ess", "slurm"), ("btl", "smcuda")} <= components
    assert ("btl", "openib") not in components
    assert not [part for part in parts if part.startswith("mca:hwloc:hwloc")]


def test_compiled_openmpi_takes_libraries_from_outside(image: Image) -> None:
    linked = image.run(
        "sh", "-c", "ldd /opt/amazon/openmpi/lib/openmpi/mca_pmix_ext3x.so /opt/amazon/openmpi/lib/libopen-pal.so.40"
    )
    assert "libpmix.so.2 => /opt/pmix/lib/libpmix.so.2" in linked
    assert {name for name in ("libevent_core-2.1.so.7", "libhwloc.so.15") if f"{name} => /" in linked} == {
        "libevent_core-2.1.so.7",
        "libhwloc.so.15",
    }
    assert "not found" not in linked


def test_compiled_openmpi_runs_program_that_may_use_gpus(image: Image) -> None:
    options = "--allow-run-as-root --oversubscribe -np 2 --mca opal_warn_on_missing_libcuda 0"
    script = f"cat > /tmp/p.c && mpicc /tmp/p.c -o /tmp/p && mpirun {options} /tmp/p"
    output = image.run("sh", "-c", script, text=PROGRAM)
    answers = [line for line in output.splitlines() if "Open MPI v" in line]  # Debian's PMIx misses its own folder
    assert sorted(answers) == ["0 Open MPI v4.1.4 1", "1 Open MPI v4.1.4 1"]
