"""The EFA image, built from stand-ins of its upstreams."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from containers.registry import client
from tests.fakes.upstreams.efa_upstreams import Upstreams
from tests.images.differences import check_differ, environment, files, unlisted, variables
from tests.images.efa.conftest import Built
from tests.images.engine import CHECKED, Image, build, check_planted
from tests.images.published import Published


def installed(image: Image) -> dict[str, str]:
    """Return an image's packages of the distribution with their versions."""
    listed = image.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n").splitlines()
    return {line.split()[1]: line.split()[2] for line in listed if line.startswith("installed ")}


def test_efa_up_builds_and_pushes_the_image(published: Published) -> None:
    pushed = published.outputs()["images"]["efa"]
    repository, _, digest = pushed["ref"].partition("@")
    assert client.digest(f"{repository}:{pushed['tag']}") == digest
    assert pushed["tag"].endswith("-efa-ngc26.03-efa1.51.0-ofi1.22.0")
    assert re.search(r"Resources:\n\s+\d+ unchanged", published.up(SLIPWAY_BRANCH="main"))
    assert published.outputs()["images"]["efa"] == pushed


def test_efa_parts_have_the_versions_of_stack(built: Built) -> None:
    output = built().run("cat", "/opt/amazon/versions.txt").splitlines()
    assert output[0] == "EFA installer version: 1.51.0"
    assert "aws-ofi-nccl 1.22.0" in output
    assert "NCCL 2.29.7" in output
    assert "torch 2.11.0a0" in output


@pytest.mark.slow
def test_efa_image_lacks_only_what_shadows_efa(built: Built, upstreams: Upstreams) -> None:
    parent, image = files(Image(upstreams.parent("26.03"))), files(built())
    lacking = {path for path in parent if path not in image}
    removed = (
        "/opt/hpcx/ompi*",
        "/opt/hpcx/nccl*_plugin/*",
        "/usr/local/mpi",
        "/opt/amazon/aws-ofi-nccl/*",
        "/etc/ld.so.conf.d/aws-ofi-nccl.conf",
        *(
            "/usr/*/ibv_*",
            "/usr/include/infiniband/*",
            "/usr/share/man/*",
            "/usr/lib/*/libibverbs.*",
            "/usr/lib/*/pkgconfig/*",
        ),
        *(
            "/usr/lib/*/lib*-rdmav34.a",
            "/usr/lib/*/libmlx*",
            "/usr/lib/*/libefa*",
            "/usr/lib/*/libmana*",
            "/usr/share/doc/*",
        ),
    )
    assert unlisted(lacking, removed) == set()
    assert "/opt/hpcx/ucc/lib/libucc.so.1" in image
    assert {path for path in lacking if path.startswith("/opt/hpcx/")} == {
        path for path in parent if re.match(r"/opt/hpcx/(ompi|nccl[^/]*_plugin/)", path)
    }
    assert "/opt/hpcx/ncclnet_plugin/lib/libnccl-net.so" in lacking
    # EFA's installer brings the libraries back.
    assert "libibverbs1" in installed(built())


@pytest.mark.slow
def test_efa_image_has_environment_labels_and_entry_point(built: Built, upstreams: Upstreams) -> None:
    parent = Image(upstreams.parent("26.03"))
    entry_point, image = parent.config()["Config"]["Entrypoint"], built().config()["Config"]
    assert (image["Entrypoint"], image["WorkingDir"], image["User"]) == (entry_point, "/workspace", "0:0")
    theirs, ours = environment(parent), environment(built())
    efa = "/opt/amazon/openmpi/lib:/opt/amazon/efa/lib:/opt/amazon/ofi-nccl/lib"
    assert variables(parent, built()) == {
        "LD_LIBRARY_PATH": f"{efa}:{theirs['LD_LIBRARY_PATH']}",
        "MPI_HOME": "/opt/amazon/openmpi",
        "NCCL_NET_PLUGIN": "ofi",
        "NCCL_SOCKET_IFNAME": "^docker,lo,veth",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0,veth_def_agent",
        "OMPI_MCA_pml": "^ucx",
        "OPAL_PREFIX": "/opt/amazon/openmpi",
        "PATH": f"/opt/amazon/openmpi/bin:/opt/amazon/efa/bin:{theirs['PATH']}",
        "PMIX_MCA_gds": "hash",
    }
    assert ours["NCCL_VERSION"] == "2.29.7"
    sessions = dict(line.split("=", 1) for line in built().run("cat", "/etc/environment").splitlines())
    assert {key: ours.get(key) for key in sessions} == sessions
    prefix = "org.opencontainers.image"
    assert image["Labels"][f"{prefix}.version"] == "efa-ngc26.03-efa1.51.0-ofi1.22.0"
    assert image["Labels"][f"{prefix}.base.name"] == "nvcr.io/nvidia/pytorch:26.03-py3"


@pytest.mark.slow
def test_efa_layers_hold_no_archive_or_package_list(built: Built) -> None:
    for layer in built().layers():
        archives = [path for path in layer.files if path.endswith((".deb", ".tar.gz", ".whl", "_Packages"))]
        assert [path for path in archives if not path.startswith(("usr/share/python-wheels/", "var/lib/apt"))] == []


SWITCHES: list[tuple[dict[str, Any], tuple[str, ...], dict[str, str]]] = [
    (
        {"nccl": "2.32.3-1"},
        (
            "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
            "/usr/include/nccl.h",
            "/etc/apt/sources.list.d/cuda.list",
            "/etc/environment",
            "/opt/amazon/versions.txt",
        ),
        {"NCCL_VERSION": "2.32.3-1"},
    ),
    (
        {"nccl": {"version": "2.32.3-1", "source": "build"}},
        (
            "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
            "/usr/include/nccl.h",
            "/etc/environment",
            "/opt/amazon/versions.txt",
        ),
        {"NCCL_VERSION": "2.32.3-1"},
    ),
    ({"nccl": {"tests": False}}, ("/opt/nccl-tests/build/*_perf",), {}),
    (
        {"openmpi": {"pmix": "4.2.6"}},
        (
            "/opt/pmix/*",
            "/opt/amazon/openmpi/lib/libevent*",
            "/opt/amazon/openmpi/lib/libpmix*",
            "/etc/ld.so.conf.d/pmix.conf",
            "/usr/*/libevent*",
            "/usr/include/event2/*",
            "/usr/include/ev*.h",
            "/usr/share/doc/libevent*",
        ),
        {},
    ),
    (
        {"efa": {"ofiNccl": "1.20.0"}},
        ("/opt/amazon/ofi-nccl/lib/libnccl-net*.so", "/etc/ld.so.conf.d/100_ofinccl.conf", "/opt/amazon/versions.txt"),
        {},
    ),
    (
        {"extras": {"xformers": "0.0.35"}},
        ("/usr/local/lib/python3*/dist-packages/xformers*/*",),
        {},
    ),
]
"""A configuration, the files that differ with it, and the variables."""


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "differing", "variables"), SWITCHES)
def test_efa_switch_changes_only_listed_files(
    built: Built, switch: dict[str, Any], differing: tuple[str, ...], variables: dict[str, str]
) -> None:
    normal, switched = built(), built(**switch)
    check_differ(normal, switched, differing, variables)


@pytest.mark.slow
def test_nccl_built_or_packaged_has_requested_version(built: Built) -> None:
    package, compiled = built(nccl="2.32.3-1"), built(nccl={"version": "2.32.3-1", "source": "build"})
    for image in (package, compiled):
        assert installed(image)["libnccl2"] == installed(image)["libnccl-dev"] == "2.32.3-1+cuda13.2"
        assert "NCCL 2.32.3" in image.run("cat", "/opt/amazon/versions.txt")


@pytest.mark.slow
def test_rebuilt_openmpi_links_requested_pmix(built: Built) -> None:
    linked = built(openmpi={"pmix": "4.2.6"}).run("sh", "-c", "ldd /opt/amazon/openmpi/lib/openmpi/mca_pmix_ext3x.so")
    assert "libpmix.so.2 => /opt/pmix/lib/libpmix.so.2" in linked
    assert "openmpi40-aws" not in installed(built(openmpi={"pmix": "4.2.6"}))


@pytest.mark.slow
def test_xformers_of_stack_is_installed(built: Built) -> None:
    output = built(extras={"xformers": "0.0.35"}).run("pip", "list", "--disable-pip-version-check")
    assert re.search(r"^xformers +0\.0\.35$", output, re.MULTILINE)


@pytest.mark.slow
def test_older_installer_has_its_plugin_under_the_same_name(built: Built) -> None:
    """The plugin is one folder deeper, and the installer lacks a flag."""
    image = built(efa={"installer": "1.43.0"})
    assert "aws-ofi-nccl 1.16.1" in image.run("cat", "/opt/amazon/versions.txt")
    link = image.run("readlink", "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so").strip()
    assert link == "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so"


@pytest.mark.slow
def test_efa_2310_has_upstream_versions(built: Built) -> None:
    image = built("efa-2310")
    output = image.run("cat", "/opt/amazon/versions.txt")
    assert output.startswith("EFA installer version: 1.29.0\n")
    assert "aws-ofi-nccl 1.7.3-aws\n" in output
    assert "NCCL 2.19.3\n" in output
    ours = environment(image)
    assert ours["FI_EFA_SET_CUDA_SYNC_MEMOPS"] == "0"
    assert (ours["OMPI_MCA_pml"], ours["NCCL_SOCKET_IFNAME"]) == ("^cm,ucx", "^docker,lo")
    assert ours["PMIX_MCA_gds"] == "^ds12"
    assert "FI_EFA_SET_CUDA_SYNC_MEMOPS=0\n" in image.run("cat", "/etc/environment")
    assert image.run("readlink", "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so").strip().endswith("/libnccl-net.so")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"DISABLE_NGC": ""}, "settle: there is no aws-ofi-nccl below /opt/amazon/ofi-nccl"),
        ({"OFI_NCCL_VERSION": "1.21.1"}, "the plugin is aws-ofi-nccl 1.22.0, not 1.21.1"),
        ({"OFI_NCCL_TAG": "v9.9.9"}, "fetch-source: aws/aws-ofi-nccl has no tag 'v9.9.9'"),
        ({"EFA_INSTALLER_VERSION": "1.40.0"}, "fetch-archive: cannot download http"),
        ({"EFA_SHA256": "0" * 64}, "computed checksum did NOT match"),
        ({"DOWNLOADS_EFA": "https://user:hunter2@example.com"}, "fetch-archive: DOWNLOADS_EFA holds a user:password@"),
        ({"WITH_NCCL": "2.15.5-1"}, "install-nccl: NCCL 2.15.5-1 is older than the parent's (21505 < 22907)"),
        ({"WITH_PMIX": "9.9.9"}, "fetch-archive: cannot download http"),
    ],
)
def test_efa_build_mistake_is_one_line(upstreams: Upstreams, wrong: dict[str, str], message: str) -> None:
    done = build("", {**upstreams.arguments(), **wrong}, CHECKED, image="efa")
    assert done.returncode != 0
    assert message in done.stdout
    assert "hunter2" not in done.stdout.replace("--build-arg", "")


@pytest.mark.slow
def test_build_with_failing_check_fails(built: Built, upstreams: Upstreams, context: Path) -> None:
    built()
    check_planted(context, "efa/checks/build", upstreams.arguments(), image="efa")
