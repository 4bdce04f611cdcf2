"""``slipway:unverified``: a release that no table confirms is refused without it, and built with a warning with it."""

from __future__ import annotations

from typing import Any

from stacks import flavors, plan
from stacks.config.stack_file import ROOT
from stacks.identity import content
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec, Outside
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line

EFA = {"flavor": "efa", "ngc": "26.03"}
MEGATRON = {"flavor": "megatron", "ngc": "26.03"}
BASE = {"flavor": "base", "transformerEngine": False}
LAUNCHER = {"version": "25.01", "commit": "d" * 40, "nemo": "25.02"}

UNKNOWN: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({**EFA, "ngc": "25.07"}, "ngc: '25.07' is not a known release", "ngc '25.07' compiles for what CUDA 12.9.1 knows"),
    (
        {**EFA, "efa": {"installer": "1.52.0", "ofiNccl": "1.22.0"}},
        "efa.installer: '1.52.0' is not a known EFA installer",
        "efa.installer '1.52.0' follows the rules",
    ),
    ({**EFA, "nccl": "2.99.1-1"}, "nccl.version: '2.99.1-1' is not a known NCCL", "nccl.version '2.99.1-1' is fetched"),
    ({**MEGATRON, "doca": "2.9.4"}, "doca: '2.9.4' is not a known release of DOCA", "doca '2.9.4' is fetched for"),
    (
        {**MEGATRON, "launcher": LAUNCHER},
        "launcher.version: '25.01' is no release of the NeMo",
        "launcher.version '25.01' is taken at launcher.commit",
    ),
    (
        {**MEGATRON, "launcher": {"nemo": "25.02"}},
        "launcher.nemo: '25.02' is no known release of nvcr.io/nvidia/nemo",
        "launcher.nemo '25.02' is the image",
    ),
    ({**BASE, "cuda": "13.2.2"}, "cuda: '13.2.2' is not a CUDA version", "cuda '13.2.2' is taken to be as CUDA 13.2.1"),
    (
        {"flavor": "universal", "cuda": "13.2.2"},
        "cuda: '13.2.2' is not a CUDA version",
        "cuda '13.2.2' is taken to be as CUDA 13.2.1",
    ),
    (
        {**BASE, "cudnn": "9.99.0.1"},
        "cudnn: '9.99.0.1' is not a known cuDNN release for CUDA 13.2.1",
        "cudnn '9.99.0.1' is fetched by its number",
    ),
    (
        {**BASE, "cuda": "13.0.2", "torch": {"version": "2.15.0", "source": "wheel", "audio": False}},
        "cuda: '13.0.2' has no official wheel of torch 2.15.0",
        "cuda '13.0.2' has one in PyTorch's index",
    ),
    (
        {"flavor": "local", "torch": {"version": "2.15.7", "audio": False}},
        "torch.version: '2.15.7' is not a known torch release",
        "torch.version '2.15.7' is taken to be as torch 2.15.0",
    ),
    (
        {"flavor": "local", "torch": {"version": "2.14.1", "vision": "0.99.0"}},
        "torch.vision: '0.99.0' does not go with torch 2.14.1",
        "torch.vision '0.99.0' is taken to go with this torch",
    ),
    (
        {**BASE, "extras": {"xformers": "0.0.99"}},
        "extras.xformers: '0.0.99' does not go with torch",
        "extras.xformers '0.0.99' is taken to go with this torch",
    ),
    (
        {"flavor": "nccl", "nccl": "2.99.1-1"},
        "nccl: '2.99.1-1' is not a known NCCL",
        "nccl '2.99.1-1' is fetched by its",
    ),
)


def images(values: dict[str, Any]) -> dict[str, ImageSpec]:
    config = flavors.load(values, "stack x")
    return {image.name: image for image in flavors.flavor(values["flavor"]).images(config)}


def unverified(values: dict[str, Any]) -> dict[str, ImageSpec]:
    return images({**values, "unverified": True})


@every("values, refusal", [(values, refusal) for values, refusal, _ in UNKNOWN])
def test_unknown_release_is_refused_with_the_way_out(values: dict[str, Any], refusal: str) -> None:
    message = refusal_line(images, values)
    assert message.startswith(f"stack x: slipway:{refusal}")
    assert "; `slipway:unverified: true` builds it at your own risk: it " in message


@every("values, warning", [(values, warning) for values, _, warning in UNKNOWN])
def test_unverified_release_is_built_with_one_warning(values: dict[str, Any], warning: str) -> None:
    [line] = [
        line
        for line in flavors.load({**values, "unverified": True}, "stack x").warnings
        if line.startswith("slipway:unverified: at your own risk, as no table has it: ")
    ]
    assert warning in line
    assert unverified(values)


@every("flavor", ["local", "base", "nccl", "efa", "megatron", "universal"])
def test_unverified_key_changes_no_listed_stack(flavor: str) -> None:
    values = {"flavor": flavor}
    assert unverified(values) == images(values)
    warnings = flavors.load({**values, "unverified": True}, "stack x").warnings
    assert warnings == flavors.load(values, "stack x").warnings


def test_unverified_warning_names_every_release() -> None:
    values = {**EFA, "ngc": "26.11", "efa": {"installer": "1.52.0", "ofiNccl": "1.22.0"}, "unverified": True}
    [line] = flavors.load(values, "stack x").warnings
    assert "ngc '26.11'" in line
    assert "efa.installer '1.52.0'" in line


@every(
    "values, message",
    [
        (
            {**EFA, "efa": {"installer": "1.52.0"}},
            "efa.installer: '1.52.0' is not a known EFA installer, so its aws-ofi-nccl is not known either: set efa.ofiNccl",
        ),
        ({**EFA, "efa": {"installer": "latest"}}, "efa.installer: 'latest' is not a known EFA installer"),
        ({**EFA, "ngc": "24.13"}, "ngc: '24.13' is not a known release"),
        (
            {**MEGATRON, "launcher": "25.01"},
            "launcher.version: '25.01' is no release of the NeMo Framework Launcher; an",
        ),
        ({**MEGATRON, "doca": "2.9"}, "doca: '2.9' is not a known release of DOCA (did you mean '2.9.3'?)"),
        ({**BASE, "cuda": "13.2"}, "cuda: '13.2' is not a CUDA version of nvidia/cuda (did you mean '13.2.1'?)"),
        ({**BASE, "cuda": "14.0.0"}, "cuda: '14.0.0' is not a CUDA version"),
        ({**BASE, "cudnn": "10.0.0.1"}, "cudnn: '10.0.0.1' is not a known cuDNN release"),
        ({"flavor": "local", "torch": {"version": "3.0.0"}}, "torch.version: '3.0.0' is not a known torch release"),
        ({"flavor": "local", "torch": {"version": "2.14.1", "vision": "0.20.0"}}, "torch.vision: '0.20.0' does not go"),
        ({"flavor": "nccl", "nccl": "2.30.4"}, "nccl: '2.30.4' is not a known NCCL release (did you mean '2.30.4-1'?)"),
        ({"flavor": "nccl", "cuda": "12.6.3", "nccl": "2.99.1-1"}, "nccl: '2.99.1-1' has no package for CUDA 12.6"),
    ],
)
def test_unverified_does_not_build_what_cannot_be(values: dict[str, Any], message: str) -> None:
    assert refusal_line(unverified, values).startswith(f"stack x: slipway:{message}")


def test_unverified_cuda_has_row_of_the_nearest() -> None:
    near, known = unverified({**BASE, "cuda": "13.2.2"}), images({**BASE, "cuda": "13.2.1"})
    assert near["torch-wheel"].args == known["torch-wheel"].args
    assert near["torch-wheel"].parents["BASE_IMAGE"] == Outside(reference="nvidia/cuda:13.2.2-cudnn-devel-ubuntu24.04")
    newer = unverified({**BASE, "cuda": "13.99.0"})
    assert newer["torch"].parents["BASE_IMAGE"] == Outside(reference="nvidia/cuda:13.99.0-base-ubuntu24.04")


def test_unverified_wheel_comes_from_index_of_its_cuda() -> None:
    torch = {"version": "2.15.0", "source": "wheel", "audio": False}
    image = unverified({**BASE, "cuda": "13.0.2", "torch": torch})["torch"]
    assert image.args["TORCH_INDEX_URL"] == "https://download.pytorch.org/whl/cu130"
    # The Python index may have another CUDA for a torch that no table knows.
    image = unverified({**BASE, "cuda": "13.2.1", "torch": {**torch, "version": "2.15.7"}})["torch"]
    assert image.args["TORCH_INDEX_URL"] == "https://download.pytorch.org/whl/cu132"


def test_unverified_torch_is_built_with_triton_of_its_source() -> None:
    assert images(BASE)["torch-wheel"].args["VERSION"] == "2.15.0"
    wheel = unverified({**BASE, "torch": {"version": "2.13.9", "vision": "0.28.9", "audio": False}})["torch-wheel"]
    assert wheel.args["VERSION"] == "2.13.9"
    assert "TRITON_VERSION" not in wheel.args


def test_unverified_efa_installer_follows_its_rules() -> None:
    image = unverified({**EFA, "efa": {"installer": "1.52.0", "ofiNccl": "1.22.0"}})["efa"]
    assert (image.args["DISABLE_NGC"], image.args["OFI_NCCL_TAG"]) == ("--disable-ngc", "v1.22.0")
    assert "'1.20.9' does not support Ubuntu 24.04" in refusal_line(
        unverified, {**EFA, "efa": {"installer": "1.20.9", "ofiNccl": "1.7.4-aws"}}
    )


@every("key", ["ngc", "efa"])
def test_unverified_value_is_in_the_fingerprint(key: str) -> None:
    contents = CheckoutContents(contexts(ROOT))

    def fingerprint(number: int) -> str:
        values = (
            {"ngc": f"26.{number:02}"}
            if key == "ngc"
            else {"efa": {"installer": f"1.{50 + number}.0", "ofiNccl": "1.22.0"}}
        )
        _, specs = plan.specs({**EFA, **values, "unverified": True}, "stack x")
        return fingerprints(content.of_stack(specs, contents).values())["efa"]

    assert len({fingerprint(number) for number in (8, 9, 10)}) == 3
