"""``slipway:serve``: the image with vLLM, where it stands, and the one line for each vLLM that does not run on the torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from containers.image.gpu.release_order import line, order
from stacks import flavors, lock
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.spec import ImageSpec, Sibling
from stacks.tags import Revision, parse, render
from stacks.versions.pytorch import companion_versions, torch_release
from stacks.versions.tables import table
from tests.helpers import refusals
from tests.helpers.every import every

NO_EXTRAS = {"deepspeed": False, "flashAttention": False, "apex": False}
VLLM: dict[str, Any] = {
    "cuda": "13.0.3",
    "torch": {"version": "2.14.0", "vision": "0.29.0", "audio": "2.11.0", "source": "wheel"},
    "extras": NO_EXTRAS,
    "serve": {"vllm": "0.33.0"},
}


def load(flavor: str = "base", **values: Any) -> Any:
    return flavors.load({"flavor": flavor, **VLLM, **values}, "stack x")


def specs(flavor: str = "base", **values: Any) -> dict[str, ImageSpec]:
    return {spec.name: spec for spec in flavors.flavor(flavor).images(load(flavor, **values))}


refusal_line = partial(refusals.refusal_line, load)


def test_serve_stands_on_torch_without_extras() -> None:
    built = specs()
    assert list(built) == ["torch", "serve"]
    assert built["serve"].parents == {"BASE_IMAGE": Sibling(image="torch")}
    assert built["serve"].args == {"VLLM_VERSION": "0.33.0"}
    assert built["serve"].cuda == built["torch"].cuda


def test_serve_stands_on_torch_extras_with_extras() -> None:
    built = specs(extras={**NO_EXTRAS, "deepspeed": "0.19.7"})
    assert built["serve"].parents == {"BASE_IMAGE": Sibling(image="torch-extras")}
    assert built["serve"].compiled == built["torch-extras"].compiled != {}


def test_packages_of_serve_are_those_of_torch_and_vllm() -> None:
    built = specs()
    torch, serve = built["torch"].packages, built["serve"].packages
    assert torch
    assert serve
    assert torch.requirements == ("pip", "setuptools", "torch==2.14.0", "torchvision==0.29.0", "torchaudio==2.11.0")
    assert serve.requirements == (*torch.requirements, "vllm==0.33.0")
    assert (serve.pythons, serve.glibc, serve.torch_index) == (("3.12",), "2.39", None)
    key = lock.packages_key(serve, "linux/amd64", MirrorsConfig())
    assert key.endswith(" vllm==0.33.0 setuptools<82 cuda-python>=12.8 python3.12 glibc2.39")


def test_packages_key_is_another_where_files_differ() -> None:
    keys = {
        lock.packages_key(packages, platform, mirrors)
        for packages, platform, mirrors in (
            (specs()["serve"].packages, "linux/amd64", MirrorsConfig()),
            (specs()["serve"].packages, "linux/arm64", MirrorsConfig()),
            (
                specs()["serve"].packages,
                "linux/amd64",
                MirrorsConfig.model_validate({"pythonIndex": "https://mirror.example/simple"}),
            ),
            (specs(distro="ubuntu22.04", python="3.11")["serve"].packages, "linux/amd64", MirrorsConfig()),
            (specs(cuda="12.6.3", serve=None)["torch"].packages, "linux/amd64", MirrorsConfig()),
            (specs()["torch"].packages, "linux/amd64", MirrorsConfig()),
        )
        if packages
    }
    assert len(keys) == 6
    assert any("https://pypi.org/simple https://download.pytorch.org/whl/cu126 " in key for key in keys)


@every("flavor", ["base", "nccl"])
def test_serve_changes_no_other_image(flavor: str) -> None:
    nccl = {"nccl": "2.28.9-1"} if flavor == "nccl" else {}
    built, without = specs(flavor, **nccl), specs(flavor, serve=None, **nccl)
    assert {name: spec for name, spec in built.items() if name != "serve"} == without


def test_tag_of_serve_names_vllm_and_parses() -> None:
    suffix = specs(tagSuffix="mine")["serve"].suffix
    text = "base-cuda13.0.3-ubuntu24.04-torch2.14.0-vision0.29.0-audio2.11.0-abi1-vllm0.33.0-mine"
    assert suffix.render() == text
    assert parse(render(Revision(commit="a1b2c3d"), suffix)) == (Revision(commit="a1b2c3d"), suffix)


def test_serve_on_torch_from_source_is_accepted() -> None:
    built = specs(torch={"version": "2.14.0", "vision": "0.29.0"}, cuda="13.2.1")
    assert "torch-wheel" in built["torch"].siblings
    assert built["serve"].suffix.vllm == "0.33.0"


@every("vllm", companion_versions("vllm"))
def test_every_vllm_serves_in_some_stack(vllm: str) -> None:
    row = table("torch")["vllm"][vllm]
    torch, vision, audio = (row[key].removeprefix("==") for key in ("torch", "vision", "audio"))
    major = order(row["cuda"])[0]
    wheels = [cuda for cuda in table("cuda")["release"] if line(cuda) in torch_release(torch).cudas]
    cuda = next(cuda for cuda in wheels if order(cuda)[0] == major and order(line(cuda)) >= (12, 8))
    versions = {"version": torch, "vision": vision, "audio": audio, "source": "wheel"}
    for platform in ("linux/amd64", "linux/arm64"):
        warnings = load(cuda=cuda, torch=versions, serve={"vllm": vllm}, platform=platform).warnings
        assert [each for each in warnings if " of its wheel" not in each] == []


FA4_NEEDS = "needs apache-tvm-ffi >=0.1.12,<0.2, and vLLM 0.33.0 needs 0.1.11; allowed: 4.0.0.beta34 and newer, false;"

WRONG = [
    (
        {"extras": {**NO_EXTRAS, "flashAttention4": "4.0.0.beta27"}},
        f"extras.flashAttention4: '4.0.0.beta27' {FA4_NEEDS} rule: the packages' own metadata",
    ),
    (
        {"extras": {**NO_EXTRAS, "flashAttention4": "4.0.0.beta20"}},
        f"extras.flashAttention4: '4.0.0.beta20' {FA4_NEEDS} ",
    ),
    (
        {"archList": "11.0"},
        (
            "archList: '11.0' has no compute capability that the amd64 wheel of vLLM 0.33.0 has code for; allowed: 7.5, "
            "8.0, 8.6, 8.9, 9.0, 10.0, 12.0; rule: vllm/_C_stable_libtorch.abi3.so and "
        ),
    ),
    (
        {"archList": "7.5+PTX", "platform": "linux/arm64"},
        "archList: '7.5+PTX' has no compute capability that the arm64 wheel of vLLM 0.33.0 has code for; allowed: 8.0, 8.7, ",
    ),
    (
        {"torch": {"version": "2.14.0", "source": "wheel"}},
        "torch.vision: '0.29.2' is not the torchvision of vLLM 0.33.0; allowed: 0.29.0; rule: ",
    ),
    (
        {"torch": {"version": "2.14.0", "vision": "0.29.0", "audio": False}},
        "torch.audio: 'false' is not the torchaudio of vLLM 0.33.0; allowed: 2.11.0; rule: ",
    ),
    (
        {"torch": {"version": "2.14.0", "vision": "0.29.0"}, "cuda": "12.9.1"},
        "cuda: '12.9.1' does not have the libraries of vLLM 0.33.0, whose wheel is compiled with CUDA 13.0; allowed: 13.x; ",
    ),
    (
        {"distro": "ubuntu22.04"},
        (
            "distro: 'ubuntu22.04' has Python 3.10, which vLLM 0.33.0 does not support; allowed: Python 3.11, Python 3.12, "
            "Python 3.13, Python 3.14; rule: Requires-Python of vLLM's wheel"
        ),
    ),
    (
        {"distro": "ubuntu22.04", "python": "3.10"},
        "python: '3.10' is not supported by vLLM 0.33.0; allowed: Python 3.11, Python 3.12, Python 3.13, Python 3.14; ",
    ),
    (
        {"slim": True},
        "slim: 'true' omits the compiler, which vLLM's Triton kernels need when they first run; allowed: false, no serve; ",
    ),
    (
        {"serve": {"vllm": "0.33"}},
        "serve.vllm: '0.33' is not a known vLLM (did you mean '0.33.0'?); allowed: 0.33.0; rule: ",
    ),
    ({"serve": {}}, "serve.vllm: is required"),
    ({"serve": {"sglang": "0.5.23"}}, "serve: unknown key 'sglang'; the keys here are: vllm"),
]


@every("values, message", WRONG)
def test_serve_that_does_not_fit_is_one_line(values: dict[str, Any], message: str) -> None:
    assert refusal_line(**values).startswith(f"stack x: slipway:{message}")


FOR_TORCH = "; rule: the packages' own metadata, stacks/versions/torch.toml"

SEVERAL = [
    (
        {"serve": {"vllm": "0.32.0"}},
        [
            (
                "serve.vllm: '0.32.0' is compiled against torch 2.13.0, and slipway:torch.version is 2.14.0; allowed: "
                f"vLLM 0.33.0, torch.version: 2.13.0{FOR_TORCH}"
            ),
            f"torch.vision: '0.29.0' is not the torchvision of vLLM 0.32.0; allowed: 0.28.0{FOR_TORCH}",
        ],
    ),
    (
        {"torch": {"version": "2.15.0"}, "cuda": "13.2.1"},
        [
            (
                "serve.vllm: '0.33.0' is compiled against torch 2.14.0, and slipway:torch.version is 2.15.0; allowed: "
                f"torch.version: 2.14.0{FOR_TORCH}"
            ),
            f"torch.vision: '0.29.2' is not the torchvision of vLLM 0.33.0; allowed: 0.29.0{FOR_TORCH}",
        ],
    ),
    (
        {"torch": {"version": "2.12.1", "audio": False, "source": "wheel"}, "cuda": "12.6.3", "distro": "ubuntu22.04"},
        [
            (
                "serve.vllm: '0.33.0' is compiled against torch 2.14.0, and slipway:torch.version is 2.12.1; allowed: "
                f"torch.version: 2.14.0{FOR_TORCH}"
            ),
            f"torch.vision: '0.27.1' is not the torchvision of vLLM 0.33.0; allowed: 0.29.0{FOR_TORCH}",
            f"torch.audio: 'false' is not the torchaudio of vLLM 0.33.0; allowed: 2.11.0{FOR_TORCH}",
            (
                "cuda: '12.6.3' does not have the libraries of vLLM 0.33.0, whose wheel is compiled with CUDA 13.0; "
                f"allowed: 13.x{FOR_TORCH}"
            ),
            (
                "distro: 'ubuntu22.04' has Python 3.10, which vLLM 0.33.0 does not support; allowed: Python 3.11, "
                "Python 3.12, Python 3.13, Python 3.14; rule: Requires-Python of vLLM's wheel, stacks/versions/torch.toml"
            ),
        ],
    ),
]


@every("values, messages", SEVERAL)
def test_all_that_does_not_fit_vllm_is_said_at_once(values: dict[str, Any], messages: list[str]) -> None:
    assert refusals.refusal(load, **values).splitlines() == [f"stack x: slipway:{message}" for message in messages]


@every("pin", ["4.0.0.beta19", "4.0.0.beta34", "a" * 40])
def test_vllm_stands_on_flash_attention4_of_its_tvm_ffi(pin: str) -> None:
    built = specs(extras={**NO_EXTRAS, "flashAttention4": pin})
    assert built["serve"].parents == {"BASE_IMAGE": Sibling(image="torch-extras")}


def test_older_vllm_refuses_newer_flash_attention4() -> None:
    versions = {"version": "2.11.0", "vision": "0.26.0", "audio": "2.11.0", "source": "wheel"}
    extras = {**NO_EXTRAS, "flashAttention4": "4.0.0.beta34"}
    message = refusal_line(torch=versions, serve={"vllm": "0.26.0"}, extras=extras)
    assert "needs apache-tvm-ffi >=0.1.11,<0.2, and vLLM 0.26.0 needs 0.1.10; allowed: false;" in message


@every("archs, platform", [("11.0", "linux/arm64"), ("10.3a", "linux/amd64"), ("11.0 12.1+PTX", "linux/amd64")])
def test_archs_that_code_of_vllm_runs_on_are_accepted(archs: str, platform: str) -> None:
    assert load(archList=archs, platform=platform).warnings == []


def test_unknown_vllm_without_one_for_the_torch_lists_all() -> None:
    message = refusal_line(serve={"vllm": "0.99.0"}, torch={"version": "2.12.1", "source": "wheel"})
    assert f"more from 0.12.0 to {companion_versions('vllm')[-1]};" in message


def test_unknown_vllm_is_built_at_own_risk() -> None:
    config = load(serve={"vllm": "0.99.0"}, unverified=True)
    risk = (
        "slipway:unverified: at your own risk, as no table has it: serve.vllm '0.99.0' is taken to go with this torch"
    )
    assert config.warnings == [risk]
