"""What a stack that signs its images needs: cosign and Syft, on PATH, else built from their Go modules."""

import re
import shutil
from dataclasses import dataclass
from typing import Final

from toolchain import golang
from toolchain.checkout import Checkout
from toolchain.part import Part, recall, remember
from toolchain.steps import output, step


@dataclass(frozen=True)
class Tool:
    """A program: its name, the module that its `go.mod` asks for, and its package in it."""

    name: str
    module: str
    package: str


TOOLS: Final = (
    Tool("cosign", "github.com/sigstore/cosign/v2", "cmd/cosign"),
    Tool("syft", "github.com/anchore/syft", "cmd/syft"),
)


def get(checkout: Checkout, tool: Tool) -> Part:
    """Have a tool. Raises ToolchainError where its modules cannot be had."""
    target = checkout.bin / tool.name
    if (found := shutil.which(tool.name)) and found != str(target):
        version = re.search(r"v?(\d+\.\d+\.\d+\S*)", output([found, "version"]))
        return Part(tool.name, found, version[1] if version else "of no known version")
    version_ = golang.required(tool.name, tool.module)
    part = recall(checkout, tool.name, version_)
    if part and target.exists():
        return part
    with step(f"Building {tool.name} from its Go module"):
        golang.build(checkout, tool.name, f"{tool.module}/{tool.package}", target)
    why = f"{tool.name} is not on PATH"
    return remember(checkout, Part(tool.name, str(target), version_, why, path=[str(checkout.bin)]), version_)
