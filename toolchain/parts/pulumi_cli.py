"""The Pulumi CLI: the one on PATH, else the official release, else built from its Go module."""

import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import STARTING, Checkout
from toolchain.machine import golang
from toolchain.machine.network import net
from toolchain.machine.steps import output, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import releases
from toolchain.parts.part import Kind, Part, recall, remember
from toolchain.version import numbers

NAME: Final = "Pulumi CLI"
RELEASE: Final = releases.Release(
    "pulumi",
    "https://github.com/pulumi/pulumi/releases/download/v{version}",
    "pulumi-v{version}-linux-{x64}.tar.gz",
    "SLIPWAY_PULUMI_BASE_URL",
)
"""The official release. The variable names another place that has it, a mirror inside a company for example."""
PACKAGE: Final = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
LANGUAGE_HOST: Final = "pulumi-language-python"
UNOPTIMIZED: Final = (
    "cloud.google.com/...",
    "github.com/alecthomas/...",
    "github.com/aws/...",
    "github.com/Azure/...",
    "github.com/AzureAD/...",
    "github.com/charmbracelet/...",
    "github.com/cloudflare/...",
    "github.com/go-git/...",
    "github.com/godbus/...",
    "github.com/gogo/...",
    "github.com/google/go-tpm/...",
    "github.com/hashicorp/...",
    "github.com/lib/...",
    "github.com/pb33f/...",
    "github.com/ProtonMail/...",
    "github.com/pulumi/pulumi/pkg/v3/cmd/...",
    "github.com/pulumi/pulumi/pkg/v3/codegen/...",
    "github.com/uber/...",
    "github.com/yuin/...",
    "github.com/zclconf/...",
    "go.opentelemetry.io/collector/...",
    "go.opentelemetry.io/otel/sdk/...",
    "go.opentelemetry.io/otel/semconv/...",
    "gocloud.dev/...",
    "google.golang.org/api/...",
    "google.golang.org/genproto/...",
)
"""Packages that are compiled without optimization: clients of clouds, git and databases, OpenAPI, HCL, cryptography,
drawing on terminals, traces, the commands themselves and what generates code. They take 133 of the 229 s of CPU time of
the compilers, and a run of the CLI is seldom within them."""
_WORDS: Final = {
    "frequency/frequency.go": [("func init() {\n", "func Load() {\n")],
    "matching/matching.go": [
        ("func init() {\n\tloadFrequencyList()\n}\n", ""),
        ("func loadFrequencyList() {\n", "func loadFrequencyList() {\n\tfrequency.Load()\n"),
    ],
}
EDITS: Final[golang.Edits] = {"github.com/ccojocar/zxcvbn-go": _WORDS, "github.com/nbutton23/zxcvbn-go": _WORDS}
"""What judges passwords reads its lists of words when it is first asked, as its `Omnimatch` can do, and not at each
start of the CLI. That took half of the 0.2 s of CPU time of a start. It is asked by `config set` and `env set` alone
(config.go:1457 in cmd/pulumi/config and env_set.go:271 in cmd/esc/cli of pkg/v3 v3.259.0)."""
SHELL: Final = Path(__file__).parents[1] / "pulumi_run" / "shell"
"""Where the `pulumi` of `.slipway/env` is, which keeps a stack's file as it is and runs the CLI."""
VERSION_VARIABLE: Final = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"


def version(checkout: Checkout) -> str:
    """Return the version that goes with the Python SDK in requirements.lock."""
    return checkout.locked("pulumi")


def program(checkout: Checkout) -> str:
    """Return the CLI in use, for other parts. Raises ToolchainError if there is none yet."""
    part = find(checkout)
    if part is None:
        raise ToolchainError(f"the Pulumi CLI is not there yet: run {STARTING}")
    return part.used


@functools.cache
def _printed_version(pulumi: str, home: Path, modified: int) -> str:  # noqa: ARG001 - another file is another version
    quiet = child_environment("pulumi", PULUMI_SKIP_UPDATE_CHECK="true", PULUMI_HOME=str(home))
    return output([pulumi, "version"], env=quiet).removeprefix("v")


def _version_of(checkout: Checkout, pulumi: str) -> str:
    """Return the version that a CLI prints. It runs once: several parts look for the CLI, and each run takes 0.2 s."""
    return _printed_version(pulumi, checkout.pulumi_home, Path(pulumi).stat().st_mtime_ns)


def _on_path(checkout: Checkout) -> tuple[Part | None, str]:
    """Return the CLI on PATH if it can be used, else why not: it must not be older than the SDK."""
    shell = SHELL.parts[-3:]  # another checkout's as well
    others = [entry for entry in os.get_exec_path() if Path(entry) != checkout.bin and Path(entry).parts[-3:] != shell]
    pulumi = shutil.which("pulumi", path=os.pathsep.join(others))
    if pulumi is None:
        return None, "not on PATH"
    try:
        installed = _version_of(checkout, pulumi)
    except ToolchainError as error:
        return None, f"{pulumi} does not run ({error})"
    required = version(checkout)
    if numbers(installed)[:1] != numbers(required)[:1] or numbers(installed) < numbers(required):
        return None, f"{pulumi} is {installed}, the SDK needs {required} or newer"
    return Part(NAME, pulumi, installed), ""


def is_ours(checkout: Checkout, part: Part) -> bool:
    """Return whether a part is in `.slipway/bin`, where only its record says its version."""
    return Path(part.used).parent == checkout.bin


def find(checkout: Checkout) -> Part | None:
    """Return our own CLI if it is complete and of the SDK's version, else a usable one on PATH."""
    remembered = recall(checkout, NAME, version(checkout))
    if remembered and is_ours(checkout, remembered) and Path(remembered.used).exists():
        return remembered
    return _on_path(checkout)[0]


def download(checkout: Checkout) -> None:
    """Install the official release into `.slipway/bin`: downloaded, checked against its pinned SHA-256, unpacked.

    Raises net.UnavailableError with the reason if any step fails; nothing is installed then.
    """
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkout.cache) as scratch:
        archive = Path(scratch) / "archive"
        releases.fetch(checkout, RELEASE, version(checkout), archive)
        checkout.bin.mkdir(parents=True, exist_ok=True)
        for file in releases.unpack(archive, Path(scratch)):
            file.replace(checkout.bin / file.name)


def get(checkout: Checkout) -> Part:
    """Get a CLI of the SDK's version."""
    if part := find(checkout):
        return remember(checkout, part, version(checkout))
    why = _on_path(checkout)[1]
    program = checkout.bin / "pulumi"
    required = version(checkout)
    try:
        with step(f"Downloading Pulumi {required}"):
            download(checkout)
        used = Part(NAME, str(program), required, f"{why}; the official release is used", path=[str(checkout.bin)])
    except net.UnavailableError as unavailable:
        why = f"{why}; official release: {unavailable}"
        (checkout.bin / LANGUAGE_HOST).unlink(missing_ok=True)  # what may lie there belongs to another version
        try:
            with step(
                f"Building Pulumi {required} from its Go module",
                f"about 3 minutes on 2 free cores; official release: {unavailable}",
            ):
                golang.build(
                    checkout,
                    "cli",
                    PACKAGE,
                    program,
                    ldflags=f"-X {VERSION_VARIABLE}=v{required}",
                    unoptimized=UNOPTIMIZED,
                    edits=EDITS,
                )
        except ToolchainError as error:
            raise ToolchainError(
                f"no Pulumi CLI ({why}; building it: {error}): install Pulumi {required} and run this again"
            ) from None
        used = Part(NAME, str(program), f"{required}, built from its Go module", why, path=[str(checkout.bin)])
    return remember(checkout, used, required)


KIND: Final = Kind(NAME, find, get)
