"""The flavor ``efa``: its arguments, its tags, and the one line for each mistake."""

from __future__ import annotations

from functools import partial
from typing import Any

from containers.dockerfile.declarations import arguments
from stacks import flavors, graph, plan
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT, ImageSpec, Outside
from stacks.tags import Revision, parse, render
from stacks.versions.efa_ngc import efa_environment
from tests.helpers import refusals
from tests.helpers.every import every
from tests.helpers.unlocked_spec import unlocked


def spec(**values: Any) -> ImageSpec:
    config = flavors.load({"flavor": "efa", **values}, "stack x")
    [image] = flavors.flavor("efa").images(config)
    return image


refusal = partial(refusals.refusal_line, spec)


def test_flavor_alone_equals_stack_of_its_name() -> None:
    [image] = plan.resolve("efa")[1]
    assert unlocked(image) == spec()
    assert image.parents == {"BASE_IMAGE": Outside(reference="nvcr.io/nvidia/pytorch:26.03-py3")}
    off = {"OFI_NCCL_TAG", "WITH_NCCL", "WITH_PMIX", "XFORMERS_REF"}
    assert {name for name, value in image.args.items() if not value} == off
    assert (image.args["DISABLE_NGC"], image.args["SYNC_MEMOPS"]) == ("--disable-ngc", "unset")


def test_stack_of_2310_has_upstream_versions_and_settings() -> None:
    [image] = plan.resolve("efa-2310")[1]
    expected = {
        "EFA_INSTALLER_VERSION": "1.29.0",
        "DISABLE_NGC": "",
        "OFI_NCCL_VERSION": "1.7.3-aws",
        "OFI_NCCL_TAG": "v1.7.3-aws",
        "WITH_NCCL": "",
        "WITH_PMIX": "",
        "XFORMERS_REF": "",
        "ARCH_LIST": "8.0 9.0",
        "SYNC_MEMOPS": "0",
        "SET_OMPI_MCA_PML": "^cm,ucx",
        "SET_OMPI_MCA_BTL_TCP_IF_EXCLUDE": "lo,docker0",
        "SET_NCCL_SOCKET_IFNAME": "^docker,lo",
        "SET_PMIX_MCA_GDS": "^ds12",
    }
    assert {name: image.args[name] for name in expected} == expected
    assert image.parents == {"BASE_IMAGE": Outside(reference="nvcr.io/nvidia/pytorch:23.10-py3")}


@every(
    "values, suffix",
    [
        ({}, "efa-ngc26.03-efa1.51.0-ofi1.22.0"),
        ({"nccl": "2.32.3-1"}, "efa-ngc26.03-efa1.51.0-ofi1.22.0-nccl2.32.3-1"),
        ({"efa": {"ofiNccl": "1.20.0"}, "tagSuffix": "mine"}, "efa-ngc26.03-efa1.51.0-ofi1.20.0-mine"),
        ({"ngc": "23.10", "efa": {"installer": "1.30.0", "ofiNccl": "1.7.4-aws"}}, "efa-ngc23.10-efa1.30.0-ofi1.7.4"),
    ],
)
def test_tag_names_parent_efa_and_plugin(values: dict[str, Any], suffix: str) -> None:
    planned = spec(**values).suffix
    assert planned.render() == suffix
    assert parse(render(Revision(commit="a1b2c3d"), planned)) == (Revision(commit="a1b2c3d"), planned)


@every(
    "values, changed",
    [
        ({"nccl": "2.32.3-1"}, {"WITH_NCCL": "2.32.3-1"}),
        ({"nccl": {"version": "2.32.3-1", "source": "build"}}, {"WITH_NCCL": "2.32.3-1", "WITH_NCCL_FROM": "build"}),
        ({"nccl": {"tests": False}}, {"NCCL_TESTS_VERSION": ""}),
        ({"nccl": False}, {}),
        ({"openmpi": {"pmix": "4.2.6", "version": "4.1.6"}}, {"WITH_PMIX": "4.2.6", "OPENMPI_RELEASE": "4.1.6"}),
        ({"extras": {"xformers": "0.0.35"}}, {"XFORMERS_REF": "v0.0.35"}),
        ({"extras": {"xformers": "a" * 40}}, {"XFORMERS_REF": "a" * 40}),
        ({"efa": {"ofiNccl": "v1.20.0"}}, {"OFI_NCCL_TAG": "v1.20.0", "OFI_NCCL_VERSION": "1.20.0"}),
        ({"efa": {"installer": "1.47.0"}}, {"DISABLE_NGC": "", "EFA_INSTALLER_VERSION": "1.47.0", "OFI_NCCL_VERSION": "1.18.0"}),
        ({"environment": {"NCCL_SOCKET_IFNAME": "eth0"}}, {"SET_NCCL_SOCKET_IFNAME": "eth0"}),
        ({"environment": {"NCCL_NET_PLUGIN": "ofi"}}, {}),
        ({"archList": "sm_90, 10.0+PTX"}, {"ARCH_LIST": "9.0 10.0+PTX"}),
    ],
)  # fmt: skip
def test_switch_changes_only_its_own_arguments(values: dict[str, Any], changed: dict[str, str]) -> None:
    assert spec(**values).args == {**spec().args, **changed}


def test_max_jobs_change_only_the_tuning() -> None:
    assert spec(maxJobs=4).model_copy(update={"tuning": {}}) == spec()
    assert spec(maxJobs=4).tuning == {"MAX_JOBS": "4"}


def test_sync_memops_with_old_installer_and_new_nccl_is_set() -> None:
    old = {"installer": "1.29.0", "ofiNccl": "1.7.3-aws"}
    assert spec(ngc="23.10", efa=old).args["SYNC_MEMOPS"] == "0"
    assert spec(ngc="23.10", efa={**old, "installer": "1.29.1"}).args["SYNC_MEMOPS"] == "unset"


def test_dockerfile_defaults_equal_the_table() -> None:
    defaults = arguments(ROOT / CONTEXT / "efa/Dockerfile")
    assert {f"SET_{name.upper()}": value for name, value in efa_environment({}).items()} == {
        name: value for name, value in defaults.items() if name.startswith("SET_")
    }


@every(
    "values, message",
    [
        ({"efa": {"installer": "latest"}}, "slipway:efa.installer: 'latest' is not a known EFA installer; allowed: "),
        (
            {"ngc": "23.10", "efa": {"installer": "1.29.0"}},
            "slipway:efa.installer: '1.29.0' installs no aws-ofi-nccl: set efa.ofiNccl, such as 1.7.4-aws",
        ),
        (
            {"efa": {"installer": "1.29.0", "ofiNccl": "1.7.3-aws"}},
            "slipway:efa.installer: '1.29.0' does not support Ubuntu 24.04, the system of nvcr.io/nvidia/pytorch:26.03-py3",
        ),
        ({"efa": {"ofiNccl": "1.19.0-aws"}}, "slipway:efa.ofiNccl: '1.19.0-aws' is not how that release is named"),
        ({"efa": {"ofiNccl": "1.7.3"}}, "allowed: 1.7.3-aws;"),
        ({"efa": {"ofiNccl": "master"}}, "slipway:efa.ofiNccl: 'master' is not an aws-ofi-nccl version"),
        ({"ngc": "26.3"}, "slipway:ngc: '26.3' is not a known release of nvcr.io/nvidia/pytorch"),
        ({"nccl": "2.19.3-1"}, "slipway:nccl.version: '2.19.3-1' is too old for CUDA 13.2.0"),
        (
            {"nccl": "2.28.9-1"},
            "slipway:nccl.version: '2.28.9-1' is older than the NCCL of nvcr.io/nvidia/pytorch:26.03-py3; allowed: 2.29.7",
        ),
        (
            {"ngc": "26.02", "nccl": "2.32.3-1"},
            "slipway:nccl.version: '2.32.3-1' has no package for CUDA 13.1 in NVIDIA's apt archive; allowed: 2.29.2-1, 2.29",
        ),
        ({"nccl": "2.32.3"}, "slipway:nccl.version: '2.32.3' is not a known NCCL release (did you mean '2.32.3-1'?)"),
        (
            {"nccl": {"version": "2.32.3-1", "source": "apt"}},
            "slipway:nccl.source: 'apt': input should be 'package' or",
        ),
        (
            {"environment": {"NCCL_NET_PLUGIN": "spcx"}},
            "slipway:environment.NCCL_NET_PLUGIN: 'spcx' takes the traffic from EFA; newer NGC images name spcx; allowed: ofi;",
        ),
        (
            {"environment": {"OPAL_PREFIX": "/opt/hpcx/ompi"}},
            "slipway:environment.OPAL_PREFIX: '/opt/hpcx/ompi' is not where the OpenMPI of an EFA image is; allowed: /opt/amazon",
        ),
        (
            {"environment": {"LD_LIBRARY_PATH": "/usr/lib"}},
            "slipway:environment.LD_LIBRARY_PATH: '/usr/lib' would hide EFA's libraries; allowed: /opt/amazon/openmpi/lib:",
        ),
        (
            {"environment": {"FI_EFA_SET_CUDA_SYNC_MEMOPS": "1"}},
            "slipway:environment.FI_EFA_SET_CUDA_SYNC_MEMOPS: '1' follows from efa.installer and nccl",
        ),
        (
            {"environment": {"FI_PROVIDER": "tcp"}},
            "slipway:environment.FI_PROVIDER: 'tcp' makes libfabric take another network, silently; allowed: efa; rule: ",
        ),
        (
            {"environment": {"NCCL_NET": "socket"}},
            "slipway:environment.NCCL_NET: 'socket' makes NCCL go by TCP, or by InfiniBand that EFA is not; allowed: AWS",
        ),
        (
            {"environment": {"FI_EFA_USE_HUGE_PAGE": "banana"}},
            "slipway:environment: the variable FI_EFA_USE_HUGE_PAGE: expected 0 or 1; with 'banana', libfabric drops it; rule",
        ),
        (
            {"environment": {"LD_PRELOAD": "/x.so"}},
            "slipway:environment: the variable LD_PRELOAD cannot be set here: every program of the image would load it",
        ),
        (
            {"environment": {"OMPI_MCA_pml": "$(id)"}},
            "slipway:environment: expected only letters, digits and _ ^ . , : / = + - in OMPI_MCA_pml",
        ),
        ({"archList": "7.0"}, "slipway:archList: '7.0' cannot be compiled by CUDA 13.2.0"),
        (
            {"extras": {"deepep": "567632d"}},
            "slipway:extras.deepep: '567632d': expected false: DeepEP writes to NVIDIA's network cards itself, csrc",
        ),
        ({"extras": {"xformers": "main"}}, "slipway:extras.xformers: 'main': expected a version"),
        ({"cuda": "13.2.1"}, "unknown key 'cuda'"),
        ({"nccl": {"tests": "latest"}}, "slipway:nccl.tests: 'latest': expected a version such as 2.15.0, beginning with a number and a dot"),
        ({"openmpi": {"pmix": "latest"}}, "slipway:openmpi.pmix: 'latest': expected a version such as 2.15.0, beginning with a"),
        ({"openmpi": {"pmix": 0}}, "slipway:openmpi.pmix: '0': expected a version such as 2.15.0, beginning with a number and a dot"),
        ({"openmpi": {"version": "5.0.10"}}, "slipway:openmpi.version: '5.0.10': expected a release of OpenMPI 4, such as 4.1.8"),
        ({"openmpi": {"version": "v4.1"}}, "slipway:openmpi.version: 'v4.1': expected a version such as 2.15.0, beginning with a"),
    ],
)  # fmt: skip
def test_config_mistake_fails_with_one_line_and_advice(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


def test_nccl_without_known_package_warns() -> None:
    def warnings(**nccl: Any) -> list[str]:
        lines = flavors.load({"flavor": "efa", "ngc": "23.10", "nccl": nccl}, "stack x").warnings
        return [line for line in lines if "nccl.version" in line]

    line = "slipway:nccl.version: NVIDIA's apt archive may not have 2.22.3-1+cuda12.2; the build fails without it"
    assert warnings(version="2.22.3-1") == [line]
    assert warnings(version="2.22.3-1", source="build") == warnings(version="2.21.5-1") == []
    unlisted = {"ngc": "40.01", "unverified": True, "nccl": {"version": "2.22.3-1"}}  # of what CUDA is not known
    assert not any("nccl" in line for line in flavors.load({"flavor": "efa", **unlisted}, "stack x").warnings)


def test_nccl_built_from_source_needs_no_package() -> None:
    nccl = {"version": "2.32.3-1", "source": "build"}
    assert spec(ngc="26.02", nccl=nccl).args["WITH_NCCL"] == "2.32.3-1"
    assert "has no package for CUDA 13.1" in refusal(ngc="26.02", nccl={**nccl, "source": "package"})


def test_installer_for_arm64_is_in_doubt() -> None:
    """No row says which machines an installer has packages for."""

    def warnings(**values: Any) -> tuple[str, ...]:
        return graph.unlocked({"flavor": "efa", "efa": {"installer": "1.43.2"}, **values}, "x").warnings

    line = "slipway:efa.installer: 1.43.2 may not have all its packages for arm64; the build fails without them"
    assert line not in warnings()
    for platforms in (["linux/arm64"], ["linux/amd64", "linux/arm64"]):
        assert warnings(platforms=platforms).count(line) == 1


@every(
    "efa, warned",
    [
        ({"installer": "1.46.0"}, False),
        ({"installer": "1.47.0"}, True),
        ({"installer": "1.48.0"}, True),
        ({"installer": "1.47.0", "ofiNccl": "1.20.0"}, False),
        ({"installer": "1.51.0", "ofiNccl": "1.19.0"}, True),
        ({"installer": "1.49.0"}, False),
    ],
)
def test_plugin_whose_broadcast_hangs_is_a_warning(efa: dict[str, str], *, warned: bool) -> None:
    lines = flavors.load({"flavor": "efa", "efa": efa}, "stack x").warnings
    assert any("large broadcasts of NCCL between nodes hang; take installer 1.49.0" in line for line in lines) is warned


@every(
    "stack, failing",
    [
        ({"flavor": "nccl", "nccl": "2.29.2-1", "cuda": "13.1.1"}, "with NCCL 2.29.2-1, collectives may hang"),
        ({"flavor": "nccl", "nccl": "2.28.9-1", "cuda": "13.0.2", "platforms": ["linux/arm64"]}, "2.28.9-1 on arm64, collectives stop"),
        ({"flavor": "nccl", "nccl": "2.29.2-1", "cuda": "13.1.1", "ncclTests": "example.com/nccl-tests:x"}, "with NCCL 2.29.2-1, collectives may hang"),
        ({"flavor": "megatron", "ngc": "26.02"}, "slipway:ngc: with NCCL 2.29.2, collectives may hang"),
        ({"flavor": "nccl", "nccl": "2.28.9-1", "cuda": "13.0.2"}, ""),
        ({"flavor": "nccl", "nccl": "2.29.3-1", "cuda": "13.1.1"}, ""),
        ({"flavor": "efa", "ngc": "26.01", "efa": {"installer": "1.49.0"}, "nccl": {"version": "2.29.2-1"}}, "with NCCL 2.29.2-1, collectives may hang"),
    ],
)  # fmt: skip
def test_nccl_that_is_known_to_hang_is_a_warning(stack: dict[str, Any], failing: str) -> None:
    lines = [line for line in flavors.load(stack, "stack x").warnings if "take 2.29.3 or newer" in line]
    assert len(lines) == bool(failing)
    assert all(failing in line for line in lines)
