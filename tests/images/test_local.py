"""The main job on real input: the `local` stack, built and pushed by `pulumi up` from published wheels, and run."""

from __future__ import annotations

import re
import urllib.request

from tests.images.engine import Image
from tests.images.published import Published

MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
COMPONENTS = ["nvidia_cublas", "nvidia_cufft", "nvidia_cudnn", "nvidia_nccl", "triton", "torch-", "torchvision"]
"""A package of each component, in the order in which the layers lie."""


def test_exported_digest_is_that_of_the_registry(local: Published) -> None:
    name, _, digest = local.refs()["torch"].partition("@")
    host, _, path = name.partition("/")
    request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}", headers={"Accept": MANIFESTS})
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.headers["Docker-Content-Digest"] == digest


def test_second_up_changes_nothing(local: Published) -> None:
    before = local.refs()["torch"]
    assert re.search(r"Resources:\n\s+\d+ unchanged", local.up())
    assert local.refs()["torch"] == before


def test_torch_multiplies_as_unprivileged_user(local: Published, image: Image) -> None:
    program = "import torch, os; a = torch.arange(6.).reshape(2, 3); print(torch.__version__, (a @ a.T).tolist(), os.getuid())"
    version = local.outputs()["plan"]["torch"]["args"]["TORCH_VERSION"]
    output = image.run("python", "-c", program)
    assert re.fullmatch(rf"{re.escape(version)}\+\S+ \[\[5.0, 14.0\], \[14.0, 50.0\]\] 1000\n", output), output


def test_torchvision_and_torchaudio_are_those_of_plan(local: Published, image: Image) -> None:
    args = local.outputs()["plan"]["torch"]["args"]
    program = "import torchvision, torchaudio; print(torchvision.__version__, torchaudio.__version__)"
    vision, audio = image.run("python", "-c", program).split()
    assert vision.partition("+")[0] == args["TORCHVISION_VERSION"]
    assert audio.partition("+")[0] == args["TORCHAUDIO_VERSION"]


def test_labels_have_title_version_and_base(local: Published, image: Image) -> None:
    config = image.config()["Config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    planned = local.outputs()["plan"]["torch"]["labels"]
    assert labels["title"] == "torch" == planned["LABEL_TITLE"]
    assert labels["version"] == planned["LABEL_VERSION"]
    assert labels["base.name"] == "debian:bookworm-slim"
    assert config["WorkingDir"] == "/workspace"
    assert (config["User"], config["Cmd"]) == ("1000:1000", ["python"])


def test_layers_hold_a_component_each_and_no_build_files(image: Image) -> None:
    layers = image.layers()
    places = [
        next(index for index, layer in enumerate(layers) if any(name.startswith(part) for name in layer.packages()))
        for part in COMPONENTS
    ]
    assert places == sorted(set(places)), dict(zip(COMPONENTS, places, strict=True))
    # The distribution's own venv module brings wheels of pip and setuptools.
    unwanted = re.compile(
        r"^(?!usr/share/python-wheels/).*\.whl$|\.pyc$|/\.cache/|^var/lib/apt/lists/.+_Packages|bin/(gcc|g\+\+|cc|c\+\+|nvcc)$"
    )
    assert not [path for layer in layers for path in layer.files if unwanted.search(path)]
