"""The torch family's images, built whole against stand-ins of the upstreams, asked what they promise."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator

import pytest

from stacks.source import ROOT
from tests.images import chain
from tests.images.family.conftest import STACKS
from tests.images.world.docker import CLIENT
from tests.images.world.upstreams import World

Built = Callable[..., chain.Chain]
pytestmark = pytest.mark.slow
QUICK = {"nccl-cu121", "base-cu121"}
ALL = [pytest.param(stack, marks=() if stack in QUICK else pytest.mark.slow) for stack in STACKS]
BASE = [pytest.param(stack, marks=() if stack in QUICK else pytest.mark.slow) for stack in STACKS if "base" in stack]
NCCL = [pytest.param(stack, marks=() if stack in QUICK else pytest.mark.slow) for stack in STACKS if "nccl" in stack]


def layers(image: str) -> Iterator[list[str]]:
    """Yield the paths in each layer of an image, the parent's first."""
    saved = subprocess.run([CLIENT, "save", image], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        manifest = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        for name in manifest[0]["Layers"]:
            content = archive.extractfile(name)
            assert content
            with tarfile.open(fileobj=content) as layer:
                yield layer.getnames()


def pip(made: chain.Chain, image: str) -> dict[str, str]:
    """Return what pip knows of an image: name and version."""
    listed = json.loads(made.run(image, "pip", "list", "--format=json", "--disable-pip-version-check"))
    return {entry["name"].lower(): entry["version"] for entry in listed}


@pytest.mark.parametrize("stack", ALL)
def test_the_whole_chain_is_built_with_the_versions_of_the_stack(built: Built, stack: str) -> None:
    made = built(stack)
    torch = next(image for image in made.images if image.spec.name == "torch")
    have = pip(made, "torch-extras")
    asked = {"torch": "TORCH_VERSION", "torchvision": "TORCHVISION_VERSION", "torchaudio": "TORCHAUDIO_VERSION"}
    assert {name: have[name] for name in asked} == {name: torch.args[argument] for name, argument in asked.items()}
    assert {"deepspeed", "flash-attn" if "flash-attn" in have else "flash_attn", "apex"} <= set(have)


@pytest.mark.parametrize("stack", BASE)
def test_a_base_image_has_no_compiler_and_no_development_package(built: Built, stack: str) -> None:
    made = built(stack)
    for image in ("torch", "torch-extras"):
        found = made.run(image, "sh", "-c", "ls /usr/bin /usr/local/cuda/bin /usr/local/bin 2>&1")
        assert not {"gcc", "g++", "cc", "c++", "nvcc", "cmake", "make", "ccache"} & set(found.split())
        packages = made.run(image, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n").splitlines()
        assert not [line for line in packages if line.startswith("installed ") and "-dev" in line]
        needed = {line.split()[1] for line in packages if line.startswith("installed ")}
        # What torch is linked with, and nothing else of NVIDIA's.
        assert {name.rstrip("0123456789-") for name in needed if name.startswith(("libcu", "libnccl", "cuda-"))} == {
            "cuda-cudart",
            "libcublas",
            "libcudnn" if "libcudnn8" in needed else "libcudnn9-cuda",
            "libnccl",
        }


@pytest.mark.parametrize("stack", NCCL)
def test_an_nccl_image_is_linked_with_hpcx_and_compiles(built: Built, stack: str) -> None:
    made = built(stack)
    linked = made.run("torch", "sh", "-c", "ldd /opt/venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so")
    assert "libucc.so.1 => /opt/hpcx/ucc/lib/libucc.so.1" in linked
    assert "libucp.so.0 => /opt/hpcx/ucx/lib/libucp.so.0" in linked
    nccl = next(image for image in made.images if image.spec.name == "nccl-tests").args["NCCL_VERSION"]
    assert f"installed {nccl}+cuda" in made.run(
        "torch", "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "libnccl2"
    )
    assert "release" in made.run("torch-extras", "nvcc", "--version")


@pytest.mark.parametrize("stack", sorted(QUICK))
def test_no_layer_holds_a_wheel_a_source_or_a_package_list(built: Built, stack: str) -> None:
    made = built(stack)
    for image in ("torch", "torch-extras"):
        for paths in layers(made.name(image)):
            left = [path for path in paths if path.endswith((".whl", ".deb", ".tbz", ".tar.gz"))]
            left += [
                path for path in paths if path.split("/")[0] in {"src", "dist", "source", "wheels", "built", "out"}
            ]
            left += [path for path in paths if path.startswith("var/lib/apt/lists/") and path.endswith("Packages")]
            assert not [path for path in left if not path.startswith("usr/share/python-wheels")]


@pytest.mark.parametrize("stack", sorted(QUICK))
def test_labels_user_and_environment(built: Built, stack: str) -> None:
    made = built(stack)
    for image in made.images:
        config = made.inspect(image.spec.name)["Config"]
        if image.spec.product:
            continue
        assert {key: config["Labels"][key] for key in image.spec.labels} == image.spec.labels
        environment = dict(entry.split("=", 1) for entry in config["Env"])
        if image.spec.name != "nccl-tests":
            assert config["User"] == "1000:1000"
            assert environment["TORCH_CUDA_ARCH_LIST"] == made.images[-1].args.get(
                "ARCH_LIST", environment["TORCH_CUDA_ARCH_LIST"]
            )
            assert environment["PATH"].startswith("/opt/venv/bin:")
            assert made.run(image.spec.name, "id", "-u").strip() == "1000"
    if "nccl" in stack:
        assert environment["HPCX_UCC_DIR"] == "/opt/hpcx/ucc"


def test_the_layers_of_torch_lie_in_the_planned_order(built: Built) -> None:
    made = built("base-cu121")
    shown = subprocess.run(
        [CLIENT, "history", "--no-trunc", "--format", "{{.CreatedBy}}", made.name("torch")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[::-1]
    dockerfile = (ROOT / "dockerfiles/torch/Dockerfile").read_text()
    planned = [part.split(",")[0] for part in dockerfile.split("source=/wheels/")[1:]]
    installs = [index for index, line in enumerate(shown) if "install-component" in line]
    assert len(installs) == len(planned)
    # The one that brings torch is where the Dockerfile has it: files of torch/ are in that layer and in no other.
    own = list(layers(made.name("torch")))
    with_torch = [
        number for number, paths in enumerate(own) if any("site-packages/torch/lib/" in path for path in paths)
    ]
    with_vision = [
        number for number, paths in enumerate(own) if any("site-packages/torchvision/" in path for path in paths)
    ]
    assert len(with_torch) == len(with_vision) == 1
    assert with_torch[0] < with_vision[0]
    assert shown[-1].startswith("LABEL")


@pytest.mark.parametrize("stack", sorted(QUICK))
def test_a_second_build_runs_nothing(built: Built, world: World, stack: str) -> None:
    made = built(stack)
    before = {image.spec.name: made.inspect(image.spec.name)["Id"] for image in made.images}
    made.build()
    assert {image.spec.name: made.inspect(image.spec.name)["Id"] for image in made.images} == before
    assert not [
        line
        for log in made.log.values()
        for line in log.splitlines()
        if "] RUN" in line and line.startswith("#") and f"{line.split()[0]} CACHED" not in log
    ]
    assert world.server.url in str(made.images[0].args)


def test_another_vision_compiles_no_torch_and_no_extra(built: Built, world: World) -> None:
    made = built("base-cu121")
    torch = {
        "version": "2.0.1",
        "vision": "0.15.2",
        "audio": "2.0.2",
        "commits": {"vision": world.commits["pytorch/vision"]},
    }
    other = built("base-cu121", "bumped", torch=torch)
    ids = [
        {image.spec.name: each.inspect(image.spec.name)["Id"] for image in each.images if image.spec.product}
        for each in (made, other)
    ]
    changed = {name for name in ids[0] if ids[0][name] != ids[1][name]}
    assert changed <= {"vision-source", "vision-wheel"}
    assert "vision-source" in changed


@pytest.mark.parametrize(
    ("image", "switch", "more", "less"),
    [
        ("torch-extras", {"extras": {"deepspeed": "0.9.4", "flashAttention": "2.0.2", "apex": False}}, set(), {"apex"}),
        (
            "torch-extras",
            {"extras": {"deepspeed": False, "flashAttention": "2.0.2"}},
            set(),
            {"deepspeed", "psutil", "py-cpuinfo"},
        ),
        ("torch-extras", {"extras": {"deepspeed": "0.9.4", "flashAttention": False}}, set(), {"flash-attn", "einops"}),
    ],
)
def test_a_switch_changes_what_it_says_and_nothing_else(
    built: Built, image: str, switch: dict[str, object], more: set[str], less: set[str]
) -> None:
    with_all = pip(built("base-cu121"), image)
    without = pip(built("base-cu121", "switch-" + "-".join(sorted(less)), **switch), image)
    normal = {name.replace("_", "-") for name in with_all}
    assert normal - {name.replace("_", "-") for name in without} == less
    assert set(without) - set(with_all) == more
