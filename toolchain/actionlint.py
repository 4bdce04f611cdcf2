"""actionlint, which checks workflows: built from its Go module, as no package index has it."""

from typing import Final

from toolchain import golang
from toolchain.checkout import Checkout
from toolchain.part import Part, recall, remember
from toolchain.steps import step

NAME: Final = "actionlint"
MODULE: Final = "github.com/rhysd/actionlint"


def get(checkout: Checkout) -> Part:
    """Have the version that `go/actionlint/go.mod` asks for. Raises ToolchainError where its modules cannot be had."""
    version = golang.required(NAME, MODULE)
    target = checkout.bin / NAME
    part = recall(checkout, NAME, version)
    if part and target.exists():
        return part
    with step("Building actionlint from its Go module"):
        golang.build(checkout, NAME, f"{MODULE}/cmd/actionlint", target)
    return remember(checkout, Part(NAME, str(target), version), version)
