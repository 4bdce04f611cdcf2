"""actionlint, which checks workflows: built from its Go module, as no package index has it."""

from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.steps import step
from toolchain.parts.part import Part, recall, remember

NAME: Final = "actionlint"
MODULE: Final = "github.com/rhysd/actionlint"


def get(checkout: Checkout) -> Part:
    """Get the version that `go/actionlint/go.mod` requires.

    Raises ToolchainError where its modules are not available.
    """
    version = golang.required(NAME, MODULE)
    target = checkout.bin / NAME
    part = recall(checkout, NAME, version)
    if part and target.exists():
        return part
    with step("Building actionlint from its Go module"):
        golang.build(checkout, NAME, f"{MODULE}/cmd/actionlint", target)
    return remember(checkout, Part(NAME, str(target), version), version)
