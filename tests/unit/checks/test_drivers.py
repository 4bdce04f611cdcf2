"""The driver of runners: which ones run a stack's images."""

from __future__ import annotations

from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.image.gpu.node_labels import GPU
from containers.image.gpu.release_order import line, order
from stacks.plan import specs
from stacks.versions.cuda_toolkit import DRIVER_LABEL, cuda_versions, line_driver, older_branches
from stacks.versions.nodes import node, node_names
from stacks.versions.tables import table
from tests.helpers.every import every

GITHUB = {"url": "https://github.com/acme", "secret": "github"}


def refusal(stack: dict[str, Any], **runners: Any) -> str:
    """Return what is wrong with a stack and its runners on Kubernetes; empty if nothing is."""
    values = {"kind": "kubernetes", "profile": "eks-p5", "github": GITHUB, **runners}
    try:
        specs({**stack, "runners": values}, "stack x")
    except SlipwayError as error:
        return str(error)
    return ""


@every(
    "stack, driver, needed",
    [
        ({"flavor": "local"}, "580", ""),
        ({"flavor": "local"}, "595.45.04", ""),
        ({"flavor": "local"}, "575.57.08", "torch with CUDA 13.0, which needs 580 or newer"),
        # NVIDIA's own list has no 545: its container toolkit refuses to start such an image there.
        ({"flavor": "base", "cuda": "12.9.1"}, "550.90.07", ""),
        (
            {"flavor": "base", "cuda": "12.9.1"},
            "545.23.08",
            "torch and torch-extras with CUDA 12.9.1, which needs 575.51.03 or newer, or a driver of one of the branches 535,",
        ),
        # No list of that line was read: what may start is accepted.
        ({"flavor": "base"}, "545.23.08", ""),
        (
            {"flavor": "base"},
            "525.60.13",
            "torch and torch-extras with CUDA 13.2.1, which needs 595.45.04 or newer, or a driver of one of the branches 535 to",
        ),
        ({"flavor": "efa"}, "470.57.02", "efa with CUDA 13.2.0, which needs 595.45.04 or newer"),
        ({"flavor": "universal", "cuda": False}, "470.57.02", ""),
    ],
)
def test_driver_of_runners_runs_the_images_or_is_refused(stack: dict[str, Any], driver: str, needed: str) -> None:
    message = refusal(stack, driver=driver)
    if needed:
        assert message.startswith(f"stack x: slipway:runners.driver: driver {driver} does not run {needed}")
    else:
        assert message == ""


def test_driver_of_runners_is_that_of_key_label_or_profile() -> None:
    label = {"nvidia.com/cuda.driver.major": "570"}
    exact = {"nvidia.com/cuda.driver-version.full": "575.57.08"}
    key = "nvidia.com/cuda.driver-version.full"
    assert refusal({"flavor": "local"}) == ""  # of the profile
    assert "nodeSelector.nvidia.com/cuda.driver.major: driver 570" in refusal({"flavor": "local"}, nodeSelector=label)
    assert f"nodeSelector.{key}: driver 575.57.08" in refusal({"flavor": "local"}, nodeSelector=label | exact)
    assert refusal({"flavor": "local"}, nodeSelector=label, driver="580") == ""
    assert refusal({"flavor": "local"}, nodeSelector=label, gpus=0) == ""


@every("driver", ["latest", "58", "v580", "580.159.04.1", "580.", ""])
def test_driver_of_runners_that_is_none_is_refused(driver: str) -> None:
    expected = f"slipway:runners.driver: '{driver}': expected a driver of NVIDIA's such as 570.172.08, or 570"
    assert expected in refusal({"flavor": "local"}, driver=driver)


def test_ec2_driver_is_compared_where_the_stack_gives_it() -> None:
    runners = {
        "kind": "ec2", "region": "eu-west-1", "account": "123456789012", "labels": ["gpu"],
        "instanceTypes": ["g6.2xlarge"],
        "github": {
            "url": "https://github.com/acme",
            "secret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:a-AbCdEf",
        },
    }  # fmt: skip
    specs({"flavor": "local", "runners": runners}, "stack x")
    with pytest.raises(SlipwayError, match="slipway:runners.driver: driver 570 does not run torch with CUDA 13.0"):
        specs({"flavor": "local", "runners": {**runners, "driver": "570"}}, "stack x")


def test_profiles_with_gpus_alone_have_a_driver() -> None:
    assert {name for name in node_names() if node(name).driver} == {n for n in node_names() if node(n).limits.get(GPU)}


def test_older_branches_are_before_the_driver_of_their_line() -> None:
    assert set(table("gpus")["branches"]) <= {line(version) for version in cuda_versions()}
    for release_line in {line(version) for version in cuda_versions()}:
        branches, own = list(older_branches(release_line)), line_driver(release_line)
        assert own
        assert branches == sorted(branches)
        assert branches
        assert branches[-1] <= order(own)[0], release_line


@every(
    "stack, image, least",
    [
        ({"flavor": "local"}, "torch", "580"),
        ({"flavor": "local", "torch": {"version": "2.6.0"}}, "torch", "525.60.13"),
        (
            {"flavor": "base", "cuda": "11.8.0", "torch": {"version": "2.0.1"}, "distro": "ubuntu22.04"},
            "torch",
            "450.80.02",
        ),
        ({"flavor": "efa"}, "efa", "580"),
        ({"flavor": "universal", "cuda": False}, "train", None),
        ({"flavor": "local", "torch": {"version": "2.6.0"}, "platform": "linux/arm64"}, "torch", None),
    ],
)
def test_image_is_labelled_with_the_driver_of_its_cuda(stack: dict[str, Any], image: str, least: str | None) -> None:
    by_name = {spec.name: spec for spec in specs(stack, "stack x")[1]}
    assert by_name[image].labels.get(DRIVER_LABEL) == least
    assert all(DRIVER_LABEL not in spec.labels for spec in by_name.values() if spec.product)


def test_torch_image_requires_a_driver_of_its_cuda() -> None:
    def required(stack: dict[str, Any]) -> str:
        return next(spec.args["REQUIRE_CUDA"] for spec in specs(stack, "stack x")[1] if spec.name == "torch")

    assert required({"flavor": "local"}) == "cuda>=13.0 driver>=580"
    assert required({"flavor": "base", "cuda": "12.9.1"}) == "cuda>=12.9 driver>=525"
    assert required({"flavor": "local", "torch": {"version": "2.6.0"}, "platform": "linux/arm64"}) == ""
