"""The universal images, built whole against stand-ins of the upstreams, asked what they promise."""

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
"""The stack of which one is asked, where all keep the same promise."""

CPU: dict[str, Any] = {"cuda": False, "cudnn": None, "archList": None}
"""Of its keys those that make it one for the CPU."""

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
"""What an image for the CPU says to programs, beside ``PATH``."""


def pip(image: Image) -> dict[str, str]:
    """Return what pip knows of an image: name and version."""
    listed = json.loads(image.run("pip", "list", "--format=json", "--disable-pip-version-check"))
    return {entry["name"].lower(): entry["version"] for entry in listed}


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_chain_has_the_versions_of_its_stack(built: Built, stack: str) -> None:
    made = built(stack, train=PEOPLE)
    args = made.planned["train"].args
    for name in ("train", "train-alice", "train-root"):
        have = pip(made.image(name))
        assert have["torch"] == args["TORCH_VERSION"]
        assert have["torchvision"] == args["TORCHVISION_VERSION"]
        assert have["torchaudio"] == args["TORCHAUDIO_VERSION"]
        assert have.get("torchtext", "") == args["TORCHTEXT_VERSION"]
        assert (int(have["numpy"].split(".")[0]) < 2) == ("numpy<2" in args["CONSTRAINTS"])
        cuda = made.image(name).run("python", "-c", "import torch; print(torch.version.cuda)").strip()
        assert re.search(rf"/cuda:{cuda}[.-]", args["BASE_IMAGE"])
    packages = made.image("train").run("dpkg-query", "-W", "-f", "${Package}\n").splitlines()
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
    made = built(STACK, train=PEOPLE)
    own, alice, root = (made.image(name) for name in ("train", "train-alice", "train-root"))
    assert own.run("id").strip() == "uid=1000(user) gid=1000(user) groups=1000(user),999(conda)"
    assert re.fullmatch(r"uid=1234\(user\) gid=100\(users\) groups=100\(users\),\d+\(conda\)", alice.run("id").strip())
    assert root.run("id", "-u").strip() == "0"
    daemon = made.image("train-daemon")
    assert daemon.run("id").strip() == "uid=1(user) gid=1(user) groups=1(user),999(conda)"
    assert daemon.run("sh", "-c", "ls /usr/sbin/useradd ~").strip() == "/usr/sbin/useradd\n\n/home/user:"
    assert daemon.run("date", "+%Z").strip() in {"PST", "PDT"}
    assert [one.run("date", "+%Z").strip() for one in (own, alice)] == ["KST", "UTC"]
    assert root.run("date", "+%Z").strip() in {"PST", "PDT"}
    [asked] = [person["env"] for person in PEOPLE if "env" in person]
    assert variables(own, alice) == {**asked, "TZ": "UTC"}
    assert alice.run("printenv", "A_SENTENCE").strip("\n") == "two  $words"
    assert alice.run("tree").strip() == "tree v2.1.1"
    assert alice.run("sh", "-c", "command -v less").strip() == "/usr/bin/less"
    assert alice.run("sudo", "-n", "id", "-u").strip() == "0"
    assert "einops" in pip(alice)
    assert "einops" not in pip(own)
    own.fails("sh", "-c", "command -v less || command -v tree")


@pytest.mark.slow
def test_user_installation_keeps_torch(built: Built, world: World) -> None:
    """Another torch on the index does not replace the one that was built."""
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
    """Two people who ask conda for the same have them in common, and root too."""
    made = built(STACK, train=PEOPLE)
    own, root = (made.image(name).layers() for name in ("train", "train-root"))
    [at] = [
        index for index, layer in enumerate(own) if any(path.endswith("/torch/__init__.py") for path in layer.files)
    ]
    assert [layer.diff_id for layer in own[: at + 1]] == [layer.diff_id for layer in root[: at + 1]]
    for layer in own:
        assert not [path for path in layer.files if path.endswith((".whl", ".deb")) and "python-wheels" not in path]


@pytest.mark.slow
def test_time_zone_is_in_train_image_alone(built: Built) -> None:
    made = built(STACK, train=PEOPLE)
    for name, planned in made.planned.items():
        environment = made.image(name).config()["Config"]["Env"] or []
        assert any(entry.startswith("TZ=") for entry in environment) == (not planned.spec.product), name


@pytest.mark.slow
def test_train_image_has_planned_labels(built: Built) -> None:
    made = built(STACK, train=PEOPLE)
    for name in ("train", "train-alice", "train-root"):
        config = made.image(name).config()["Config"]
        labels = made.planned[name].spec.labels
        assert {key: config["Labels"][key] for key in labels} == labels
        assert (config["WorkingDir"], config["Cmd"]) == ("/opt/project", ["/bin/bash"])


def extracted(made: Image, folder: Path) -> list[str]:
    """Have the wheels of an image `dist` in a folder, and return their names."""
    docker("build", f"--output=type=local,dest={folder}", "-", text=f"FROM {made.tag}\n")
    return sorted(path.name for path in (folder / "tmp/dist").glob("*.whl"))


@pytest.mark.slow
def test_wheels_are_in_tmp_dist(built: Built, tmp_path: Path) -> None:
    made = built(STACK, train=PEOPLE)
    names = extracted(made.image("dist"), tmp_path)
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


def test_cpu_wheels_import_outside_a_container(built: Built, world: World, tmp_path: Path) -> None:
    made = built(STACK, **CPU, train=[{}])
    assert made.image("train").run("python", "-c", "import torch; print(torch.version.cuda)").strip() == "None"
    parent = Image(made.planned["train"].args["BASE_IMAGE"])
    path = f"/opt/conda/bin:{environment(parent)['PATH']}"
    assert variables(parent, made.image("train")) == {**ENVIRONMENT, "PATH": path}
    extracted(made.image("dist"), tmp_path)
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


def test_build_with_failing_check_fails(built: Built, context: Path) -> None:
    made = built(STACK, **CPU, train=[{}])
    arguments, flags = chain.asked(made.planned["train"], made.names)
    check_planted(context, "universal/checks/build", arguments, *flags, image="universal")
