"""The command line: verbs, and every error as one line."""

import argparse
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from containers.interruption import INTERRUPTED, interrupt_on_signals
from toolchain import doctor, environment, json_answer
from toolchain.checkout import Checkout
from toolchain.lint import lint
from toolchain.machine import golang
from toolchain.machine.locking import alone, beside, held_by_another
from toolchain.machine.steps import say
from toolchain.machine.toolchain_error import ToolchainError, without_credentials
from toolchain.parts import (
    docker_engine,
    docker_registry,
    pulumi_cli,
    python_env,
    releases,
    supply_chain_programs,
    unused_space,
)
from toolchain.parts.plugins import plugin
from toolchain.pulumi_run import stack_command, withheld
from toolchain.ready import ready, ready_for_preview
from toolchain.release import own_repository, tagged_release, upgrade

FULL_BYTES: Final = 200_000_000
"""With less space than this left, a failure is put down to the full disk."""
ON_STACK: Final = {"up": stack_command.up, "preview": stack_command.preview, "destroy": stack_command.destroy}
"""The verbs that take a stack."""


def _on_stack(checkout: Checkout, verb: str, name: str, **options: bool) -> int:
    secrets = withheld.names(stack_command.check_name(checkout, name).read_text(encoding="utf-8"))
    # A preview changes nothing that another stack's run reads, if it need not get anything first.
    if verb == "preview" and held_by_another(checkout, name):
        with beside(checkout, name), withheld.withheld(secrets):
            if there := ready_for_preview(checkout, name):
                return ON_STACK[verb](checkout, name, environment.variables(checkout, there), **options)
    with alone(checkout, f"{verb} {name}") as let_beside, withheld.withheld(secrets):
        updating = verb == "up"
        parts = ready(checkout, name, pushing=updating, building=updating)
        let_beside()
        return ON_STACK[verb](checkout, name, environment.variables(checkout, parts), **options)


def _ready(checkout: Checkout) -> int:
    with alone(checkout, "ready"):
        ready(checkout)
    return 0


def _packages(checkout: Checkout) -> int:
    if checkout.code != checkout.root:
        own_repository.check_pin(checkout)
    if python_env.find(checkout):
        return 0  # also while another run holds the lock: `make test` lints while it has the other parts
    with alone(checkout, "packages"):
        python_env.get(checkout)
    return 0


def _down(checkout: Checkout) -> int:
    with alone(checkout, "down"):
        stopped = [
            name
            for name, stop in ((docker_engine.NAME, docker_engine.stop), (docker_registry.NAME, docker_registry.stop))
            if stop(checkout)
        ]
        if checkout.run.parent != checkout.state:
            shutil.rmtree(checkout.run, ignore_errors=True)
    say(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing of this checkout was running")
    return 0


def _pin(checkout: Checkout) -> int:
    plugins = {plugin.release(name): plugin.version(checkout, name) for name in ("aws", "docker", "kubernetes")}
    tools = {tool.release: golang.required(tool.name, tool.module) for tool in supply_chain_programs.TOOLS}
    return releases.pin(checkout, {pulumi_cli.RELEASE: pulumi_cli.version(checkout), **plugins, **tools})


def _env(checkout: Checkout) -> int:
    if not checkout.env_file.exists():
        raise ToolchainError(f"{checkout.env_file} is not there yet: run `python3 -m toolchain ready`")
    sys.stdout.write(checkout.env_file.read_text())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m toolchain", description="Gets a machine ready for Slipway.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("ready", help="have every part, with engine and registry running")
    init = verbs.add_parser("init", help="make a repository of one's own, with the release that runs")
    init.add_argument("folder", type=Path, metavar="FOLDER")
    newer = verbs.add_parser("upgrade", help="say what a newer release would build anew")
    newer.add_argument("release", nargs="?", default="", metavar="WHEEL|VERSION")
    newer.add_argument("--write", action="store_true", help="pin it")
    newer.add_argument("--json", action="store_true", help="print JSON, for programs")
    verbs.add_parser("packages", help="have the Python packages only")
    for verb in ON_STACK:
        on_stack = verbs.add_parser(verb, help=f"ready, then `pulumi {verb}`")
        on_stack.add_argument("stack", nargs="?", default="local")
        if verb == "preview":
            on_stack.add_argument("--json", action="store_true", help="print JSON, for programs")
    release = verbs.add_parser("release", help="build what the release of a tag publishes")
    release.add_argument("tag", metavar="TAG")
    release.add_argument("folder", type=Path, metavar="FOLDER")
    verbs.add_parser("pin", help="add the hashes of released programs to toolchain/releases.toml")
    prune = verbs.add_parser("prune", help="list what takes room and no stack names")
    prune.add_argument("--yes", action="store_true", help="delete it")
    prune.add_argument("--json", action="store_true", help="print JSON, for programs")
    verbs.add_parser("down", help="end what Slipway started")
    parts = verbs.add_parser("doctor", help="say which parts are used, and why")
    parts.add_argument("--json", action="store_true", help="print JSON, for programs")
    verbs.add_parser("env", help="print the environment, to be sourced")
    verbs.add_parser("lint", help="check style, types, Dockerfiles, shell scripts and workflows")
    return parser


def _dispatch(arguments: argparse.Namespace, checkout: Checkout) -> int:
    match arguments.verb:
        case "preview":
            return _on_stack(checkout, "preview", arguments.stack, as_json=arguments.json)
        case verb if verb in ON_STACK:
            return _on_stack(checkout, verb, arguments.stack)
        case "doctor":
            return doctor.doctor(checkout, as_json=arguments.json)
        case "init":
            return own_repository.make(arguments.folder)
        case "release":
            return tagged_release.build(checkout, arguments.tag, arguments.folder)
        case "upgrade":
            return upgrade.upgrade(checkout, arguments.release, writing=arguments.write, as_json=arguments.json)
        case "prune":
            with alone(checkout, "prune"):
                stack_command.check_states(checkout)
                return unused_space.prune(checkout, delete=arguments.yes, as_json=arguments.json)
        case verb:
            return {"ready": _ready, "packages": _packages, "pin": _pin, "down": _down, "env": _env, "lint": lint}[
                verb
            ](checkout)


def main(words: Sequence[str]) -> int:
    """Run one verb; return its exit status: 0, 1 with one line on stderr, 2 for wrong usage, 130 after Ctrl-C."""
    arguments = _parser().parse_args(words)
    checkout = Checkout.here()
    environment.prepare()
    interrupt_on_signals()  # it ends what it runs
    # A wheel's command begins with `packages`, and standard output is for what the command itself prints.
    silent = arguments.verb == "packages" or getattr(arguments, "json", False)
    try:
        with json_answer.apart() if silent else nullcontext():
            return _dispatch(arguments, checkout)
    except ToolchainError as error:
        problem = str(error)
    except OSError as error:
        where = error.filename or getattr(arguments, "folder", checkout.state)
        problem = f"{where}: {error.strerror}"
        if error.errno == errno.ENOSPC:
            problem = f"no space left on the disk of {where}"
        if error.errno == errno.EACCES and checkout.root.stat().st_uid != os.geteuid():
            problem += "; the repository is another user's: work in a clone of your own"
    except KeyboardInterrupt:
        print("\nslipway: interrupted; the next run goes on from here", file=sys.stderr)
        return INTERRUPTED
    free = shutil.disk_usage(checkout.root).free
    if free < FULL_BYTES and os.strerror(errno.EROFS) not in problem:
        problem += f" (the disk of {checkout.root} is full: {free // 1_000_000} MB left)"
    print(f"slipway: {' '.join(without_credentials(problem).split())}", file=sys.stderr)
    return 1
