"""The main job on real input: the `local` stack, built and pushed by `pulumi up` from published wheels, and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from stacks.source import ROOT
from tests.images.engine import Image

MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
COMPONENTS = ["nvidia_cublas", "nvidia_cufft", "nvidia_cudnn", "nvidia_nccl", "triton", "torch-", "torchvision"]
"""A package of each component, in the order in which the layers lie."""


class Local:
    """The stack, with a state of its own, and what it exported."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "PULUMI_BACKEND_URL": folder.as_uri(), "PULUMI_CONFIG_PASSPHRASE": "test"}
        self.environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
        self.config = folder / "Pulumi.local.yaml"
        shutil.copy(ROOT / "stacks/Pulumi.local.yaml", self.config)
        (folder / "Pulumi.yaml").write_text("name: slipway\nruntime: python\n")
        self.pulumi("-C", str(folder), "stack", "init", "--no-select", "local")
        self.up()

    def pulumi(self, *arguments: str) -> str:
        done = subprocess.run(
            ["pulumi", "--non-interactive", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)

    def up(self) -> str:
        return self.pulumi("up", "-s", "local", "--yes", "--skip-preview", "--config-file", str(self.config))

    def outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = json.loads(self.pulumi("stack", "output", "-s", "local", "--json"))
        return outputs

    @property
    def ref(self) -> str:
        ref: str = self.outputs()["images"]["torch"]["ref"]
        return ref


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Local:
    return Local(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="session")
def image(local: Local) -> Image:
    return Image(local.ref)


def test_what_was_exported_is_what_the_registry_holds(local: Local) -> None:
    name, _, digest = local.ref.partition("@")
    host, _, path = name.partition("/")
    request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}", headers={"Accept": MANIFESTS})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Docker-Content-Digest"] == digest


def test_a_second_up_changes_nothing(local: Local) -> None:
    before = local.ref
    assert re.search(r"Resources:\n\s+\d+ unchanged", local.up())
    assert local.ref == before


def test_it_multiplies_matrices_as_a_user_without_privileges(local: Local, image: Image) -> None:
    program = "import torch, os; a = torch.arange(6.).reshape(2, 3); print(torch.__version__, (a @ a.T).tolist(), os.getuid())"
    version = local.outputs()["plan"]["torch"]["args"]["TORCH_VERSION"]
    said = image.run("python", "-c", program)
    assert re.fullmatch(rf"{re.escape(version)}\+\S+ \[\[5.0, 14.0\], \[14.0, 50.0\]\] 1000\n", said), said


def test_torchvision_and_torchaudio_are_those_asked_for(local: Local, image: Image) -> None:
    args = local.outputs()["plan"]["torch"]["args"]
    program = "import torchvision, torchaudio; print(torchvision.__version__, torchaudio.__version__)"
    vision, audio = image.run("python", "-c", program).split()
    assert vision.partition("+")[0] == args["TORCHVISION_VERSION"]
    assert audio.partition("+")[0] == args["TORCHAUDIO_VERSION"]


def test_it_says_what_it_is(local: Local, image: Image) -> None:
    config = image.config()["Config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    planned = local.outputs()["plan"]["torch"]["labels"]
    assert labels["title"] == "torch" == planned["LABEL_TITLE"]
    assert labels["version"] == planned["LABEL_VERSION"]
    assert labels["base.name"] == "debian:bookworm-slim"
    assert config["WorkingDir"] == "/workspace"
    assert config["User"]


def test_each_component_has_its_layer_and_none_holds_what_a_build_leaves(image: Image) -> None:
    layers = image.layers()
    places = [
        next(index for index, layer in enumerate(layers) if any(name.startswith(part) for name in layer.packages()))
        for part in COMPONENTS
    ]
    assert places == sorted(set(places)), dict(zip(COMPONENTS, places, strict=True))
    left = re.compile(r"\.whl$|\.pyc$|/\.cache/|^var/lib/apt/lists/.+_Packages|(^|/)(gcc|g\+\+|cc|c\+\+|nvcc)$")
    assert not [path for layer in layers for path in layer.files if left.search(path)]
