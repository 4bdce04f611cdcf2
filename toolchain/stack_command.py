"""`make up` and `make preview`: Pulumi on one stack in the readied environment, and what came of it."""

import difflib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolchain.checkout import Checkout
from toolchain.machine import steps
from toolchain.machine.files import write
from toolchain.machine.steps import output, say
from toolchain.machine.toolchain_error import ToolchainError

PROJECT: Final = "slipway"
SALT: Final = "encryptionsalt:"
"""The line that Pulumi adds to a stack's configuration: it belongs to the passphrase on this machine, not into git."""


def check_name(checkout: Checkout, stack: str) -> Path:
    """Return the configuration file of a stack. For another name raises ToolchainError with those there are."""
    files = {
        file.name.removeprefix("Pulumi.").removesuffix(".yaml"): file
        for file in (checkout.root / "stacks").glob("Pulumi.*.yaml")
    }
    if stack in files:
        return files[stack]
    if not stack:
        raise ToolchainError(f"no stack is named: there are {', '.join(sorted(files)) or 'none'} (`STACK=<stack>`)")
    near = difflib.get_close_matches(stack, files, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ToolchainError(
        f"unknown stack {stack!r}: {hint}there are {', '.join(sorted(files)) or 'none'} (stacks/Pulumi.<stack>.yaml)"
    )


def _salt(file: Path) -> str:
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line for line in lines if line.startswith(SALT)), "")


def _configuration(checkout: Checkout, tracked: Path) -> Path:
    """Write the configuration as Pulumi gets it: the tracked file, with the salt that Pulumi wrote last time."""
    target = checkout.config / tracked.name
    text, salt = tracked.read_text(), _salt(target)
    if salt and not _salt(tracked):
        text = f"{text.rstrip()}\n{salt}\n"
    write(target, text, mode=0o600)
    return target


def _exists(checkout: Checkout, stack: str) -> bool:
    return (checkout.backend / ".pulumi" / "stacks" / PROJECT / f"{stack}.json").exists()


def _create(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> None:
    """Create a stack from `.slipway/config`: from the checkout Pulumi would write its salt into the tracked file."""
    write(checkout.config / "Pulumi.yaml", f"name: {PROJECT}\nruntime: python\n")
    output(
        ["pulumi", "--non-interactive", "-C", checkout.config, "stack", "init", "--no-select", stack],
        env=environment,
        timeout=60,
    )


def _lock(checkout: Checkout, stack: str) -> dict[str, Any] | None:
    """Return who holds the stack: what Pulumi's file backend noted of the process, None if nobody does."""
    for file in (checkout.backend / ".pulumi" / "locks" / "organization" / PROJECT / stack).glob("*.json"):
        try:
            holder: dict[str, Any] = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            continue
        return holder
    return None


def check_lock(checkout: Checkout, stack: str) -> None:
    """Raise ToolchainError, with the way out, where the stack is locked by a Pulumi, running or dead."""
    holder = _lock(checkout, stack)
    if holder is None:
        return
    pid, host = holder.get("pid"), holder.get("hostname")
    who = f"stack {stack} is locked by a Pulumi (process {pid} on {host}, since {holder.get('timestamp')})"
    if host == socket.gethostname() and not Path(f"/proc/{pid}").exists():
        raise ToolchainError(
            f"{who} that has ended: unlock it with `. .slipway/env && pulumi cancel --yes --stack {stack}`"
        )
    raise ToolchainError(f"{who}: wait for it to end")


def run(argv: list[str], environment: Mapping[str, str], cwd: Path) -> int:
    """Run Pulumi so that Ctrl-C reaches it exactly once: a second one would make it drop everything at once.

    A terminal sends Ctrl-C to all of its foreground processes, Pulumi among them. Without a terminal Pulumi is put into
    a group of its own, and what is sent to this process is passed on.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: object) -> None:
        if process is not None and not (terminal and number == signal.SIGINT):
            process.send_signal(signal.SIGINT)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd=cwd,
            stdin=None if terminal else subprocess.DEVNULL,
            process_group=None if terminal else 0,
            pass_fds=steps.inherited,
        )
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pulumi(checkout: Checkout, verb: list[str], stack: str, environment: Mapping[str, str]) -> int:
    """Run Pulumi on a stack, which is created first where it is new. Returns its exit status as a shell gives it."""
    tracked = check_name(checkout, stack)
    if not _exists(checkout, stack):
        _create(checkout, stack, environment)
    words = [*verb, "--stack", stack, "--config-file", str(_configuration(checkout, tracked))]
    code = run(["pulumi", *words], environment, checkout.root)
    return code if code >= 0 else 128 - code


def preview(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> int:
    """Run `pulumi preview` for a stack. Returns Pulumi's exit status."""
    return _pulumi(checkout, ["preview"], stack, environment)


def up(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> int:
    """Run `pulumi up` for a stack and print a summary. Returns Pulumi's exit status."""
    check_lock(checkout, stack)
    # Nobody is asked, so a preview before it would only run the program twice.
    if code := _pulumi(checkout, ["up", "--yes", "--skip-preview"], stack, environment):
        check_lock(checkout, stack)
        return code
    for line in _summary(checkout, stack, environment):
        say(line)
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _compressed(reference: str, environment: Mapping[str, str]) -> str:
    """Return what the layers of a published image weigh in the registry.

    Where the reference names a list, as engines with containerd's image store push it, the first image in it counts:
    the others are attestations, of the platform `unknown`.
    """
    manifest = json.loads(
        output(["docker", "manifest", "inspect", "--insecure", reference], env=environment, timeout=30)
    )
    images = [entry for entry in manifest.get("manifests", []) if entry["platform"]["os"] != "unknown"]
    if images:
        return _compressed(f"{reference.partition('@')[0]}@{images[0]['digest']}", environment)
    return _megabytes(sum(layer["size"] for layer in manifest["layers"]))


def _unpacked(reference: str, environment: Mapping[str, str]) -> str:
    return _megabytes(int(output(["docker", "image", "inspect", "--format", "{{.Size}}", reference], env=environment)))


def _summary(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> list[str]:
    """Return for each image of the stack: what it is, how large, and how to run it."""
    asked = ["pulumi", "stack", "output", "--json", "--stack", stack, "--cwd", str(checkout.root)]
    images = json.loads(output(asked, env=environment, timeout=60)).get("images", {})
    environment = {**environment, "DOCKER_CLI_EXPERIMENTAL": "enabled"}
    host = f"DOCKER_HOST={environment['DOCKER_HOST']} " if "DOCKER_HOST" in environment else ""
    lines = []
    for name, image in images.items():
        reference = image["ref"]
        sizes = []
        for label, measure in (("compressed", _compressed), ("unpacked", _unpacked)):
            try:
                sizes.append(f"{measure(reference, environment)} {label}")
            except (ToolchainError, LookupError, ValueError):
                continue  # not published, not on this engine any more, or not to be understood
        lines += ["", f"{name}: {reference}", *([f"  {', '.join(sizes)}"] if sizes else [])]
        lines.append(f"  {host}docker run --rm -it {reference}")
    return lines
