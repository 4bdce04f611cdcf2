"""The programs of a stack that signs or scans its images: cosign, Syft and Grype, on PATH, else built from Go modules.

One on PATH must have the major version of the module: cosign 3 stores signatures in another form.
"""

import re
import shutil
from dataclasses import dataclass
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.steps import output, step
from toolchain.parts.part import Part, recall, remember


@dataclass(frozen=True)
class Tool:
    """A program: its name, the module that its `go.mod` requires, and its package in it."""

    name: str
    module: str
    package: str


TOOLS: Final = (
    Tool("cosign", "github.com/sigstore/cosign/v2", "cmd/cosign"),
    Tool("syft", "github.com/anchore/syft", "cmd/syft"),
    Tool("grype", "github.com/anchore/grype", "cmd/grype"),
)


def get(checkout: Checkout, tool: Tool) -> Part:
    """Get a tool. Raises ToolchainError if its modules are not available."""
    target = checkout.bin / tool.name
    version = golang.required(tool.name, tool.module)
    why = f"{tool.name} is not on PATH"
    if (on_path := shutil.which(tool.name)) and on_path != str(target):
        match = re.search(r"v?(\d+(\.\d+)+\S*)", output([on_path, "version"]))
        if match and match[1].partition(".")[0] == version.partition(".")[0]:
            return Part(tool.name, on_path, match[1])
        why = f"{on_path} is {match[1] if match else 'of no known version'}"
    part = recall(checkout, tool.name, version)
    if part and target.exists():
        return part
    with step(f"Building {tool.name} from its Go module"):
        # What Syft and Grype say of themselves in SBOMs and scans, as their releases (.goreleaser.yaml).
        named = f"-X main.version={version}"
        golang.build(checkout, tool.name, f"{tool.module}/{tool.package}", target, ldflags=named)
    return remember(checkout, Part(tool.name, str(target), version, why, path=[str(checkout.bin)]), version)
