"""The Megatron-LM image, built from stand-ins of its upstreams."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from containers.registry import client
from tests.fakes.upstreams.megatron_upstreams import Upstreams
from tests.images.differences import check_differ, environment, variables
from tests.images.engine import CHECKED, Image, build, check_planted, docker
from tests.images.megatron.conftest import Built
from tests.images.published import Published

pytestmark = pytest.mark.slow  # a whole image of its own, of the kind that efa has too

DRIVER = "/usr/local/nvidia/lib"
"""Where NVIDIA's container toolkit puts the driver's libraries; the parent's LD_LIBRARY_PATH names it."""


@pytest.fixture(scope="session")
def published(upstreams: Upstreams, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The `aks-megatron` stack, up, with the extra tag `latest`."""
    return upstreams.published(tmp_path_factory.mktemp("megatron"), extraTags=["latest"])


@pytest.fixture(scope="session")
def image(published: Published) -> Image:
    """The stack's image."""
    return Image(published.refs()["megatron-lm"])


def with_gpus(upstreams: Upstreams, count: int, **variables: object) -> tuple[str, ...]:
    """Return a container's options for a stand-in of the driver with so many GPUs."""
    environment = {"STANDIN_GPUS": count, "STANDIN_CUDA": 13020, **variables}
    return (
        f"--volume={upstreams.driver}:{DRIVER}:ro",
        *(f"--env={name}={value}" for name, value in environment.items()),
    )


def test_megatron_up_pushes_its_tag_and_latest(published: Published) -> None:
    pushed = published.outputs()["images"]["megatron-lm"]
    repository, _, digest = pushed["ref"].partition("@")
    assert client.digest(f"{repository}:latest") == client.digest(f"{repository}:{pushed['tag']}") == digest
    assert pushed["tag"].endswith("-doca3.2.1")


def test_megatron_config_has_user_folder_and_health_check(image: Image, upstreams: Upstreams) -> None:
    parent, config = Image(upstreams.parent("26.03")), image.config()["Config"]
    assert (config["User"], config["WorkingDir"], config["Cmd"]) == ("1000:1000", "/megatron-lm", ["healthcheck"])
    assert config["Entrypoint"] == parent.config()["Config"]["Entrypoint"]
    assert config["Healthcheck"] == {
        "Test": ["CMD", "healthcheck"],
        "Interval": 60 * 10**9,
        "Timeout": 120 * 10**9,
        "StartPeriod": 120 * 10**9,
        "Retries": 3,
    }
    assert variables(parent, image) == {
        "LAUNCHER_VERSION": "24.12",
        "NEMO_VERSION": "24.09",
        "MEGATRON_LM_VERSION": upstreams.commits["NVIDIA/Megatron-LM"][:7],
    }
    prefix = "org.opencontainers.image"
    assert config["Labels"][f"{prefix}.base.name"] == "nvcr.io/nvidia/pytorch:26.03-py3"


def test_megatron_parts_have_the_versions_of_stack(image: Image, upstreams: Upstreams) -> None:
    output = image.run("cat", "/opt/megatron/versions.txt").splitlines()
    assert f"Megatron-LM {upstreams.commits['NVIDIA/Megatron-LM']}" in output
    assert f"NeMo Framework Launcher {upstreams.commits['NVIDIA/NeMo-Framework-Launcher']}" in output
    for line in (
        "doca-ofed-userspace 3.2.1-018000",
        "libibverbs1 1:0.1-doca",
        "torch 2.11.0a0",
        "transformer-engine 2.9.0",
        "datasets 5.0.0",
        "transformers 5.14.1",
        "tokenizers 0.22.2",
        "huggingface_hub 1.24.0",
        "NCCL 2.29.7",
    ):
        assert line in output
    assert image.run("nemo-launcher", "hydra.run.dir=/tmp/launched") == "nvcr.io/nvidia/nemo:24.09\n"


def test_megatron_starts_as_its_user_without_compiling(image: Image) -> None:
    assert image.run("id", "-un") == "slipway\n"
    assert "--tensor-model-parallel-size" in image.run("python3", "pretrain_gpt.py", "--help")
    assert "up to date" in image.run("make", "-C", "megatron/core/datasets")
    where = image.run("python3", "-c", "import megatron.core as m; print(m.__file__)", options=("--workdir=/tmp",))
    assert where == "/megatron-lm/megatron/core/__init__.py\n"


def test_megatron_has_pinned_topology_and_no_repository(image: Image, upstreams: Upstreams) -> None:
    assert image.run("sha256sum", "/etc/ndv5-topo.xml").split()[0] == upstreams.topology["sha256"]
    assert image.run("find", "/etc/apt", "-name", "*doca*") == ""


def test_healthcheck_with_expected_gpus_passes(image: Image, upstreams: Upstreams) -> None:
    output = image.run(options=with_gpus(upstreams, 8, EXPECTED_GPUS=8)).splitlines()
    assert output[1:3] == ["CUDA 13.2 on a driver up to CUDA 13.2", "8 GPUs"]
    assert "megatron.core 0.18.2" in output
    too_few = with_gpus(upstreams, 7, EXPECTED_GPUS=8)
    # The engine decides which of the two outputs comes first.
    assert "7 GPUs are there, EXPECTED_GPUS is 8" in image.fails("healthcheck", options=too_few).splitlines()
    assert "1 GPUs" in image.run(options=with_gpus(upstreams, 1)).splitlines()


HELPERS = "/megatron-lm/megatron/core/datasets/helpers_cpp*.so"
FAULTS: list[tuple[str, int, dict[str, object], str]] = [
    ("true", 7, {"EXPECTED_GPUS": 8}, "7 GPUs are there, EXPECTED_GPUS is 8\n"),
    ("true", 8, {"EXPECTED_GPUS": "all"}, "EXPECTED_GPUS is 'all'; give a whole number, or leave it out\n"),
    ("true", 0, {}, "a driver for CUDA 13.2 is there, but torch sees no GPU\n"),
    ("true", 8, {"STANDIN_CUDA": "12080"}, "torch is built for CUDA 13.2, but the host's driver only goes up to CUDA 12.8\n"),
    (f"rm {HELPERS}", 8, {}, "megatron.core.datasets.helpers_cpp cannot be imported: ModuleNotFoundError: "),
    (f"truncate -s 100 {HELPERS}", 8, {}, "megatron.core.datasets.helpers_cpp cannot be imported: ImportError: "),
    ("rm -r /usr/local/lib/python3*/dist-packages/tokenizers", 8, {}, "tokenizers cannot be imported: ModuleNotFoundError: "),
    ("rm /opt/hpcx/ucc/lib/libucc.so.1", 8, {}, "torch cannot be imported: OSError: libucc.so.1: "),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "gpus", "variables", "message"), FAULTS)
def test_healthcheck_failure_is_one_line(
    image: Image, upstreams: Upstreams, fault: str, gpus: int, variables: dict[str, object], message: str
) -> None:
    options = ("--user=root", *with_gpus(upstreams, gpus, **variables))
    assert message in image.fails("sh", "-c", f"{fault} && exec healthcheck", options=options)


def test_healthcheck_without_driver_fails(image: Image) -> None:
    assert "no NVIDIA driver in this container; was it run with --gpus" in image.fails("healthcheck")
    assert image.fails("healthcheck", "--all") == "healthcheck [--imports | --compute]\n"


@pytest.mark.parametrize(("gpus", "status"), [(8, "healthy"), (7, "unhealthy")])
def test_healthcheck_result_is_the_engines_status(image: Image, upstreams: Upstreams, gpus: int, status: str) -> None:
    quick = ("--health-interval=1s", "--health-start-period=1ms", "--health-retries=1")
    options = (*with_gpus(upstreams, gpus, EXPECTED_GPUS=8), *quick)
    name = docker("run", "--detach", *options, image.tag, "sleep", "600").stdout.strip()
    try:
        state, until = "starting", time.monotonic() + 120
        while state == "starting" and time.monotonic() < until:
            time.sleep(1)
            state = docker("inspect", "--format", "{{.State.Health.Status}}", name).stdout.strip()
        assert state == status
    finally:
        docker("rm", "--force", name)


def test_profiles_set_their_variables(image: Image) -> None:
    show = ("sh", "-c", "env | grep -E '^(NCCL|UCX|SHARP|CUDA_DEVICE|OMPI)_' | sort")
    plain = set(image.run(*show).splitlines())
    ndv5 = set(image.run("with-profile", "aks-ndv5", "--", *show).splitlines()) - plain
    assert {"NCCL_TOPO_FILE=/etc/ndv5-topo.xml", "NCCL_SOCKET_IFNAME=eth0", "UCX_NET_DEVICES=mlx5_ib0:1"} < ndv5
    sharp = set(image.run("with-profile", "aks-ndv5", "sharp", "--", *show).splitlines()) - plain - ndv5
    assert "NCCL_COLLNET_ENABLE=1" in sharp
    assert all(line.startswith(("NCCL_COLLNET", "SHARP_")) for line in sharp)
    grace = image.run("with-profile", "aks-gb300", "--", *show)
    assert "NCCL_MNNVL_ENABLE=1\n" in grace
    assert "TOPO" not in grace
    assert image.run("with-profile", "aks-gb200", "--", *show) == grace
    overridden = image.run(
        "with-profile", "aks-ndv5", "--", *show, options=("--env=NCCL_MIN_NCHANNELS=8", "--env=UCX_TLS=")
    )
    assert "NCCL_MIN_NCHANNELS=8\n" in overridden
    assert "UCX_TLS=\n" in overridden


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("aks-ndv6", "--", "true"), "with-profile: there is no profile 'aks-ndv6'; "),
        (("../../etc/passwd", "--", "true"), "with-profile: '../../etc/passwd' is no profile; "),
        (("aks-ndv5",), "with-profile: there is no command; "),
        ((), "the profiles are: aks-gb200 aks-gb300 aks-ndv5 sharp"),
    ],
)
def test_profile_unknown_is_refused(image: Image, words: tuple[str, ...], message: str) -> None:
    assert message in image.fails("with-profile", *words)


def test_profile_without_its_topology_file_is_refused(image: Image) -> None:
    script = "rm /etc/ndv5-topo.xml && exec with-profile aks-ndv5 -- true"
    output = image.fails("sh", "-c", script, options=("--user=root",))
    assert "NCCL_TOPO_FILE is '/etc/ndv5-topo.xml', which is not in this image" in output


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"TOPOLOGY_SHA256": "0" * 64},
            "install-topology: ndv5-topo.xml at aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa has the SHA-256 ",
        ),
        ({"TOPOLOGY_COMMIT": "f" * 40}, "install-topology: cannot download http"),
        ({"DOCA_RELEASE": "2.9.2"}, "install-doca: there is no DOCA 2.9.2 for ubuntu 24.04, the parent's, at http"),
        ({"DOCA_RELEASE": "6.6.6"}, "is not signed"),
        ({"DOWNLOADS_DOCA": "https://user:hunter2@example.com"}, "install-doca: DOWNLOADS_DOCA holds a user:password@"),
        ({"DOWNLOADS_AZHPC": "https://user:hunter2@example.com"}, "install-topology: DOWNLOADS_AZHPC holds a user:password@"),
        ({"MEGATRON_COMMIT": "f" * 40}, "fetch-source: NVIDIA/Megatron-LM has no commit"),
        ({"RELEASE_LAUNCHER": "24.11"}, "fetch-source: NVIDIA/NeMo-Framework-Launcher has no tag '24.11'"),
        ({"LAUNCHER_COMMIT": "f" * 40}, "launcher: tag 24.12 is the commit "),
        ({"RELEASE_MEGATRON": "fffffff"}, "MEGATRON_LM_VERSION is fffffff, but /megatron-lm is "),
        ({"TOKENIZERS_VERSION": "0.15.0"}, "conflict"),
    ],
)  # fmt: skip
def test_megatron_build_mistake_is_one_line(
    image: Image, upstreams: Upstreams, wrong: dict[str, str], message: str
) -> None:
    """The other steps are in the engine's cache."""
    assert image
    done = build("", {**upstreams.arguments(), **wrong}, CHECKED, image="megatron")
    assert done.returncode != 0
    assert message in done.stdout
    assert "hunter2" not in done.stdout.replace("--build-arg", "")


SWITCHES: list[tuple[dict[str, Any], tuple[str, ...], dict[str, str]]] = [
    (
        {"doca": False},
        (
            "/opt/mellanox/*",
            "/usr/bin/mst",
            "/usr/lib/x86_64-linux-gnu/libibverbs.so*",
            "/usr/share/doc/libibverbs*",
            "/opt/megatron/versions.txt",
            # The parent's headers go with its libraries; DOCA's stand-in brings none.
            "/usr/include/infiniband/*",
            "/usr/lib/x86_64-linux-gnu/lib*-rdmav34.a",
            "/usr/lib/x86_64-linux-gnu/libibverbs.a",
            "/usr/lib/x86_64-linux-gnu/libefa.*",
            "/usr/lib/x86_64-linux-gnu/libmana.*",
            "/usr/lib/x86_64-linux-gnu/libmlx[45].*",
            "/usr/lib/x86_64-linux-gnu/pkgconfig/lib*.pc",
        ),
        {},
    ),
    (
        {"transformerEngine": "2.12"},
        (
            "/usr/local/lib/python3*/dist-packages/transformer_engine*",
            "/opt/megatron/versions.txt",
        ),
        {},
    ),
    (
        {"launcher": {"nemo": "24.05"}},
        ("/opt/NeMo-Framework-Launcher/*/conf/config.yaml",),
        {"NEMO_VERSION": "24.05"},
    ),
]
"""A configuration, the files that differ with it, and the variables."""


@pytest.mark.parametrize(("switch", "differing", "variables"), SWITCHES)
def test_megatron_switch_changes_only_listed_files(
    built: Built, upstreams: Upstreams, switch: dict[str, Any], differing: tuple[str, ...], variables: dict[str, str]
) -> None:
    launcher = {**upstreams.values()["launcher"], **switch.get("launcher", {})}
    normal, switched = built(), built(**{**switch, "launcher": launcher})
    check_differ(normal, switched, differing, variables)


def test_megatron_2503_has_upstream_versions(built: Built, upstreams: Upstreams) -> None:
    image = built("aks-megatron-2503")
    output = image.run("cat", "/opt/megatron/versions.txt")
    assert "doca-ofed-userspace 2.9.1-018000\n" in output
    assert "transformers 4.52.4\n" in output
    ours = environment(image)
    assert (ours["LAUNCHER_VERSION"], ours["NEMO_VERSION"]) == ("24.12", "24.05")
    assert image.run("nemo-launcher", "hydra.run.dir=/tmp/launched") == "nvcr.io/nvidia/nemo:24.05\n"
    assert "8 GPUs" in image.run(options=with_gpus(upstreams, 8, STANDIN_CUDA=12080)).splitlines()


def test_build_with_failing_check_fails(built: Built, upstreams: Upstreams, context: Path) -> None:
    built()
    check_planted(context, "megatron/checks/build", upstreams.arguments(), image="megatron")
