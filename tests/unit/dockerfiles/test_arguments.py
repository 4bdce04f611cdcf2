"""What the flavors give and what the Dockerfiles take are the same arguments."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import flavors, graph, plan
from stacks.config.stack_file import stack_names
from stacks.identity.content import CHECKS
from stacks.spec import PRODUCT_ARG, ImageSpec
from tests.helpers import dockerfile_stages as dockerfile
from tests.helpers.every import every

LOCAL: dict[str, dict[str, Any]] = {
    "packages": {"packages": {"pip": ["einops"], "apt": ["htop"]}},
    "everything off": {"torch": {"audio": False}},
}
FAMILY: dict[str, dict[str, Any]] = {
    "everything on": {
        "transformerEngine": "2.17.1",
        "flashAttention3": "15270e6",
        "extras": {"xformers": "0.0.35", "flashAttention4": "4.0.0.beta27"},
        "maxJobs": 2,
        "compilerCache": "http://cache.example/ccache",
    },
    "everything off": {
        "extras": {"deepspeed": False, "flashAttention": False, "apex": False},
        "torch": {"audio": False},
    },
    "a cuDNN": {"cuda": "12.9.1", "cudnn": "9.26.0.51"},
    "own flags": {"cmake": {"USE_MKLDNN": 0, "CMAKE_CXX_FLAGS": "-O3 -g"}},
    "published wheels": {"torch": {"source": "wheel", "audio": False}},
    "a server": {
        "cuda": "13.2.1",
        "torch": {"version": "2.14.0", "vision": "0.29.0"},
        "serve": {"vllm": "0.33.0"},
    },
    "commits": {"torch": {"version": "2.15.0", "commits": {"torch": "a" * 40, "vision": "b" * 40, "audio": "c" * 40}}},
}
EFA: dict[str, dict[str, Any]] = {
    "everything on": {
        "efa": {"ofiNccl": "1.20.0"},
        "nccl": {"version": "2.32.3-1", "source": "build"},
        "openmpi": {"pmix": "4.2.6"},
        "extras": {"xformers": "0.0.35"},
        "maxJobs": 2,
    },
    "everything off": {"nccl": {"tests": False}},
}
MEGATRON: dict[str, dict[str, Any]] = {
    "everything on": {"transformerEngine": "2.12", "maxJobs": 2},
    "everything off": {"doca": False, "nodes": "aks-gb300", "platform": "linux/arm64"},
}
UNIVERSAL: dict[str, dict[str, Any]] = {
    "everything on": {
        "torch": {"version": "2.3.1", "commits": {"torch": "a" * 40, "text": "b" * 40}},
        "cuda": "12.1.1",
        "distro": "ubuntu22.04",
        "train": [
            {
                "uid": 1001,
                "apt": ["git"],
                "conda": ["tree"],
                "pip": ["seaborn"],
                "env": {f"VARIABLE_{number}": "1" for number in range(8)},
            }
        ],
        "cacheKey": "today",
        "maxJobs": 2,
        "compilerCache": "http://cache.example/ccache",
    },
    "own flags": {"cmake": {"USE_MKLDNN": 0}},
    "everything off": {"cuda": False, "torch": {"audio": False}},
}
ALL_OF_NCCL = {**FAMILY["everything on"], "extras": {**FAMILY["everything on"]["extras"], "deepep": "567632d"}}
NCCL = {
    **FAMILY,
    "everything on": ALL_OF_NCCL,
    "a published parent": {"ncclTests": "ghcr.io/acme/nccl-tests:1"},
}
BASE = {**FAMILY, "no compiler": {"slim": True}}
VARIED = {"local": LOCAL, "base": BASE, "nccl": NCCL, "efa": EFA, "megatron": MEGATRON, "universal": UNIVERSAL}


@functools.cache
def every_spec() -> dict[str, ImageSpec]:
    """Return the specs of every stack, and of flavors varied, by what they are of."""
    result = {}
    for stack in stack_names():
        for spec in plan.resolve(stack)[1]:
            result[f"{stack} {spec.name}"] = spec
    for flavor, variations in VARIED.items():
        for name, values in variations.items():
            for spec in graph.unlocked({"flavor": flavor, **values}, name).specs:
                result[f"{flavor} {name}: {spec.name}"] = spec
    return result


@every("name", every_spec)
def test_dockerfile_arguments_equal_those_of_its_images(name: str) -> None:
    spec = every_spec()[name]
    stages = dockerfile.of(spec)
    taken = {**stages.arguments(spec.target), **({} if spec.product else stages.arguments(CHECKS))}
    given = {*spec.args, *spec.parents, *spec.tuning, *spec.label_args, *([PRODUCT_ARG] if spec.product else [])}
    assert sorted(given - set(taken)) == [], "given but not taken"
    assert sorted(argument for argument, default in taken.items() if not default and argument not in given) == []


@every("name", every_spec)
def test_image_target_is_a_stage_of_its_dockerfile(name: str) -> None:
    spec = every_spec()[name]
    assert (spec.target or "") in dockerfile.of(spec).stages


@every(
    "flavor, key",
    [
        (name, field.alias)
        for name in ("base", "nccl", "universal")
        for field in type(flavors.load({"flavor": name}, name).max_jobs).model_fields.values()  # type: ignore[attr-defined]
    ],
)
def test_max_jobs_fields_belong_to_components(flavor: str, key: str) -> None:
    config = flavors.load({"flavor": flavor, **VARIED[flavor]["everything on"], "maxJobs": {key: 3}}, "x")
    assert [spec for spec in flavors.flavor(flavor).images(config) if spec.tuning.get("MAX_JOBS") == "3"], (
        f"nothing of {flavor} is compiled with slipway:maxJobs.{key}: write a version of {key} into 'everything on' of VARIED"
    )


@every("flavor, key", [("base", "text"), ("nccl", "text"), ("base", "ncclTests"), ("universal", "apex")])
def test_max_jobs_of_unknown_component_is_refused(flavor: str, key: str) -> None:
    with pytest.raises(SlipwayError) as error:
        flavors.load({"flavor": flavor, "maxJobs": {key: 3}}, "x")
    assert str(error.value).startswith(f"x: slipway:maxJobs: unknown key '{key}'")
