"""The programs of a stack that signs or scans its images: cosign, Syft and Grype.

One on PATH is used, else the official release, else one is built from Go modules.

One on PATH must have the major version of the module: cosign 3 stores signatures in another form.
"""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.network import net
from toolchain.machine.steps import output, step
from toolchain.parts import releases
from toolchain.parts.part import Part, recall, remember


@dataclass(frozen=True)
class Tool:
    """A program: its name, the module that its `go.mod` requires, its package in it, and its released file."""

    name: str
    module: str
    package: str
    file: str

    @property
    def release(self) -> releases.Release:
        """The released program, whose version is the module's."""
        project = self.module.removesuffix("/v2")
        return releases.Release(self.name, f"https://{project}/releases/download/v{{version}}", self.file)


TOOLS: Final = (
    Tool("cosign", "github.com/sigstore/cosign/v2", "cmd/cosign", "cosign-linux-{machine}"),
    Tool("syft", "github.com/anchore/syft", "cmd/syft", "syft_{version}_linux_{machine}.tar.gz"),
    Tool("grype", "github.com/anchore/grype", "cmd/grype", "grype_{version}_linux_{machine}.tar.gz"),
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
    released = Part(tool.name, str(target), version, f"{why}; the official release is used", path=[str(checkout.bin)])
    try:
        with step(f"Downloading {tool.name} {version}"):
            _download(checkout, tool, version, target)
        return remember(checkout, released, version)
    except net.UnavailableError as unavailable:
        why = f"{why}; official release: {unavailable}"
    with step(f"Building {tool.name} from its Go module", why):
        # What Syft and Grype say of themselves in SBOMs and scans, as their releases (.goreleaser.yaml).
        named = f"-X main.version={version}"
        golang.build(checkout, tool.name, f"{tool.module}/{tool.package}", target, ldflags=named)
    return remember(checkout, Part(tool.name, str(target), version, why, path=[str(checkout.bin)]), version)


def _download(checkout: Checkout, tool: Tool, version: str, target: Path) -> None:
    """Install the released program, which is a file or in an archive. Raises net.UnavailableError."""
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkout.cache) as scratch:
        file = Path(scratch) / tool.file
        releases.fetch(checkout, tool.release, version, file)
        if file.name.endswith(".tar.gz"):
            releases.unpack(file, Path(scratch))
            file = Path(scratch) / tool.name
        file.chmod(0o755)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
