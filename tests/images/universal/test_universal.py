"""The universal images, built from stand-ins of the upstreams."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.differences import environment, variables
from tests.images.engine import Image, check_planted, docker
from tests.images.universal.conftest import PEOPLE, STACKS, Built

STACK = "universal-cu113"
"""The stack for tests that hold for all."""

CPU: dict[str, Any] = {"cuda": False, "cudnn": None, "archList": None}
"""Keys that make it a stack for the CPU."""

ENVIRONMENT = {
    "CONDA_PREFIX": "/opt/conda",
    "MAMBA_ROOT_PREFIX": "/opt/conda",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    "TORCH_VERSION": "1.9.1",
    "TORCH_VISION_VERSION": "0.10.1",
    "TORCH_AUDIO_VERSION": "0.9.1",
    "TORCH_TEXT_VERSION": "0.10.1",
    "TORCH_CUDA_ARCH_LIST": "",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONPATH": "/opt/project",
    "PYTHONIOENCODING": "UTF-8",
}
"""The variables of an image for the CPU, but ``PATH``."""


def pip(image: Image) -> dict[str, str]:
    """Return an image's Python packages with their versions."""
    listed = json.loads(image.run("pip", "list", "--format=json", "--disable-pip-version-check"))
    return {entry["name"].lower(): entry["version"] for entry in listed}


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_chain_has_the_versions_of_its_stack(built: Built, stack: str) -> None:
    images = built(stack, train=PEOPLE)
    args = images.planned["train"].args
    for name in ("train", "train-alice", "train-root"):
        have = pip(images.image(name))
        assert have["torch"] == args["TORCH_VERSION"]
        assert have["torchvision"] == args["TORCHVISION_VERSION"]
        assert have["torchaudio"] == args["TORCHAUDIO_VERSION"]
        assert have.get("torchtext", "") == args["TORCHTEXT_VERSION"]
        assert (int(have["numpy"].split(".")[0]) < 2) == ("numpy<2" in args["CONSTRAINTS"])
        cuda = images.image(name).run("python", "-c", "import torch; print(torch.version.cuda)").strip()
        assert re.search(rf"/cuda:{cuda}[.-]", args["BASE_IMAGE"])
    packages = images.image("train").run("dpkg-query", "-W", "-f", "${Package}\n").splitlines()
    assert ("tzdata-legacy" in packages) == args["BASE_IMAGE"].endswith("ubuntu24.04")


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_torch_has_magma_and_lapack(built: Built, stack: str) -> None:
    image = built(stack, train=PEOPLE).image("train")
    code = "import ctypes, torch; f = torch._library.torch_magma; f.restype = ctypes.c_char_p; print(f().decode())"
    assert image.run("python", "-c", code).strip() == "magma_dgetrf_gpu"
    image.run("python", "-c", "import torch; torch.inverse(torch.ones(1, 1))")


@pytest.mark.slow
def test_train_image_has_its_user_and_settings(built: Built) -> None:
    images = built(STACK, train=PEOPLE)
    default, alice, root = (images.image(name) for name in ("train", "train-alice", "train-root"))
    assert default.run("id").strip() == "uid=1000(user) gid=1000(user) groups=1000(user),999(conda)"
    assert re.fullmatch(r"uid=1234\(user\) gid=100\(users\) groups=100\(users\),\d+\(conda\)", alice.run("id").strip())
    assert root.run("id", "-u").strip() == "0"
    daemon = images.image("train-daemon")
    assert daemon.run("id").strip() == "uid=1(user) gid=1(user) groups=1(user),999(conda)"
    assert daemon.run("sh", "-c", "ls /usr/sbin/useradd ~").strip() == "/usr/sbin/useradd\n\n/home/user:"
    assert daemon.run("date", "+%Z").strip() in {"PST", "PDT"}
    assert [image.run("date", "+%Z").strip() for image in (default, alice)] == ["KST", "UTC"]
    assert root.run("date", "+%Z").strip() in {"PST", "PDT"}
    [variables_of_alice] = [person["env"] for person in PEOPLE if "env" in person]
    assert variables(default, alice) == {**variables_of_alice, "TZ": "UTC"}
    assert alice.run("printenv", "A_SENTENCE").strip("\n") == "two  $words"
    assert alice.run("tree").strip() == "tree v2.1.1"
    assert alice.run("sh", "-c", "command -v less").strip() == "/usr/bin/less"
    assert alice.run("sudo", "-n", "id", "-u").strip() == "0"
    assert "einops" in pip(alice)
    assert "einops" not in pip(default)
    default.fails("sh", "-c", "command -v less || command -v tree")


@pytest.mark.slow
def test_user_installation_keeps_torch(built: Built, world: World) -> None:
    """Another torch on the index does not replace the built one."""
    image = built(STACK, train=PEOPLE).image("train")
    index = world.mirrors["pythonIndex"]
    host = index.split("/")[2].split(":")[0]
    install = f"pip install --quiet --index-url {index} --trusted-host {host} psutil && python -c 'import psutil'"
    image.run("sh", "-c", f"{install} && test ! -d ~/.local")
    refused = image.fails("sh", "-c", f"pip install --index-url {index} --trusted-host {host} 'torch==9.9'")
    assert "1.9.1" in refused
    image.run("sh", "-c", 'touch file && test "$PWD" = /opt/project')


@pytest.mark.slow
def test_layers_of_torch_are_shared_by_train_images(built: Built) -> None:
    """Users with the same conda packages share the layers, and so does root."""
    images = built(STACK, train=PEOPLE)
    default, root = (images.image(name).layers() for name in ("train", "train-root"))
    [torch] = [
        index for index, layer in enumerate(default) if any(path.endswith("/torch/__init__.py") for path in layer.files)
    ]
    assert [layer.diff_id for layer in default[: torch + 1]] == [layer.diff_id for layer in root[: torch + 1]]
    for layer in default:
        assert not [path for path in layer.files if path.endswith((".whl", ".deb")) and "python-wheels" not in path]


@pytest.mark.slow
def test_time_zone_is_in_train_image_alone(built: Built) -> None:
    images = built(STACK, train=PEOPLE)
    for name, planned in images.planned.items():
        environment = images.image(name).config()["Config"]["Env"] or []
        assert any(entry.startswith("TZ=") for entry in environment) == (not planned.spec.product), name


@pytest.mark.slow
def test_train_image_has_planned_labels(built: Built) -> None:
    images = built(STACK, train=PEOPLE)
    for name in ("train", "train-alice", "train-root"):
        config = images.image(name).config()["Config"]
        labels = images.planned[name].spec.labels
        assert {key: config["Labels"][key] for key in labels} == labels
        assert (config["WorkingDir"], config["Cmd"]) == ("/opt/project", ["/bin/bash"])


def extracted(image: Image, folder: Path) -> list[str]:
    """Copy the wheels of an image `dist` to a folder, and return their names."""
    docker("build", f"--output=type=local,dest={folder}", "-", text=f"FROM {image.tag}\n")
    return sorted(path.name for path in (folder / "tmp/dist").glob("*.whl"))


@pytest.mark.slow
def test_wheels_are_in_tmp_dist(built: Built, tmp_path: Path) -> None:
    images = built(STACK, train=PEOPLE)
    names = extracted(images.image("dist"), tmp_path)
    assert [name.split("-")[:2] for name in names] == [
        ["torch", "1.9.1"],
        ["torchaudio", "0.9.1"],
        ["torchtext", "0.10.1"],
        ["torchvision", "0.10.1"],
    ]
    assert {"libcudnn8", "libnccl2"} <= {
        line.partition("=")[0] for line in (tmp_path / "tmp/dist/packages").read_text().splitlines()
    }
    assert sorted(path.name for path in (tmp_path / "tmp").iterdir()) == ["dist"]


@pytest.mark.slow
def test_cpu_wheels_import_outside_a_container(built: Built, world: World, tmp_path: Path) -> None:
    images = built(STACK, **CPU, train=[{}])
    assert images.image("train").run("python", "-c", "import torch; print(torch.version.cuda)").strip() == "None"
    parent = Image(images.planned["train"].args["BASE_IMAGE"])
    path = f"/opt/conda/bin:{environment(parent)['PATH']}"
    assert variables(parent, images.image("train")) == {**ENVIRONMENT, "PATH": path}
    extracted(images.image("dist"), tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    index = world.mirrors["pythonIndex"]
    python, host = tmp_path / "venv/bin/python", index.split("/")[2].split(":")[0]
    wheels = sorted((tmp_path / "tmp/dist").glob("*.whl"))
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--index-url", index, "--trusted-host", host, "numpy<2", *wheels],
        check=True,
    )
    code = "import torch, torchvision, torchaudio, torchtext; torch.inverse(torch.ones(1, 1)); print(torch.__version__)"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "1.9.1"


@pytest.mark.slow
def test_build_with_failing_check_fails(built: Built, context: Path) -> None:
    images = built(STACK, **CPU, train=[{}])
    arguments = chain.checks_arguments(images.planned["train"], images.names)
    check_planted(context, "universal/checks/build", arguments, image="universal")
