"""The flavors ``base`` and ``nccl``: their graph, their arguments, and the one line for each mistake."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.stack_file import ROOT
from stacks.flavors.torch_family.family_config import FamilyConfig
from stacks.spec import CONTEXT, ImageSpec, Outside, Sibling, parents_first
from stacks.versions.tables import table
from tests.helpers import refusals
from tests.helpers.contents import checkout_fingerprints
from tests.helpers.every import every

SEED: dict[str, Any] = {
    "cuda": "12.1.1",
    "distro": "ubuntu20.04",
    "torch": {"version": "2.0.1"},
    "nccl": "2.18.3-1",
    "extras": {"deepspeed": "0.9.4", "flashAttention": "2.0.2", "apex": "38a1269"},
    "tagFields": [],
}
TOOLS = ("gdrcopy", "perftest", "nvbandwidth", "nccl-tests")
NO_EXTRAS = {"deepspeed": False, "flashAttention": False, "apex": False}
CUDNN9: dict[str, Any] = {"cuda": "12.6.3", "torch": {"version": "2.4.0"}, "nccl": "2.23.4-1"}
TODAY: dict[str, Any] = {"cuda": "13.2.1", "distro": "ubuntu24.04", "nccl": "2.30.4-1", "extras": NO_EXTRAS}


def load(flavor: str = "nccl", **values: Any) -> Any:
    merged = {**SEED, **values}
    if flavor == "base":
        merged.pop("nccl")
    return flavors.load({"flavor": flavor, **merged}, "stack x")


def specs(flavor: str = "nccl", **values: Any) -> dict[str, ImageSpec]:
    config = load(flavor, **values)
    return {spec.name: spec for spec in parents_first(flavors.flavor(flavor).images(config))}


refusal = partial(refusals.refusal, load)


def images(built: dict[str, ImageSpec]) -> list[str]:
    return [name for name, spec in built.items() if not spec.product]


def test_flavor_alone_is_a_stack() -> None:
    for flavor, variant in (("base", "base-cuda"), ("nccl", "nccl-cuda")):
        config = flavors.load({"flavor": flavor}, "stack x")
        built = flavors.flavor(flavor).images(config)
        assert built[-1].suffix.render().startswith(variant)


@every(
    "stack, suffixes",
    [
        (
            "nccl-cu121",
            {
                "nccl-tests": "nccl-cuda12.1.1-nccl2.18.3-1",
                "torch": "nccl-cuda12.1.1-nccl2.18.3-1-torch2.0.1-vision0.15.2-audio2.0.2",
                "torch-extras": "nccl-cuda12.1.1-nccl2.18.3-1-torch2.0.1-vision0.15.2-audio2.0.2",
            },
        ),
        (
            "nccl-cu118",
            {
                "nccl-tests": "nccl-cuda11.8.0-nccl2.16.2-1",
                "torch": "nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.1-vision0.15.2-audio2.0.2",
                "torch-extras": "nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.1-vision0.15.2-audio2.0.2",
            },
        ),
        (
            "base-cu120",
            {
                "torch": "base-cuda12.0.1-torch2.0.1-vision0.15.2-audio2.0.2",
                "torch-extras": "base-cuda12.0.1-torch2.0.1-vision0.15.2-audio2.0.2",
            },
        ),
        (
            "base-cu132",
            {
                "torch": "base-cuda13.2.1-ubuntu24.04-torch2.15.0-vision0.29.2-audio2.11.0-abi1",
                "torch-extras": "base-cuda13.2.1-ubuntu24.04-torch2.15.0-vision0.29.2-audio2.11.0-abi1",
            },
        ),
    ],
)
def test_stacks_build_images_in_order_with_their_tags(stack: str, suffixes: dict[str, str]) -> None:
    built = [spec for spec in plan.resolve(stack)[1] if not spec.product]
    assert [(spec.name, spec.suffix.render()) for spec in built] == list(suffixes.items())


def test_parents_of_nccl_are_tests_and_of_wheels_the_builder() -> None:
    nccl = specs()
    devel = Outside(reference="nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04")
    assert nccl["nccl-builder"].parents == {"BASE_IMAGE": devel, "HPCX_BUILD_IMAGE": Sibling(image="hpcx-build")}
    assert nccl["nccl-tests"].siblings == ["nccl-builder", *(f"{tool}-build" for tool in TOOLS)]
    assert nccl["nccl-tests"].labels["org.opencontainers.image.base.name"] == devel.reference
    assert nccl["torch"].siblings[0] == "nccl-tests"
    wheels = {name for name in nccl if name.endswith("-wheel")}
    assert {nccl[name].siblings[0] for name in wheels} == {"nccl-builder"}


def test_tools_stand_on_the_builder_only_if_they_need_nccl() -> None:
    nccl = specs()
    on_builder = {name for name, spec in nccl.items() if "nccl-builder" in spec.siblings and name.endswith("-build")}
    assert on_builder == {"nccl-tests-build"}
    assert {name for name, spec in nccl.items() if spec.dockerfile == "hpc-tools/Dockerfile" and not spec.siblings} == {
        *("hpcx-build", "gdrcopy-build", "perftest-build", "nvbandwidth-build"),
    }


def test_parents_of_base_are_nvidia_devel_and_base() -> None:
    base = specs("base")
    devel = Outside(reference="nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04")
    assert base["torch-wheel"].parents["BASE_IMAGE"] == devel
    assert base["torch"].parents["BASE_IMAGE"] == Outside(reference="nvidia/cuda:12.1.1-base-ubuntu20.04")
    assert not {"nccl-tests", "nccl-builder", *(f"{tool}-build" for tool in TOOLS)} & set(base)


def test_published_nccl_tests_is_the_parent_by_reference() -> None:
    built = specs(ncclTests="ghcr.io/acme/nccl-tests:12.1.1")
    assert not {"nccl-tests", "nccl-builder", "hpcx-build", *(f"{tool}-build" for tool in TOOLS)} & set(built)
    published = Outside(reference="ghcr.io/acme/nccl-tests:12.1.1")
    assert built["torch"].parents["BASE_IMAGE"] == built["torch-wheel"].parents["BASE_IMAGE"] == published


def test_published_nccl_tests_gives_wheels_parent_arguments() -> None:
    promised = {"PARENT_CUDA": "12.1.1", "PARENT_DISTRO": "ubuntu20.04", "PARENT_NCCL": "2.18.3-1"}
    built = specs(ncclTests="ghcr.io/acme/nccl-tests:12.1.1")
    arguments = {name for name, spec in built.items() if promised.items() <= spec.args.items()}
    assert arguments == {"torch", *(name for name in built if name.endswith("-wheel"))}
    assert not [name for name, spec in specs().items() if promised.keys() & spec.args.keys()]


@every(
    "tag",
    [
        "12.1.1-cudnn8-devel-ubuntu20.04-nccl2.18.3-1-85f9143",
        "12.1.1-devel-ubuntu20.04-nccl2.18.3-1-85f9143@sha256:" + "a" * 64,
        "a1b2c3d-nccl-cuda12.1.1-nccl2.18.3-1",
        "fix-a1b2c3d-x01234567-nccl-cuda12.1.1-ubuntu20.04-nccl2.18.3-1",
        "12.2-of-ours",
    ],
)
def test_published_nccl_tests_with_fitting_tag_is_accepted(tag: str) -> None:
    assert specs(ncclTests=f"ghcr.io:443/acme/nccl-tests:{tag}")["torch"].args["PARENT_CUDA"] == "12.1.1"


@every(
    "tag, why",
    [
        ("12.2.2-cudnn8-devel-ubuntu20.04-nccl2.18.3-1-85f9143", "cuda 12.2.2, and slipway:cuda is 12.1.1"),
        (
            "12.1.1-cudnn8-devel-ubuntu22.04-nccl2.18.3-1-85f9143",
            "distro ubuntu22.04, and slipway:distro is ubuntu20.04",
        ),
        ("12.1.1-devel-ubuntu20.04-nccl2.19.3-1-85f9143", "nccl 2.19.3-1, and slipway:nccl is 2.18.3-1"),
        ("a1b2c3d-nccl-cuda12.1.1-ubuntu20.04-nccl2.18.1-1", "nccl 2.18.1-1, and slipway:nccl is 2.18.3-1"),
    ],
)
def test_published_nccl_tests_with_other_tag_is_refused(tag: str, why: str) -> None:
    reference = f"ghcr.io/acme/nccl-tests:{tag}"
    fragment = f"stack x: slipway:ncclTests: '{reference}' is tagged as having {why}; allowed: an image of "
    assert refusal(ncclTests=reference).startswith(fragment)


def test_wheels_are_products_of_their_own() -> None:
    built = specs()
    assert images(built) == ["nccl-tests", "torch", "torch-extras"]
    assert built["vision-wheel"].siblings == ["nccl-builder", "vision-source", "torch-wheel"]
    assert built["torch-wheel"].siblings == ["nccl-builder", "torch-source"]
    assert built["deepspeed-wheel"].siblings == ["nccl-builder", "deepspeed-source", "torch-wheel"]
    assert built["torch-extras"].siblings == ["torch", "deepspeed-wheel", "flash-attention-wheel", "apex-wheel"]


def test_sources_are_equal_for_every_cuda_and_variant() -> None:
    one, other = specs(), specs("base", cuda="11.8.0")
    for name in ("torch-source", "vision-source", "audio-source", "deepspeed-source"):
        assert one[name] == other[name]


@every("flavor", ["base", "nccl"])
def test_sources_are_equal_for_every_platform(flavor: str) -> None:
    amd, arm = (
        {spec.name: spec for spec in flavors.flavor(flavor).images(flavors.load({"flavor": flavor, **given}, "x"))}
        for given in ({}, {"platform": "linux/arm64"})
    )
    equal = {name for name in amd if amd[name] == arm[name]}
    assert equal == {name for name in amd if name.endswith("-source")}


def test_vision_bump_leaves_torch_wheel_alone() -> None:
    today = {**TODAY, "extras": {"deepspeed": "0.19.7"}}
    before = specs(**today, torch={"version": "2.15.0", "vision": "0.29.1"})
    after = specs(**today, torch={"version": "2.15.0", "vision": "0.29.2"})
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"vision-source", "vision-wheel", "torch", "torch-extras"}


def test_wheel_index_is_set_if_python_index_has_other_cuda() -> None:
    wheel = {"version": "2.1.0", "source": "wheel"}
    listed = specs(torch=wheel, extras={"deepspeed": "0.9.4", "flashAttention": False, "apex": False})
    assert "TORCH_INDEX_URL" not in listed["torch"].args
    assert images(listed) == ["nccl-tests", "torch", "torch-extras"]
    products = {name for name in listed if name.endswith(("-source", "-wheel"))}
    assert products == {"deepspeed-source", "deepspeed-wheel"}
    assert listed["deepspeed-wheel"].args["TORCH_VERSION"] == "2.1.0"
    other = specs("base", torch=wheel, cuda="11.8.0")
    assert other["torch"].args["TORCH_INDEX_URL"] == "https://download.pytorch.org/whl/cu118"
    assert other["deepspeed-wheel"].args["TORCH_INDEX_URL"] == "https://download.pytorch.org/whl/cu118"


@every(
    "torch, fragment",
    [("2.0.1", "numpy<2 setuptools<82"), ("2.2.2", "numpy<2 setuptools<82"), ("2.4.0", "setuptools<82")],
)
def test_torch_constraints_follow_its_release(torch: str, fragment: str) -> None:
    """Of NumPy 2 and of setuptools without pkg_resources its metadata knows nothing."""
    given = {**CUDNN9, "distro": "ubuntu22.04", "extras": {"deepspeed": "0.9.4"}} if torch == "2.4.0" else {}
    built = specs(**{**given, "torch": {"version": torch}})
    for name in ("torch-wheel", "vision-wheel", "deepspeed-wheel", "torch"):
        assert built[name].args["CONSTRAINTS"] == fragment, name
    local = flavors.load({"flavor": "local", "torch": {"version": torch}}, "stack x")
    assert flavors.flavor("local").images(local)[0].args["CONSTRAINTS"] == fragment


def test_extras_switch_off_in_yaml_and_in_json() -> None:
    off = {"deepspeed": False, "flashAttention": "false", "apex": False}
    assert images(specs(extras=off)) == ["nccl-tests", "torch"]
    on = specs(transformerEngine="1.0", flashAttention3="a" * 40, **CUDNN9)
    assert on["torch"].parents.keys() == {
        *("BASE_IMAGE", "TORCH_WHEEL_IMAGE", "VISION_WHEEL_IMAGE", "AUDIO_WHEEL_IMAGE"),
        *("TRANSFORMER_ENGINE_WHEEL_IMAGE", "FLASH_ATTENTION3_WHEEL_IMAGE"),
    }
    assert on["flash-attention3-source"].args == {"COMPONENT": "flash-attention3", "COMMIT": "a" * 40}


def test_tag_without_audio_has_no_audio_field() -> None:
    built = specs(torch={"version": "2.0.1", "audio": False})
    assert built["torch"].suffix.render() == "nccl-cuda12.1.1-nccl2.18.3-1-torch2.0.1-vision0.15.2"
    assert built["torch"].args["TORCHAUDIO_VERSION"] == ""
    assert "audio-wheel" not in built


def test_torch_at_candidate_or_commit_is_built() -> None:
    built = specs(
        torch={"version": "2.0.0-rc1", "vision": "0.15.0-rc1", "audio": False, "commits": {"torch": "c" * 40}}
    )
    assert built["torch"].suffix.render() == "nccl-cuda12.1.1-nccl2.18.3-1-torch2.0.0-rc1-vision0.15.0-rc1"
    assert built["torch-source"].args == {"COMPONENT": "torch", "VERSION": "2.0.0-rc1", "COMMIT": "c" * 40}
    assert built["torch-source"].suffix.render() == "source-torch2.0.0-rc1-gccccccc"


def test_triton_follows_exact_pin_or_source() -> None:
    assert specs()["torch-wheel"].args["TRITON_VERSION"] == "2.0.0"
    assert "TRITON_VERSION" not in specs("base", **TODAY, torch={"version": "2.15.0"})["torch-wheel"].args
    assert "TRITON_VERSION" not in specs(torch={"version": "2.0.1", "commits": {"torch": "c" * 40}})["torch-wheel"].args


@every("torch", [{"version": "1.9.1"}, {"version": "1.13.1", "commits": {"torch": "c" * 40}}])
@every("flavor", ["base", "nccl"])
def test_triton_for_torch_before_2_is_none(flavor: str, torch: dict[str, Any]) -> None:
    nccl = {"nccl": "2.9.9-1", "hpcx": "v1/hpcx-v1.tbz"} if flavor == "nccl" else {}
    built = specs(flavor, cuda="11.3.1", extras=NO_EXTRAS, torch=torch, **nccl)
    assert built["torch-wheel"].args["TRITON_VERSION"] == "none"


@every("flavor", ["base", "nccl"])
def test_triton_without_a_wheel_for_arm64_is_none(flavor: str) -> None:
    arm: dict[str, Any] = {"platform": "linux/arm64", "cuda": "12.6.3", "distro": "ubuntu22.04", "extras": NO_EXTRAS}
    nccl = {"nccl": "2.23.4-1"} if flavor == "nccl" else {}
    for torch, expected in (("2.8.0", "none"), ("2.9.1", "3.5.1")):
        built = specs(flavor, **arm, **nccl, torch={"version": torch}, transformerEngine=False)
        assert built["torch-wheel"].args["TRITON_VERSION"] == expected
    pinned = {"version": "2.8.0", "commits": {"torch": "c" * 40}}
    assert (
        specs(flavor, **arm, **nccl, torch=pinned, transformerEngine=False)["torch-wheel"].args["TRITON_VERSION"]
        == "none"
    )


def test_stack_for_arm64_warns_of_what_is_in_doubt() -> None:
    arm = load(
        "nccl",
        platform="linux/arm64",
        cuda="12.6.3",
        distro="ubuntu22.04",
        nccl="2.24.3-1",
        torch={"version": "2.8.0"},
        extras=NO_EXTRAS,
        transformerEngine=False,
    )
    assert [line.split()[0] for line in arm.warnings] == ["slipway:torch.version:", "slipway:nccl:", "slipway:hpcx:"]
    assert load(**TODAY, torch={"version": "2.15.0"}, platform="linux/arm64").warnings == [
        "slipway:nccl: NVIDIA's apt archive may not have 2.30.4-1+cuda13.2 for arm64; the build fails without it"
    ]


def test_parent_never_published_for_arm64_is_refused() -> None:
    values = {"cuda": "11.8.0", "distro": "ubuntu18.04", "platform": "linux/arm64", "torch": {"version": "2.0.1"}}
    with pytest.raises(
        SlipwayError, match=r"distro: 'ubuntu18\.04' has no nvidia/cuda image for arm64 of CUDA 11\.8\.0 "
    ):
        load("base", **values)


def test_cudnn_of_unknown_version_is_accepted() -> None:
    assert load("base", **TODAY | {"cuda": "13.2.0", "torch": {"version": "2.15.0"}, "transformerEngine": "2.12"})


CU129: dict[str, Any] = {**TODAY, "cuda": "12.9.1", "torch": {"version": "2.15.0"}, "cudnn": "9.26.0.51"}


def test_cudnn_release_is_installed_where_wheels_are_compiled() -> None:
    base, nccl = specs("base", **CU129), specs("nccl", **CU129)
    assert {name for name, spec in base.items() if "CUDNN_VERSION" in spec.args} == {
        name for name in base if name.endswith("-wheel")
    }
    assert {name for name, spec in nccl.items() if "CUDNN_VERSION" in spec.args} == {"nccl-builder"}
    assert nccl["nccl-builder"].args["CUDNN_VERSION"] == "9.26.0.51"
    devel = Outside(reference="nvidia/cuda:12.9.1-cudnn-devel-ubuntu24.04")
    assert base["torch-wheel"].parents["BASE_IMAGE"] == nccl["nccl-builder"].parents["BASE_IMAGE"] == devel


@every(
    "platform, march, why",
    [
        (
            "linux/arm64",
            "haswell",
            "is no Arm architecture, which gcc's -march takes on linux/arm64; allowed: armv8.2-a, armv9-a",
        ),
        (
            "linux/arm64",
            "neoverse-v2",
            "is no Arm architecture, which gcc's -march takes on linux/arm64; allowed: armv8.2-a, armv9-a",
        ),
        (
            "linux/amd64",
            "armv8.2-a",
            "is a processor of linux/arm64, and the stack is for linux/amd64; allowed: haswell, x86-64-v3, ",
        ),
        (
            "linux/amd64",
            "neoverse-v2",
            "is a processor of linux/arm64, and the stack is for linux/amd64; allowed: haswell, x86-64-v3, ",
        ),
    ],
)
def test_processor_of_another_machine_is_refused(platform: str, march: str, why: str) -> None:
    refused = refusal("base", **{**TODAY, "torch": {"version": "2.15.0"}}, platform=platform, march=march)
    assert f"slipway:march: '{march}' {why}" in refused


@every("march", ["haswell", "armv8.2-a"])
def test_processor_for_several_platforms_is_refused(march: str) -> None:
    line = f"slipway:march: '{march}' cannot be set for several platforms, as no name is of both; allowed: no march, "
    today: dict[str, Any] = {**TODAY, "torch": {"version": "2.15.0"}, "platforms": ["linux/amd64", "linux/arm64"]}
    assert line in refusal("base", **today, march=march)
    assert load("base", **today).processor == "haswell"


def test_switches_are_an_argument_of_torch_alone() -> None:
    built = specs("base", cmake={"USE_MKLDNN": False, "CMAKE_CXX_FLAGS": "-O3 -g", "BUILD_BINARY": 1})
    assert {name: spec.args["TORCH_SWITCHES"] for name, spec in built.items() if "TORCH_SWITCHES" in spec.args} == {
        "torch-wheel": "BUILD_BINARY=1\nCMAKE_CXX_FLAGS=-O3 -g\nUSE_MKLDNN=false"
    }


def test_switches_move_torch_and_what_stands_on_it_alone() -> None:
    def fingerprints(**more: Any) -> dict[str, str]:
        return checkout_fingerprints(specs("nccl", **more).values())

    without, empty, off = fingerprints(), fingerprints(cmake={}), fingerprints(cmake={"USE_MKLDNN": 0})
    assert without == empty
    moved = {name for name in without if without[name] != off[name]}
    assert moved == {name for name in without if name.endswith("-wheel")} | {"torch", "torch-extras"}


@every(
    "cmake, message",
    [
        ({"USE_CUDA": 0}, "the variable USE_CUDA cannot be set here: it is set by slipway:cuda"),
        ({"MAX_JOBS": 4}, "the variable MAX_JOBS cannot be set here: it is set by slipway:maxJobs"),
        ({"BUILD_TEST": 1}, "it is set by the recipe, as no image has PyTorch's tests"),
        ({"USE_NIGHTLY": 1}, "the variable USE_NIGHTLY cannot be set here: it installs a wheel instead of compiling"),
        ({"BUILD_LIBTORCHLESS": 1}, "BUILD_LIBTORCHLESS cannot be set here: it builds torch without libtorch"),
        ({"CMAKE_ARGS": "-DUSE_CUDA=0"}, "it can set what a key or the recipe sets; give each variable by its name"),
        ({"USE_NATIVE_ARCH": 1}, "it compiles for the builder's own processor, -march=native"),
        ({"USE_NINJA": 0}, "it chooses what runs the compilers, and is gone from 2.14 on"),
        ({"FLASH_ATTENTION_MAX_JOBS": 2}, "it limits compilers, as slipway:maxJobs does, and changes no wheel"),
        ({"USE_PRIORITIZED_TEXT_FOR_LD": 1}, "it is set by slipway:platform, on for arm64 alone"),
        (
            {"USE_MPI": 1},
            "the variable USE_MPI cannot be '1' in flavor base, whose builder has no mpi: leave it out, or take flavor nccl",
        ),
        ({"USE_C10D_MPI": "ON"}, "the variable USE_C10D_MPI cannot be 'ON' in flavor base, whose builder has no mpi"),
        ({"USE_C10D_UCC": 0}, "the variable USE_C10D_UCC cannot be set here: it is set by slipway:flavor"),
        ({"MKLDNN": 0}, "the variable 'MKLDNN' does not reach PyTorch's build (did you mean 'USE_MKLDNN'?)"),
        ({"USE A": 0}, "the variable 'USE A' does not reach PyTorch's build; expected a name that begins with USE_,"),
        ({"USE_X": "$(id)"}, "the variable USE_X cannot be '$(id)': expected words of letters, digits and"),
        ({"USE_X": "1\nUSE_CUDA=0"}, "the variable USE_X cannot be '1\\nUSE_CUDA=0': expected words"),
        ({"USE_X": ""}, "the variable USE_X cannot be '': expected words"),
        (
            {"CMAKE_CXX_FLAGS": "-O2 -march=native"},
            "CMAKE_CXX_FLAGS cannot be '-O2 -march=native': -march=native compiles for the builder's own processor; name",
        ),
        ({"CMAKE_CXX_FLAGS": "-DX='y'"}, "the variable CMAKE_CXX_FLAGS cannot be '-DX='y'': expected words"),
    ],
)
def test_switch_that_cannot_be_set_is_refused(cmake: dict[str, Any], message: str) -> None:
    refused = refusal("base", **TODAY, cmake=cmake)
    assert refused.startswith("stack x: slipway:cmake: ")
    assert message in refused


def test_switches_are_refused_with_a_line_for_each() -> None:
    refused = refusal("base", **TODAY, cmake={"USE_CUDA": 0, "USE_MKLDNN": 0, "USE_MPI": 1, "USE_X": "$(id)"})
    assert refused == (
        "stack x: slipway:cmake: the variable USE_CUDA cannot be set here: it is set by slipway:cuda\n"
        "stack x: slipway:cmake: the variable USE_MPI cannot be '1' in flavor base, whose builder has no mpi: "
        "leave it out, or take flavor nccl\n"
        "stack x: slipway:cmake: the variable USE_X cannot be '$(id)': expected words of letters, digits and "
        "_ . / + = : , ; -, with one blank between them"
    )


def test_mpi_is_switched_where_its_builder_has_it() -> None:
    assert specs("nccl", cmake={"USE_MPI": 1})["torch-wheel"].args["TORCH_SWITCHES"] == "USE_MPI=1"
    assert specs("base", cmake={"USE_MPI": "off"})["torch-wheel"].args["TORCH_SWITCHES"] == "USE_MPI=off"


@every("script", ["settings", "compiler-cache", "recipes/torch"])
def test_variable_that_a_build_sets_is_no_switch(script: str) -> None:
    rules, text = table("torch_cmake"), (ROOT / CONTEXT / "wheels" / script).read_text()
    exports = re.findall(r"^ *(?:\[.*\] (?:\|\||&&) )?export (.*)", text, re.MULTILINE)
    names = {name for line in exports for name in re.findall(r"(?:^| )([A-Za-z_]+)(?==| |$)", line)}
    passed = {name for name in names if name.startswith(tuple(rules["prefixes"])) or name in rules["others"]}
    assert passed
    assert passed <= set(rules["set"])


WHEEL: dict[str, Any] = {"torch": {"version": "2.9.0", "source": "wheel", "audio": False}, "cudnn": None}


def test_switch_for_published_wheels_is_refused() -> None:
    message = refusal("base", **{**TODAY, "torch": {"version": "2.14.1", "source": "wheel"}}, cmake={"USE_MKLDNN": 0})
    assert message == (
        "stack x: slipway:cmake: 'USE_MKLDNN' cannot be set for published wheels, which are compiled already; "
        "allowed: torch.source: build, no cmake; rule: torch.source"
    )


@every(
    "values, warned",
    [
        ({"cudnn": None}, "cuDNN 9.10.2.21 may compute 3D convolutions in bfloat16 wrong"),
        ({"cudnn": "9.12.0.46"}, "cuDNN 9.12.0.46 may compute 3D convolutions in bfloat16 wrong"),
        ({"cudnn": "9.13.0.50"}, ""),
        ({"cudnn": "9.7.1.26"}, ""),
        ({"cuda": "13.2.0", "cudnn": None}, ""),
        ({**WHEEL, "cuda": "12.8.1"}, "torch 2.9.0: the cuDNN 9.10.2.21 of its wheel may compute"),
        ({**WHEEL, "cuda": "12.6.3"}, "torch 2.9.0: the cuDNN 9.10.2.21 of its wheel may compute"),
        ({**WHEEL, "cuda": "13.0.2"}, ""),
        (
            {**WHEEL, "cuda": "12.6.3", "torch": {**WHEEL["torch"], "version": "2.10.0"}},
            "",
        ),  # of which nothing is known
    ],
)
def test_cudnn_that_computes_wrong_is_warned_of(values: dict[str, Any], warned: str) -> None:
    warnings = [line for line in load("base", **{**CU129, **values}).warnings if "cuDNN" in line]
    assert [warned in line for line in warnings] == ([True] if warned else [])


def test_abi_is_of_compiler_or_of_published_wheel() -> None:
    assert load().abi == "1"
    assert load(torch={"version": "2.0.1", "source": "wheel"}, cuda="11.8.0").abi == "0"
    assert (
        load(torch={"version": "2.7.0", "source": "wheel"}, distro="ubuntu22.04", cuda="12.6.3", nccl="2.23.4-1").abi
        == "1"
    )


@every(
    "cuda, platform, abi",
    [("12.4.1", "linux/amd64", "abi0"), ("12.6.3", "linux/amd64", "abi1"), ("12.6.3", "linux/arm64", "abi1")],
)
def test_tag_of_published_torch_2_6_has_abi_of_wheel(cuda: str, platform: str, abi: str) -> None:
    values = {"torch": {"version": "2.6.0", "source": "wheel"}, "distro": "ubuntu22.04", "extras": NO_EXTRAS}
    built = specs("base", cuda=cuda, platform=platform, tagFields=["abi"], **values)
    assert built["torch"].suffix.render() == f"base-cuda{cuda}-torch2.6.0-vision0.21.0-audio2.6.0-{abi}"


@every(
    "flavor, component",
    [("base", "torch"), ("base", "apex"), ("nccl", "ncclTests"), ("universal", "text"), ("universal", "default")],
)
def test_max_jobs_of_component_true_or_null_is_refused(flavor: str, component: str) -> None:
    """Pulumi hands over what stands in a mapping as JSON, in which true is not text."""
    key = f"stack x: slipway:maxJobs.{component}:"
    for value, fragment in (
        (True, "'true': expected a number of compilers, such as 4"),
        (None, "has no value: give one"),
    ):
        with pytest.raises(SlipwayError) as caught:
            flavors.load({"flavor": flavor, "maxJobs": {component: value}}, "stack x")
        assert str(caught.value).startswith(f"{key} {fragment}")


@every("flavor", ["base", "nccl", "universal", "efa", "megatron"])
def test_max_jobs_true_or_null_is_refused(flavor: str) -> None:
    key = "maxJobs" if flavor in {"efa", "megatron"} else "maxJobs.default"
    for value, fragment in (
        (True, f"stack x: slipway:{key}: 'true': expected a number of compilers, such as 4"),
        (None, "stack x: slipway:maxJobs: has no value: give one, or leave the key out"),
    ):
        with pytest.raises(SlipwayError) as caught:
            flavors.load({"flavor": flavor, "maxJobs": value}, "stack x")
        assert str(caught.value) == fragment
    for jobs in (4, "4"):
        assert flavors.load({"flavor": flavor, "maxJobs": jobs}, "stack x")


def test_max_jobs_change_only_the_tuning() -> None:
    bounded = specs(maxJobs={"default": 4, "flashAttention": 1})
    assert bounded["torch-wheel"].tuning == {"MAX_JOBS": "4"}
    assert bounded["flash-attention-wheel"].tuning == {"MAX_JOBS": "1"}
    assert {bounded[f"{tool}-build"].tuning["MAX_JOBS"] for tool in ("hpcx", *TOOLS)} == {"4"}
    assert specs(maxJobs="3")["torch-wheel"].tuning == {"MAX_JOBS": "3"}
    assert checkout_fingerprints(bounded.values()) == checkout_fingerprints(specs().values())


@every("written", ["7.0 9.0+PTX", "7.0,9.0+PTX", "9.0+ptx;7.0", "70;90+PTX", "sm_70 Hopper", ["7.0", "9.0+PTX"]])
def test_arch_list_in_any_unambiguous_form_is_accepted(written: Any) -> None:
    assert load(archList=written).archs == "7.0 9.0+PTX"


@every(
    "values, processor",
    [({}, "haswell"), ({"platform": "linux/arm64"}, "armv8.2-a"), ({"march": "skylake-avx512"}, "skylake-avx512")],
)
def test_deepspeed_alone_is_compiled_for_processor(values: dict[str, str], processor: str) -> None:
    built = specs("base", **{**TODAY, "torch": {"version": "2.15.0"}, "extras": {}}, **values)
    assert {name: spec.args["MARCH"] for name, spec in built.items() if "MARCH" in spec.args} == {
        "deepspeed-wheel": processor
    }


def test_slim_base_leaves_the_compiler_out() -> None:
    assert {name for name, spec in specs("base", slim=True).items() if "SLIM" in spec.args} == {"torch", "torch-extras"}
    assert not [spec for spec in specs("base").values() if "SLIM" in spec.args]


def test_wheel_archs_follow_extra_and_arch_list() -> None:
    values: dict[str, Any] = {**TODAY, "torch": {"version": "2.15.0"}, "archList": "7.5 8.0 8.9 9.0a 10.3 12.0+PTX"}
    values |= {"extras": {"flashAttention": "2.8.3"}, "flashAttention3": "a" * 40, "transformerEngine": "2.17.1"}
    built = specs("base", **values)
    archs = {name: spec.args["ARCH_LIST"] for name, spec in built.items() if "ARCH_LIST" in spec.args}
    everything = "7.5 8.0 8.9 9.0a 10.3 12.0+PTX"
    assert archs == {
        **dict.fromkeys(("torch-wheel", "vision-wheel", "audio-wheel", "torch"), everything),
        **dict.fromkeys(("deepspeed-wheel", "apex-wheel"), everything),
        "flash-attention-wheel": "8.0 9.0 10.0 12.0",
        "flash-attention3-wheel": "9.0",
        "transformer-engine-wheel": "8.0 8.9 9.0a 10.3 12.0",
    }


def test_extra_for_another_flavor_is_refused() -> None:
    with pytest.raises(SlipwayError) as error:
        flavors.load({"flavor": "base", "extras": {"deepep": "567632d"}}, "x")
    assert str(error.value).startswith(
        "x: slipway:extras.deepep: '567632d' is not for the flavor base; allowed: flavor nccl; rule: its kernels between nodes"
    )


def test_extra_compiled_where_it_runs_has_no_archs() -> None:
    extras = {**NO_EXTRAS, "flashAttention4": "4.0.0.beta27"}
    built = specs("base", **{**TODAY, "torch": {"version": "2.15.0"}, "archList": "8.9 9.0", "extras": extras})
    assert built["flash-attention4-wheel"].args["ARCH_LIST"] == ""
    compiled = built["torch-extras"].compiled
    assert compiled == dict.fromkeys(("torch", "torchvision", "torchaudio"), "8.9 9.0")


def test_nccl_without_known_package_warns_unless_in_parent() -> None:
    line = "slipway:nccl: NVIDIA's apt archive may not have 2.32.3-1+cuda13.2; the build fails without it"
    newer = {**TODAY, "torch": {"version": "2.12.0"}, "nccl": "2.32.3-1"}
    assert load(**newer).warnings == [line]
    assert load(**newer, ncclTests="ghcr.io/acme/nccl-tests:1").warnings == []
    assert load(nccl="2.30.4-1", ncclTests="ghcr.io/acme/nccl-tests:1").warnings == []
    assert load().warnings == load("base").warnings == []


def test_arch_list_default_follows_cuda() -> None:
    assert load().archs == "8.0 8.9 9.0+PTX"
    assert flavors.load({"flavor": "base"}, "x").model_dump()["arch_list"] is None
    assert "12.0+PTX" in load(**{**TODAY, "cuda": "12.9.1"}, torch={"version": "2.15.0"}).archs


@every(
    "values, line",
    [
        (
            {"cuda": "12.1"},
            "slipway:cuda: '12.1' is not a CUDA version of nvidia/cuda (did you mean '12.1.1'?); allowed:",
        ),
        ({"cuda": "12.4.0"}, "slipway:cuda: '12.4.0' has no nvidia/cuda image with cuDNN; allowed: "),
        (
            {"cudnn": "9"},
            "slipway:cudnn: '9' is not the cuDNN of any nvidia/cuda image of CUDA 12.1.1 on ubuntu20.04; al",
        ),
        (
            {"torch": {"version": "2.0.1-rc1", "vision": "0.15.99", "audio": False}},
            "slipway:torch.vision: '0.15.99' does not go with torch 2.0.1-rc1; allowed: 0.15.2; rule: ",
        ),
        (
            {"torch": {"version": "2.0.1-rc1", "vision": "0.15", "audio": False}},
            "slipway:torch.vision: '0.15' does not go with torch 2.0.1-rc1; allowed: 0.15.2; rule: ",
        ),
        (
            {"torch": {"version": "2.0.1rc1"}},
            "slipway:torch.version: '2.0.1rc1': expected a release as PyTorch's tags name it, without the v: write 2.0.1-rc1",
        ),
        (
            {"torch": {"version": "2.0.1-rc1", "vision": "0.15.2+cu118"}},
            "slipway:torch.vision: '0.15.2+cu118': expected a release as PyTorch's tags name it, without the v: write 0.15.2",
        ),
        (
            {"torch": {"version": "2.0.1", "audio": "2.0.2rc3+cu118"}},
            "slipway:torch.audio: '2.0.2rc3+cu118': expected a release as PyTorch's tags name it, without the v: write 2.0.2-rc3",
        ),
        ({"distro": "ubuntu24.04"}, "slipway:distro: 'ubuntu24.04' has no nvidia/cuda image of CUDA 12.1.1"),
        (
            {"distro": "ubunto20.04"},
            "slipway:distro: 'ubunto20.04' is not a known distribution (did you mean 'ubuntu20.04",
        ),
        (
            {"distro": "debian12"},
            "slipway:distro: 'debian12' has no nvidia/cuda image of CUDA 12.1.1; allowed: ubuntu20.04, ubuntu22.04; rule: ",
        ),
        ({"distro": "ubi8"}, "slipway:distro: 'ubi8' has no apt; allowed: ubuntu20.04, ubuntu22.04; rule: "),
        ({"nccl": "2.18.3"}, "slipway:nccl: '2.18.3' is not a known NCCL release (did you mean '2.18.3-1'?)"),
        ({"nccl": "2.15.5-1"}, "slipway:nccl: '2.15.5-1' is too old for CUDA 12.1.1; allowed: "),
        (
            {"nccl": "2.30.4-1"},
            "slipway:nccl: '2.30.4-1' has no package for CUDA 12.1 in NVIDIA's apt archive; allowed: 2.17.1-1, 2.18.1-1, 2.18",
        ),
        (
            {"torch": {"version": "2.0.1", "vision": "0.16.0"}},
            "slipway:torch.vision: '0.16.0' does not go with torch 2.0",
        ),
        ({"torch": {"version": "1.13.1"}}, "slipway:cuda: '12.1.1' is newer than torch 1.13.1 builds with; allowed: "),
        (
            {"torch": {"version": "2.0.1", "source": "wheel"}},
            "slipway:cuda: '12.1.1' has no official wheel of torch 2.0.1; allowed: 11.7, 11.8; rule: ",
        ),
        (
            {"torch": {"version": "2.0.1", "source": "wheel"}, "cuda": "11.8.0", "platform": "linux/arm64"},
            "slipway:torch.version: '2.0.1' has no official arm64 wheel with CUDA; allowed: 2.4.0 and newer, source: build; ",
        ),
        (
            {"torch": {"version": "2.4.1"}, "cuda": "12.9.1", "distro": "ubuntu22.04"},
            "slipway:cuda: '12.9.1' is newer than torch 2.4.1 builds with; allowed: 11.x, 12.x before 12.9; rule: ",
        ),
        (
            {**TODAY, "torch": {"version": "2.15.0"}, "transformerEngine": "1.0"},
            "slipway:transformerEngine: '1.0' does not build with cuda 13.2; allowed: 1.11 and newer; rule: ",
        ),
        (
            {"archList": "9.0a", "cuda": "11.8.0"},
            "slipway:archList: '9.0a' cannot be compiled by CUDA 11.8.0; allowed: 3.5, ",
        ),
        ({"torch": {"version": "2.0.1", "source": "src"}}, "slipway:torch.source: 'src': "),
        (
            {"torch": {"source": "wheel", "commits": {"torch": "a" * 40}}},
            "slipway:torch: `commits` requires `source: build`",
        ),
        ({"torch": {"commits": {"torch": "main"}}}, "slipway:torch.commits.torch: 'main': expected a commit: 7 to 40"),
        (
            {"torch": {"version": "2.15.0"}, "cuda": "12.9.1"},
            "slipway:distro: 'ubuntu20.04' has Python 3.8, which torch 2.15.0 does not support; allowed: Python 3.11, ",
        ),
        ({"python": "3.11"}, "slipway:python: '3.11' is not a Python of ubuntu20.04; allowed: 3.8, 3.9; rule: "),
        (
            {"archList": "10.0", "cuda": "11.8.0"},
            "slipway:archList: '10.0' cannot be compiled by CUDA 11.8.0; allowed: ",
        ),
        (
            {"archList": "8.0", "cuda": "10.2"},
            "slipway:archList: '8.0' cannot be compiled by CUDA 10.2; allowed: 3.0, 3.",
        ),
        (
            {"archList": "8.0 / 9.0"},
            "slipway:archList: '/' is not a compute capability; allowed: capabilities such as ",
        ),
        (
            {"archList": "Ampere"},
            "slipway:archList: 'Ampere' stands for more than one compute capability; allowed: 8.0, ",
        ),
        ({"archList": ""}, "slipway:archList: '' names no compute capability; allowed: "),
        (
            {"extras": {"apex": "master"}},
            "slipway:extras.apex: 'master': expected a commit of 7 to 40 digits 0-9 a-f, or false: its builds do not name",
        ),
        (
            {"march": "native"},
            "slipway:march: 'native': expected a processor such as haswell or armv8.2-a; native would be",
        ),
        ({"march": "-O3"}, "slipway:march: '-O3': expected a processor such as haswell"),
        ({"extras": {"apex": "25.09"}}, "slipway:extras.apex: '25.09': expected a commit of 7 to 40 digits"),
        ({"flashAttention3": "2.8.3"}, "slipway:flashAttention3: '2.8.3': expected a commit of 7 to 40 digits"),
        (
            {"extras": {"deepspeed": "main"}},
            "slipway:extras.deepspeed: 'main': expected a version such as 0.9.4, a commit",
        ),
        ({"extras": {"apex": None}}, "slipway:extras.apex: has no value: give one, or leave the key out"),
        ({"extras": {"apex": True}}, "slipway:extras.apex: 'true': expected a version, or false"),
        ({"extras": {"deepsped": "1"}}, "slipway:extras: unknown key 'deepsped' (did you mean 'deepspeed'?)"),
        (
            {"extras": {**SEED["extras"], "xformers": "0.0.35"}},
            "slipway:extras.xformers: '0.0.35' does not go with torch 2.0.1; allowed: ",
        ),
        (
            {"extras": {"flashAttention": "2.8.3"}},
            "slipway:extras.flashAttention: '2.8.3' does not build with python 3.8",
        ),
        (
            {"flashAttention3": "a" * 40},
            f"slipway:flashAttention3: '{'a' * 40}' does not build with cuda 12.1; allowed: cuda 12.3 and newer; rule: ",
        ),
        (
            {"flashAttention3": "a" * 7, "archList": "8.0", **CUDNN9},
            "slipway:flashAttention3: 'aaaaaaa' has no code for any of the compute capabilities 8.0; allowed: 9.0; rule: ",
        ),
        (
            {"extras": {"flashAttention4": "4.0.0b27"}},
            "slipway:extras.flashAttention4: '4.0.0b27': expected a version such as 4.0.0.beta27, a commit of 7",
        ),
        (
            {"extras": {"flashAttention4": "3.0.0"}},
            "slipway:extras.flashAttention4: '3.0.0': expected a version such as 4.0.0.beta27, a commit of 7",
        ),
        (
            {"extras": {"deepspeed": "0.19.7b1"}},
            "slipway:extras.deepspeed: '0.19.7b1': expected a version such as 0.9.4, a commit of 7",
        ),
        (
            {"extras": {"deepspeed": "0.19.7.beta1"}},
            "slipway:extras.deepspeed: '0.19.7.beta1': expected a version such as 0.9.4, a commit of 7",
        ),
        (
            {"extras": {**NO_EXTRAS, "flashAttention4": "abcdef1"}},
            "slipway:extras.flashAttention4: 'abcdef1' does not build with cuda 12.1; allowed: cuda 12.9 and newer; rule: flash_",
        ),
        (
            {"extras": {**NO_EXTRAS, "flashAttention4": "4.0.0.beta27"}},
            "slipway:extras.flashAttention4: '4.0.0.beta27' does not build with cuda 12.1; allowed: cuda 12.9 and newer; ",
        ),
        (
            {
                **TODAY,
                "torch": {"version": "2.15.0"},
                "extras": {**NO_EXTRAS, "flashAttention4": "4.0.0.beta4"},
                "archList": "8.0 12.0",
            },
            "slipway:extras.flashAttention4: '4.0.0.beta4' has no code for any of the compute capabilities 8.0 12.0; allow",
        ),
        (
            {"extras": {**NO_EXTRAS, "deepep": "567632d"}},
            "slipway:extras.deepep: '567632d' does not build with cuda 12.1; allowed: cuda 12.6 and newer; rule: README.md",
        ),
        (
            {**CUDNN9, "extras": {**NO_EXTRAS, "deepep": "567632d"}},
            "slipway:extras.deepep: '567632d' needs NVSHMEM 3.3.9, which torch 2.4.0 with cuda 12.6 has not; allowed: torch 2.9.0 and newer; rule: READ",
        ),
        (
            {
                **TODAY,
                "torch": {"version": "2.15.0"},
                "extras": {**NO_EXTRAS, "deepep": "567632d"},
                "archList": "8.0 12.0",
            },
            "slipway:extras.deepep: '567632d' has no code for any of the compute capabilities 8.0 12.0; allowed: 9.0, 10.0",
        ),
        (
            {"extras": {"deepep": "1.2.1"}},
            "slipway:extras.deepep: '1.2.1': expected a commit of 7 to 40 digits 0-9 a-f, or false: its builds are 1.2.1 from",
        ),
        (
            {"archList": "7.0"},
            "slipway:extras.flashAttention: '2.0.2' has no code for any of the compute capabilities 7.0; allowed: 8.0, 9",
        ),
        (
            {"transformerEngine": "1.0", "archList": "7.0 7.5+PTX", "extras": NO_EXTRAS},
            "slipway:transformerEngine: '1.0' has no code for any of the compute capabilities 7.0 7.5+PTX; allowed: 8.0 and",
        ),
        (
            {"cuda": "12.6.3"},
            "slipway:cuda: '12.6.3' comes with cuDNN 9.5.1.17, too new to build torch 2.0.1 with; allowed: cuDNN 8.0 an",
        ),
        (
            {"cuda": "11.1.1", "torch": {"version": "2.3.0"}, "nccl": "2.8.4-1", "extras": NO_EXTRAS},
            "slipway:cuda: '11.1.1' comes with cuDNN 8.0.5.39, too old to build torch 2.3.0 with; allowed: cuDNN 8.1 an",
        ),
        (
            {
                "cuda": "10.2",
                "cudnn": "7",
                "distro": "ubuntu18.04",
                "python": "3.8",
                "torch": {"version": "2.0.1"},
                "extras": NO_EXTRAS,
                "nccl": "2.15.5-1",
            },
            "slipway:cuda: '10.2' is too old to build torch 2.0.1 with; allowed: 11.0 and newer; rule: Caffe2/public/cuda",
        ),
        (
            {"torch": {"version": "2.2.2"}, "cuda": "12.0.1", "distro": "ubuntu18.04", "python": "3.8"},
            "slipway:distro: 'ubuntu18.04' has gcc 7, and torch 2.2.2 needs gcc 9 or newer; allowed: ubuntu20.04, ",
        ),
        (
            {
                "cuda": "11.7.1",
                "distro": "ubuntu22.04",
                "python": "3.11",
                "nccl": "2.13.4-1",
                "torch": {"version": "1.13.1", "source": "wheel"},
            },
            "slipway:python: '3.11' has no amd64 wheel of torchvision 0.14.1; allowed: 3.7, 3.8, 3.9, 3.10; rule: ",
        ),
        (
            {"torch": {"version": "2.15.0", "source": "wheel"}, **TODAY},
            "slipway:torch.audio: '2.11.0' has no wheel for CUDA 13.2; allowed: false; rule: stacks/versions/torch_amen",
        ),
        (
            {"torch": {"version": "2.0.0-rc1", "vision": "0.15.0-rc1", "audio": False, "source": "wheel"}},
            "slipway:torch: version '2.0.0-rc1': there are no wheels of release candidates; use 2.0.0",
        ),
        (
            {"ncclTests": "ghcr.io/acme/nccl-tests:1", "hpcx": "v1/hpcx-v1.tbz"},
            "slipway:hpcx: 'v1/hpcx-v1.tbz': hpcx is for the stack's own nccl-tests; the image in ncclTests has its HPC-X already",
        ),
        (
            {**CUDNN9, "extras": NO_EXTRAS, "transformerEngine": "2.8", "flashAttention3": "a" * 40},
            "slipway:transformerEngine: '2.8' cannot be imported beside FlashAttention 3; allowed: 2.15 and newer, flash",
        ),
        (
            {"transformerEngine": "2.8"},
            "slipway:transformerEngine: '2.8' does not build with cudnn 8.9.0.131; allowed: cudnn 9.3 and newer; rule: ",
        ),
        (
            {"ncclTests": "ghcr.io/acme/nccl-tests"},
            "slipway:ncclTests: 'ghcr.io/acme/nccl-tests': expected an image refe",
        ),
        ({"hpcx": "../x.tbz"}, "slipway:hpcx: '../x.tbz': expected a path ending in .tbz"),
        (
            {"distro": "ubuntu18.04", "cuda": "11.8.0", "torch": {"version": "1.13.1"}, "python": "3.8"},
            "slipway:distro: 'ubuntu18.04' has no known HPC-X for CUDA 11.8.0; allowed: ubuntu20.04, ",
        ),
        (
            {"tagSuffix": "torch2"},
            "slipway:tagSuffix: 'torch2': looks like one of the tag's fields",
        ),
        (
            {"tagSuffix": "a-b"},
            "slipway:tagSuffix: 'a-b': expected letters, digits, '_' and '.', starting with a letter",
        ),
        ({"tagFields": ["python"]}, "slipway:tagFields.0: 'python': "),
        ({"maxJobs": 0}, "slipway:maxJobs.default: '0': "),
        ({"maxJobs": {"torhc": 1}}, "slipway:maxJobs: unknown key 'torhc' (did you mean 'torch'?)"),
        ({"compilerCache": "http://u:p@cache"}, "slipway:compilerCache: 'http://***@cache': an address must not carry"),
    ],
)
def test_config_mistake_fails_with_one_line_that_names_it(values: dict[str, Any], line: str) -> None:
    message = refusal(**values)
    assert message.startswith(f"stack x: {line}")
    assert "\n" not in message


@every("source, version", [("build", "2.15.0"), ("wheel", "2.14.1")])
def test_torch_by_default_is_one_that_the_source_has(source: str, version: str) -> None:
    config = flavors.load({"flavor": "base", "cuda": "12.6.3", "torch": {"source": source}, "extras": {}}, "stack x")
    assert isinstance(config, FamilyConfig)
    assert config.torch.version == version
