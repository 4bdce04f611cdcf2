"""OpenMPI of the EFA image, compiled from its own source by the image's recipe, against Debian's PMIx; NCCL's tests on it.

NVIDIA's compiler and NCCL are real. The source of NCCL's tests is a stand-in, as no package index has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.upstreams.efa_upstreams import Compiled
from tests.images import cuda13
from tests.images.engine import Image, remove
from tests.images.real_loader import of_container

pytestmark = pytest.mark.slow  # compilers at work for minutes

RELEASES = {"pmix": "4.2.6", "version": "4.1.4"}
ARCHS = "9.0 10.0+PTX"
TESTS = "opt/nccl-tests/build"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe -np 2 --mca opal_warn_on_missing_libcuda 0"

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
    """The image, on which its checks pass: two processes of it talk to each other, and NCCL's tests start."""
    served = Compiled()
    built = served.built(openmpi=RELEASES, archList=ARCHS)
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
    output = image.run("sh", "-c", f"cat > /tmp/p.c && mpicc /tmp/p.c -o /tmp/p && {MPIRUN} /tmp/p", text=PROGRAM)
    answers = [line for line in output.splitlines() if "Open MPI v" in line]  # Debian's PMIx misses its own folder
    assert sorted(answers) == ["0 Open MPI v4.1.4 1", "1 Open MPI v4.1.4 1"]


def test_nccl_tests_load_compiled_openmpi_and_system_nccl(image: Image) -> None:
    programs = image.run("sh", "-c", f"ls /{TESTS}").split()
    assert {"all_reduce_perf", "alltoall_perf", "sendrecv_perf"} <= {*programs}
    for listing in of_container(image, [f"{TESTS}/{name}" for name in programs]).values():
        assert not listing.missing
        assert {"/opt/amazon/openmpi/lib/libmpi.so.40", "/lib/x86_64-linux-gnu/libnccl.so.2"} <= listing.libraries
        assert [path for path in listing.libraries if re.fullmatch(r"/usr/local/cuda.*/libcudart\.so\.13", path)]


def test_nccl_tests_have_code_of_requested_archs(image: Image, tmp_path: Path) -> None:
    assert cuda13.code(image, f"/{TESTS}/all_reduce_perf", cuda13.cuobjdump(tmp_path)) == ({"90", "100"}, {"100"})


def test_nccl_tests_of_two_ranks_miss_the_gpu_together(image: Image) -> None:
    program = f"/{TESTS}/all_reduce_perf"
    image.fails("sh", "-c", f"{MPIRUN} {program}")
    # By default mpirun ends the second rank as soon as the first one has failed; so it waits for both, and is content.
    both = "--mca orte_abort_on_non_zero_status 0 --mca orte_allowed_exit_without_sync 1"
    output = image.run("sh", "-c", f"{MPIRUN} {both} {program}")
    assert len(re.findall("^# nThread ", output, re.MULTILINE)) == 1
    assert output.count("'CUDA driver version is insufficient for CUDA runtime version'") == 2
