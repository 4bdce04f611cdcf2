"""Pulumi's Python language host: the one that comes with the CLI, else built from the Go module `sdk/v3`."""

from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.machine.files import write
from toolchain.machine.steps import step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import pulumi_cli
from toolchain.parts.part import Kind, Part, recall, remember

NAME: Final = "Python language host"
PROGRAM: Final = pulumi_cli.LANGUAGE_HOST
SDK: Final = "github.com/pulumi/pulumi/sdk/v3"
PACKAGE: Final = f"{SDK}/python/cmd/{PROGRAM}"
SCRIPTS: Final = (
    "python/cmd/pulumi-language-python-exec",  # what the host calls to run a program
    "python/dist/pulumi-resource-pulumi-python",  # the provider behind pulumi.dynamic
)
"""Programs that `sdk/v3` carries as they are. They have the SDK's version; the host is the last one in that module."""
PYTHON: Final = "pulumi-python"
"""The script beside this module, which the host calls as Python; copied, as another commit may lack it."""


def find(checkout: Checkout) -> Part | None:
    """Return the host in the CLI's folder, else the one that was built for it."""
    cli = pulumi_cli.find(checkout)
    if cli is None:
        return None
    for folder in (Path(cli.used).resolve().parent, checkout.bin):
        host = folder / PROGRAM
        if host.exists():
            part = Part(NAME, str(host), cli.version, path=cli.path)
            built = recall(checkout, NAME)
            return built if built and built.used == part.used and pulumi_cli.is_ours(checkout, part) else part
    return None


def get(checkout: Checkout) -> Part:
    """Get a language host for the CLI in use."""
    if part := find(checkout):
        return remember(checkout, part)
    cli = pulumi_cli.program(checkout)
    try:
        with step("Building the Python language host from its Go module"):
            golang.copy(checkout, "cli", SDK, {path: checkout.bin / Path(path).name for path in SCRIPTS})
            write(checkout.bin / PYTHON, Path(__file__).with_name(PYTHON).read_text(), mode=0o755)
            golang.build(checkout, "language_host", PACKAGE, checkout.bin / PROGRAM)
    except ToolchainError as error:
        raise ToolchainError(
            f"no Python language host ({PROGRAM} is not beside {cli}; building it: {error}): "
            f"install Pulumi {pulumi_cli.version(checkout)} and run this again"
        ) from None
    version = f"{golang.required('language_host', SDK)}, built from its Go module"
    used, env = str(checkout.bin / PROGRAM), {"PULUMI_PYTHON_CMD": str(checkout.bin / PYTHON)}
    return remember(checkout, Part(NAME, used, version, f"not beside {cli}", env, path=[str(checkout.bin)]))


KIND: Final = Kind(NAME, find, get)
