"""`make up` and `make preview`: run Pulumi on one stack and print the result."""

import difflib
import json
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from containers.interruption import INTERRUPTED
from toolchain import json_answer
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.steps import output, say
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts.unused_space import megabytes
from toolchain.pulumi_run import pulumi_process
from toolchain.pulumi_run.published_layers import UNREADABLE, forecasts, published_layers, pulls
from toolchain.pulumi_run.run_progress import RunProgress
from toolchain.pulumi_run.run_report import RunReport

PROJECT: Final = "slipway"
TITLES: Final = {"preview": "Previewing", "up": "Updating", "destroy": "Destroying"}
"""What a run of Pulumi is called, by its command."""
STREAM: Final = "PULUMI_ENABLE_STREAMING_JSON_PREVIEW"
"""Lets `pulumi preview --json` print events as they come, as `pulumi up --json` does."""


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


def check_lock(checkout: Checkout, stack: str, *, going_on: bool = False) -> None:
    """Raise ToolchainError, with what to do, if a Pulumi process has locked the stack.

    If that Pulumi was killed on this machine, a run ``going_on`` from there takes its lock away.
    """
    for file in (checkout.backend / ".pulumi" / "locks" / "organization" / PROJECT / stack).glob("*.json"):
        try:
            holder = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            continue
        pid, host, since = (holder.get(key) for key in ("pid", "hostname", "timestamp"))
        who = f"stack {stack} is locked by a Pulumi (process {pid} on {host}, since {since})"
        if host != socket.gethostname() or _runs(pid):
            raise ToolchainError(f"{who}: wait for it to end")
        if not going_on:
            raise ToolchainError(
                f"{who} that has ended: `slipway up {stack}` or `slipway destroy {stack}` goes on from there"
            )
        file.unlink(missing_ok=True)  # as `pulumi cancel` does (v3.256.0, pkg/backend/diy/backend.go:1637)
        say(f"Unlocked stack {stack}: the Pulumi that held it (process {pid}, since {since}) has ended")


def _runs(pid: object) -> bool:
    """Return whether a process of this machine runs. One that its parent has not waited for has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def check_states(checkout: Checkout) -> None:
    """Raise ToolchainError if the states of the checkout's backend do not name all that its stacks use."""
    backend, named = checkout.backend.as_uri(), os.environ.get("PULUMI_BACKEND_URL")
    if named and named != backend:
        raise ToolchainError(
            f"PULUMI_BACKEND_URL is {named}, and what states there name is not known here: unset it if no stack there "
            "uses this checkout's registry"
        )
    for folder in sorted((checkout.backend / ".pulumi" / "locks" / "organization" / PROJECT).glob("*")):
        check_lock(checkout, folder.name)


def _pulumi(
    checkout: Checkout, words: list[str], stack: str, environment: Mapping[str, str], *, quiet: bool = False
) -> tuple[int, RunReport]:
    """Run Pulumi on a stack, and print what it changes. `shell/pulumi` creates a new stack first."""
    check_name(checkout, stack)
    verb = words[0]
    argv = ["pulumi", *words, "--json", "--stack", stack]
    log = checkout.logs / f"{verb}-{stack}.log"
    write(log, "", mode=0o600)
    with log.open("w") as file, RunProgress(quiet=quiet) as progress:
        progress.say(f"{TITLES[verb]} stack {stack}")
        report = RunReport(progress, file, checkout.root, preview=verb == "preview")
        code = pulumi_process.run(argv, {**environment, STREAM: "true"}, checkout.root, report.follow)
        if code == INTERRUPTED:
            progress.say(f"Interrupted: {report.counts or 'none changed'}; the next run goes on from here")
        elif code:
            progress.say(f"Failed: {report.counts or f'Pulumi ended with {code}'}; the full output is in {log}")
    return code, report


def preview(checkout: Checkout, stack: str, environment: Mapping[str, str], *, as_json: bool = False) -> int:
    """Run `pulumi preview` for a stack, and print what would change. Returns Pulumi's exit status.

    Raises ToolchainError if it fails, ``as_json`` alone: the errors are the only output then.
    """
    code, report = _pulumi(checkout, ["preview"], stack, environment, quiet=as_json)
    if as_json and code:
        why = "; ".join(report.errors) or f"Pulumi ended with {code}"
        raise ToolchainError(f"stack {stack}: {why}; the full output is in {checkout.logs / f'preview-{stack}.log'}")
    pulled = [*forecasts(report.before, report.outputs, partial(published_layers, environment=environment))]
    if as_json:
        json_answer.give({"stack": stack, **report.as_json(), "pulls": {each.name: each.as_json() for each in pulled}})
        return 0
    for each in pulled:
        say(str(each))
    return code


def up(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> int:
    """Run `pulumi up` for a stack, and print what changes and the images. Returns Pulumi's exit status."""
    check_lock(checkout, stack, going_on=True)
    # There is no prompt: a preview before the update would only run the program twice.
    code, report = _pulumi(checkout, ["up", "--yes", "--skip-preview"], stack, environment)
    if code:
        return code
    lookup = partial(published_layers, environment=environment)
    for name, image in report.outputs.get("images", {}).items():
        # Without a push, nothing names the images of all platforms.
        unmerged = {f"{name} ({platform})": part["ref"] for platform, part in image.get("platforms", {}).items()}
        for label, reference in ({name: image["ref"]} if "ref" in image else unmerged).items():
            for line in _usage(label, reference, environment):
                say(line)
        for line in pulls(report.before, name, image.get("ref", ""), lookup):
            say(line)
    return 0


def destroy(checkout: Checkout, stack: str, environment: Mapping[str, str]) -> int:
    """Run `pulumi destroy` for a stack, whose file and published images stay. Returns Pulumi's exit status."""
    check_lock(checkout, stack, going_on=True)
    code, _ = _pulumi(checkout, ["destroy", "--yes", "--skip-preview"], stack, environment)
    if code == 0:
        say(f"stacks/Pulumi.{stack}.yaml and the published images stay: `slipway prune` lists what takes room here")
    return code


def _compressed(reference: str, environment: Mapping[str, str]) -> int:
    return sum(published_layers(reference, environment).layers.values())


def _unpacked(reference: str, environment: Mapping[str, str]) -> int:
    return int(output(["docker", "image", "inspect", "--format", "{{.Size}}", reference], env=environment))


def _usage(name: str, reference: str, environment: Mapping[str, str]) -> list[str]:
    """Return an image's reference, its sizes, and the command that runs it."""
    host = f"DOCKER_HOST={environment['DOCKER_HOST']} " if "DOCKER_HOST" in environment else ""
    sizes = []
    for label, measure in (("compressed", _compressed), ("unpacked", _unpacked)):
        try:
            sizes.append(f"{megabytes(measure(reference, environment))} {label}")
        except UNREADABLE:
            continue  # not published, removed from this engine, or unreadable
    lines = [f"{name}: {reference}", *([f"  {', '.join(sizes)}"] if sizes else [])]
    return [*lines, f"  {host}docker run --rm -it {reference}"]
