"""Programs that run a file of their language: which of their arguments it is.

Options are as `--help` of Python 3.11, Bash 5.2 and Perl 5.36 lists them, and POSIX has those of `sh`. Compared with
the programs in tests/images/test_started.py, but Node, R, Java and those that name a source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class _Reader(NamedTuple):
    """A program: its ``name``, its ``flags`` before the file, its options with a value, and how a file's name ends.

    ``command`` is its first argument, of a program that does something else with another one. With a variable that
    matches ``changed``, its file may be another one.
    """

    name: re.Pattern[str]
    flags: re.Pattern[str]
    with_value: frozenset[str] = frozenset()
    end: str = ""
    command: str = ""
    changed: re.Pattern[str] = re.compile("(?!)")


_READERS: Final = (
    _Reader(
        re.compile(r"python[\d.]*"),
        re.compile(r"-[bBdEiIOPqRsSuvx]+|-[WX].+|--"),
        frozenset({"-W", "-X", "--check-hash-based-pycs"}),
    ),
    _Reader(
        re.compile("(?:ba|da|a|k|mk|z)?sh"),
        re.compile(r"[-+][abefhkmnptuvxBCEHPT]+|--(?:norc|noprofile|posix)?"),
        frozenset({"-o", "+o", "-O", "+O"}),
    ),
    _Reader(re.compile("perl|Rscript"), re.compile("-[wTtuWXs]+")),
    # Node takes names without an end for several files.
    _Reader(re.compile("node|nodejs"), re.compile("(?!)"), end=r".*\.[cm]?js"),
    _Reader(
        re.compile("java"),
        re.compile("-[XD].+|-(?:ea|server|jar)|--add-opens=.+|--enable-[a-z-]+.*"),
        end=r"[^@].*\.jar",
    ),
    # They start Python with the file (pytorch/pytorch 010929f, torch/distributed/run.py, `get_args_parser`;
    # huggingface/accelerate 00785cd, src/accelerate/commands/launch.py, `launch_command_parser`).
    _Reader(
        re.compile("torchrun"),
        re.compile(r"--[\w-]+=.*|--standalone|--use[_-]env"),
        frozenset({"--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank", "--node-rank"}),
        end=r".*\.py",
        changed=re.compile("PET_.*"),  # torch/distributed/argparse_util.py: each of its options is one
    ),
    _Reader(
        re.compile("accelerate"),
        re.compile(r"--[\w-]+=.*|--multi_gpu|--use_(?:deepspeed|fsdp)"),
        frozenset({"--num_processes", "--num_machines", "--mixed_precision", "--config_file"}),
        end=r".*\.py",
        command="launch",
    ),
    *(
        _Reader(re.compile(name), re.compile(flags), frozenset(with_value.split()), end=r".*\.py", command="run")
        for name, flags, with_value in [
            ("poetry|pdm|pipenv|hatch", "-[qvn]+|--(?:quiet|no-interaction|no-ansi)", ""),
            ("(?:micro)?mamba|conda", "-v+|-s|--(?:no-capture-output|live-stream)", "-n --name -p --prefix"),
        ]
    ),
    # The loader runs a program that it may read (bminor/glibc, elf/rtld.c, `dl_main`).
    _Reader(
        re.compile(r"ld(?:-linux[\w-]*|-musl-\w+|64)?\.so(?:\.\d)?"),
        re.compile("--inhibit-cache"),
        frozenset({"--library-path", "--preload", "--argv0", "--inhibit-rpath", "--audit"}),
        end=".*/.*",
    ),
    # uv starts what it does not find as a command (astral-sh/uv 0.13.8, `uv run --help`).
    _Reader(
        re.compile("uv"),
        re.compile(
            "-[qvns]|--(?:no-sync|frozen|locked|no-dev|active|isolated|offline|quiet|no-project|no-cache|script|all-extras|)"
        ),
        frozenset({"-p", "--python", "--with", "--extra", "--group"}),
        end=r".*\.py",
        command="run",
        changed=re.compile("UV_WORKING_DIR(?:ECTORY)?"),
    ),
)

_LAUNCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
    "accelerate.commands.launch": ("accelerate", "launch"),
}
"""Modules of Python that are one of the readers, with its first argument."""


def is_text(program: str) -> bool:
    """Return whether a program reads a text: a shell or Python."""
    return any(reader.name.fullmatch(program) for reader in _READERS[:2])


def file_of(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the file that a program, by its name, runs; empty if it is not known to run one."""
    reader = next((row for row in _READERS if row.name.fullmatch(program)), None)
    if reader is None or any(map(reader.changed.fullmatch, environment)):
        return ""
    commands = [reader.command] if reader.command else []
    if [*arguments[: len(commands)]] != commands:
        return ""
    rest = list(arguments[len(commands) :])
    while rest:
        word = rest.pop(0)
        if word in reader.with_value and rest:
            rest.pop(0)
        elif word == "-m" and rest and (launcher := _LAUNCHERS.get(rest[0])):
            return file_of(launcher[0], [*launcher[1:], *rest[1:]], environment)
        elif reader.command and re.fullmatch(r"python[\d.]*", word):
            return file_of(word, rest, environment)
        elif not word.startswith(("-", "+")):
            return word if re.fullmatch(reader.end or ".*", word, re.DOTALL) else ""
        elif not reader.flags.fullmatch(word):
            break
    return ""
