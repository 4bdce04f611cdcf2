"""The command ``slipway``: its sections, and every mistake as one line."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import click

from cli.command_line import Sections
from cli.commands import change, compare, fleet, foreign, hosting, look, promote, take_away
from cli.commands import run as run_commands
from containers.errors import SlipwayError, clean_output, one_line, out_of_time
from containers.interruption import INTERRUPTED, interrupt_on_signals
from stacks.places import CHECKED, CODE, PIN, ROOT

SECTIONS: Final = {
    "Run": [
        run_commands.up,
        run_commands.preview,
        run_commands.destroy,
        run_commands.history,
        run_commands.rollback,
        run_commands.prune,
        run_commands.down,
        run_commands.doctor,
    ],
    "Inspect": [look.list_, look.show, look.explain, look.inspect, look.start, look.scan],
    "Change": [change.new, change.check, change.lock],
    "Compare and verify": [compare.affected, compare.diff, compare.verify],
    "Promote": [promote.warm, promote.evidence, promote.promote],
    "Export": [take_away.export, take_away.compose, take_away.job, foreign.key],
    "Runners": [fleet.runners],
    "Set up": [run_commands.init, run_commands.upgrade, hosting.github, look.completion_],
}
"""The commands by what a user wants."""

slipway = Sections(
    "slipway",
    sections=SECTIONS,
    help="Show what Slipway's stacks build, change and check them, and export their images.\n\n"
    "`make` has the same words for what it shares with this command.",
)


def _version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    """Print the version of the code that runs."""
    if requested:
        project = tomllib.loads((CODE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        click.echo(f"slipway {project['version']}")
        ctx.exit()


slipway.params.append(
    click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
    )
)


def main(arguments: Sequence[str] | None = None, group: click.Group = slipway, name: str = "slipway") -> int:
    """Run one command; return 0, 1 after a line for each mistake on standard error, or 2 for wrong usage."""
    try:
        status: int | None = group.main(arguments, prog_name=name, standalone_mode=False)
    except SlipwayError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired as error:
        print(out_of_time(error.cmd, error.timeout), file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in {errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT} or not error.filename:
            raise
        print(f"{one_line(str(error.filename))}: {error.strerror}", file=sys.stderr)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return status or 0


_ENVIRONMENT: Final = ROOT / ".slipway" / "env"
"""Where `slipway up` writes the engine, the registry and the state that it uses."""
_READY: Final = {each.name for each in (*SECTIONS["Run"], run_commands.init, run_commands.upgrade)} - {
    *("history", "rollback")
}
"""The commands that find out themselves what is on this machine."""


def _check_release() -> None:
    """End where the repository pins another release than runs. The wheel's command may not be the first on PATH."""
    checked, pinned = CODE / CHECKED, ROOT / PIN
    if not (checked.exists() and pinned.exists()):
        return
    digest, pip = checked.read_text(encoding="utf-8").splitlines()
    if digest not in pinned.read_text(encoding="utf-8"):
        sys.exit(
            f"slipway: {pinned} pins another release of Slipway than runs: `{pip} install --require-hashes -r {PIN}`, "
            f"then `{Path(pip.removesuffix(' -m pip')).with_name('slipway')} check`"
        )


def _enter_environment(words: Sequence[str]) -> None:
    """Go on in a shell's environment as after `. .slipway/env`, in a repository of one's own, which has no other tool.

    After sourcing it, or with another backend, the environment is the wanted one.
    """
    if ROOT == CODE or "PULUMI_BACKEND_URL" in os.environ or not {*words[:1]} - _READY or not _ENVIRONMENT.exists():
        return
    os.execvp("sh", ["sh", "-c", '. "$0"; exec "$@"', str(_ENVIRONMENT), *sys.orig_argv])  # noqa: S606


def run(group: click.Group = slipway, name: str = "slipway") -> NoReturn:
    """Run the command that this process was started with."""
    gc.set_threshold(50_000, 20, 50)  # imports alone make garbage collections, which find nothing
    atexit.register(gc.freeze)  # Python collects once more as it ends. The two are a sixth of a short command
    if group is slipway:
        _check_release()
        _enter_environment(sys.argv[1:])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us, without a traceback
    interrupt_on_signals()  # else a half output stays, and nothing is said after a program below has ended
    clean_output()
    sys.exit(main(None, group, name))
