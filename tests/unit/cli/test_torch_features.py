"""The table of torch's features: written by a program that stands in for a Python with torch, and read by stacks."""

from __future__ import annotations

import re
from pathlib import Path

from maintenance.refresh import torch_features
from stacks import plan
from stacks.config.stack_file import read_stack
from stacks.versions.tables import table
from tests.helpers.every import every

PROBE = torch_features.PROBE.read_text()


def python(folder: Path, script: str) -> str:
    """Write a program in place of Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def features(stack: str, image: str = "torch", **more: object) -> str:
    """Return what the checks of an image of a stack are asked for."""
    images = {image.spec.name: image for image in plan.make(stack, {**read_stack(stack), **more}).images}
    return images[image].checks_args.get("FEATURES", "")


def test_table_names_only_what_the_check_tries() -> None:
    names = set(re.findall(r'^    "([a-z0-9-]+)": ', PROBE, re.MULTILINE))
    for release, row in table("torch_features").items():
        assert {*row["gpu"], *row["cpu"]} <= names, release


@every("stack", ["local", "base-cu132", "nccl-cu132", "base-cu129"])
def test_torch_is_asked_for_all_that_the_wheel_has(stack: str) -> None:
    read = table("torch_features")["2.14.1"]
    assert features(stack).split() == [*read["gpu"], *read["cpu"]]


def test_features_move_no_tag() -> None:
    image = plan.make("local", read_stack("local")).images[-1]
    assert "FEATURES" in image.checks_args
    assert "FEATURES" not in image.content.arguments


def test_magma_of_cuda_without_archive_is_left_out() -> None:
    words = features("base-cu132", cuda="13.1.1").split()
    assert words
    assert "magma" not in words


def test_magma_of_universal_is_left_out_by_its_key() -> None:
    keys = {"torch": {"version": "2.14.1"}, "cuda": "13.2.1", "distro": "ubuntu24.04", "python": "3.12"}
    assert "magma" in features("universal-cu132", "train", **keys).split()
    assert "magma" not in features("universal-cu132", "train", **keys, magma=False).split()


def test_universal_for_cpu_needs_nothing_of_a_gpu() -> None:
    keys = {"torch": {"version": "2.14.1"}, "cuda": False, "distro": "ubuntu24.04", "python": "3.12"}
    assert features("universal-cu132", "train", **keys).split() == table("torch_features")["2.14.1"]["cpu"]


def test_nothing_is_asked_of_a_wheel_that_was_not_read() -> None:
    assert features("base-cu132", cuda="12.6.3", torch={"version": "2.14.1", "source": "wheel"}, extras={}) == ""
    assert features("base-cu121") == ""


def test_switched_off_features_are_asked_to_be_off() -> None:
    words = features("base-cu132", cmake={"USE_MKLDNN": 0, "USE_GLOO": True}).split()
    assert words[-2:] == ["-mkldnn", "-onednn"]
    assert {"gloo", "mkl"} <= {*words}
    assert not {"mkldnn", "onednn"} & {*words}


def test_switched_on_feature_that_no_wheel_has_is_asked_for() -> None:
    assert "+mpi" not in features("nccl-cu132").split()
    words = features("nccl-cu132", cmake={"USE_MPI": 1, "USE_ITT": 1}).split()
    assert [word for word in words if word.startswith("+")] == ["+mpi"]


def test_feature_of_two_switches_is_off_if_one_is() -> None:
    words = features("nccl-cu132", cmake={"USE_C10D_MPI": 1, "USE_MPI": 0}).split()
    assert words[-1] == "-mpi"
    assert "+mpi" not in words


def test_switched_on_feature_is_asked_for_on_arm64() -> None:
    switches = {"USE_MPI": 1, "USE_ITT": 1}
    assert features("nccl-cu132", platform="linux/arm64", extras={}, cmake=switches) == "+mpi"


def test_switched_off_feature_of_unread_wheel_is_asked_to_be_off() -> None:
    assert features("base-cu121", cmake={"USE_KINETO": "OFF", "USE_MPI": 0}) == "-kineto -cupti -mpi"


def test_nccl_that_is_switched_off_in_torch_is_asked_to_be_off() -> None:
    words = features("nccl-cu132", cmake={"USE_C10D_NCCL": 0}).split()
    assert words[-1] == "-nccl"
    assert "nccl" not in words


def test_no_wheel_has_what_one_flavor_alone_builds() -> None:
    rows = table("torch_cmake")["feature"].values()
    alone = {feature for row in rows if "flavors" in row for feature in row["features"]}
    assert alone == {"mpi"}
    for release, row in table("torch_features").items():
        assert alone.isdisjoint([*row["gpu"], *row["cpu"]]), release


def test_switch_of_universal_for_cpu_adds_nothing_of_a_gpu() -> None:
    keys = {"torch": {"version": "2.14.1"}, "cuda": False, "distro": "ubuntu24.04", "python": "3.12"}
    words = features("universal-cu132", "train", **keys, cmake={"USE_KINETO": 1, "USE_ITT": "no"}).split()
    assert "kineto" in words
    assert "cupti" not in words
    assert words[-1] == "-itt"


def test_switches_name_features_that_the_check_tries() -> None:
    names = set(re.findall(r'^    "([a-z0-9-]+)": ', PROBE, re.MULTILINE))
    assert {feature for row in table("torch_cmake")["feature"].values() for feature in row["features"]} <= names
