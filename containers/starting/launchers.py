"""Programs that start another one: ``#!``, `env`, the first process of a container, a shell.

Sources: Linux 6.12, fs/binfmt_script.c; coreutils/coreutils 01755d3, src/env.c (`shortopts`, `longopts`,
`parse_split_string`); krallin/tini v0.19.0, src/tini.c:97 (`-p` and `-e` have values); Yelp/dumb-init v1.2.5,
dumb-init.c:193 (`--rewrite`); openSUSE/catatonit v0.2.0, catatonit.c:458 (no option has a value); Debian 12's xvfb-run
21.1.7; conda/conda 018420c, conda/cli/main_run.py; mamba-org/mamba 0439dc4, micromamba/src/run.cpp; the manuals of
Debian 12's util-linux 2.38.1, sudo 1.9.13, numactl 2.0.16, runit 2.1.2, s6 2.11.3 and BusyBox 1.35.0, whose programs
tests/images/test_started.py starts.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Final, NamedTuple

from containers.errors import one_line
from containers.image.binaries.contents import Script
from containers.starting.refusals import Refusal
from containers.starting.shell import entry_scripts
from containers.starting.shell.script_state import Asked, Shell
from containers.starting.shell.shell_text import ASSIGNMENT, LOOKED_UP, with_own_folder


class _Launcher(NamedTuple):
    """A program that starts its arguments.

    ``with_value`` are its options with a value. ``user`` among them names the user; without it, ``default`` does.
    ``before`` is how many arguments come before the program: a user if ``by_user``. With an option that matches
    ``unknown`` it starts something else, or fails without saying so. ``loose`` is whether it changes PATH.
    ``command`` is its first argument, if it does something else with another one. ``needs`` are names that it starts
    before.
    """

    with_value: frozenset[str] = frozenset()
    before: int = 0
    by_user: bool = False
    user: frozenset[str] = frozenset()
    default: str = ""
    unknown: re.Pattern[str] | None = None
    loose: bool = False
    command: str = ""
    needs: tuple[str, ...] = ()


def _options(names: str) -> frozenset[str]:
    return frozenset(names.split())


_OF_PROCESS: Final = re.compile(r"-[a-z]*[pPu].*|--(?:pid|pgid|uid).*")
"""Options of a program that changes running processes."""
_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    **dict.fromkeys(
        ("tini", "tini-static", "docker-init"), _Launcher(frozenset({"-p", "-e"}), unknown=re.compile("-l"))
    ),
    "dumb-init": _Launcher(frozenset({"-r", "--rewrite"})),
    "catatonit": _Launcher(),
    **dict.fromkeys(("gosu", "su-exec", "s6-setuidgid"), _Launcher(before=1, by_user=True)),
    "s6-envuidgid": _Launcher(before=1),
    "s6-envdir": _Launcher(_options("-n -c"), 1, loose=True),
    "s6-setlock": _Launcher(frozenset({"-t"}), 1),
    "s6-softlimit": _Launcher(_options("-a -c -d -f -l -m -o -p -r -s -t")),
    "s6-applyuidgid": _Launcher(_options("-u -g -G")),
    "s6-nice": _Launcher(frozenset({"-n"})),
    "s6-fghack": _Launcher(),
    "chpst": _Launcher(
        _options("-u -U -b -n -l -L -m -d -o -p -f -c"), user=_options("-u"), unknown=re.compile("-[/e].*")
    ),
    "sudo": _Launcher(
        _options("-u --user -C --close-from -D --chdir -p --prompt -T --command-timeout"),
        user=_options("-u --user"),
        default="root",
        unknown=re.compile(r"-[A-Za-z]*[egilshvDR]\w*|--(?:login|shell|edit|list|host|chroot|chdir|validate|group).*"),
        loose=True,
    ),
    "runuser": _Launcher(
        _options("-u --user -w --whitelist-environment"),
        user=_options("-u --user"),
        unknown=re.compile("-[lcsf]?|-[gG].*|--(?:login|command|session-command|shell|fast|group|supp-group).*"),
    ),
    "setpriv": _Launcher(
        _options(
            "--reuid --regid --ruid --rgid --euid --egid --groups --inh-caps --ambient-caps --bounding-set "
            "--securebits --pdeathsig --selinux-label --apparmor-profile"
        ),
        unknown=re.compile("-d|--dump|--reset-env"),
    ),
    "numactl": _Launcher(
        _options(
            "-i --interleave -p --preferred -P --preferred-many -C --physcpubind -N --cpunodebind -c --cpubind "
            "-m --membind -f --file -w --weighted-interleave"
        ),
        unknown=re.compile("-[sHLSo].*|--(?:show|hardware|length|shm|offset).*"),
    ),
    "taskset": _Launcher(before=1, unknown=_OF_PROCESS),
    "chrt": _Launcher(before=1, unknown=re.compile(f"{_OF_PROCESS.pattern}|-[TPDm].*|--(?:sched|max).*")),
    "ionice": _Launcher(_options("-c --class -n --classdata"), unknown=_OF_PROCESS),
    "prlimit": _Launcher(unknown=re.compile("-p.*|--pid.*|-o.*|--output.*")),
    "flock": _Launcher(_options("-w --timeout --wait -E --conflict-exit-code"), 1),
    **dict.fromkeys(("setarch", "linux32", "linux64"), _Launcher(unknown=re.compile("--list|-p.*|--(?:pid|show).*"))),
    "unshare": _Launcher(
        _options("-G --setgid --map-user --map-group --propagation --setgroups --monotonic --boottime"),
        unknown=re.compile("-[RwS].*|--(?:root|wd|setuid|map-(?:users|groups|auto|subids)|load).*"),
    ),
    # Another process may have other files.
    "nsenter": _Launcher(
        _options("-t --target -G --setgid"), unknown=re.compile("-[a-zA-Z]*[amrwSUZe].*|--(?!target|net|uts|ipc|pid).*")
    ),
    "xvfb-run": _Launcher(
        _options("-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args -w --wait"),
        needs=("xauth", "Xvfb"),
    ),
    **dict.fromkeys(
        ("conda", "mamba", "micromamba"),
        _Launcher(
            _options("-n --name -p --prefix -e --env -a --attach -r --root-prefix --label"),
            unknown=re.compile("-d|--(?:cwd|detach).*"),
            command="run",
            loose=True,
        ),
    ),
    "time": _Launcher(_options("-f --format -o --output")),
    "chroot": _Launcher(
        _options("--userspec"), user=_options("--userspec"), unknown=re.compile("--(?:skip-chdir|groups.*)")
    ),
    "nohup": _Launcher(),
    "setsid": _Launcher(unknown=re.compile("-[a-z]*f[a-z]*|--fork")),
    "nice": _Launcher(frozenset({"-n", "--adjustment"})),
    "stdbuf": _Launcher(frozenset({"-i", "-o", "-e", "--input", "--output", "--error"})),
    "timeout": _Launcher(frozenset({"-k", "-s", "--kill-after", "--signal"}), 1),
}
_ABOUT_ITSELF: Final = _options("-h --help -V --version")
"""Options by which a launcher starts nothing."""
SCRIPTS: Final = {"xvfb-run", "conda", "mamba"}
"""Launchers that are scripts themselves."""
_OF_SU: Final = {"-s", "--shell", "-w", "--whitelist-environment"}
"""Options of `su` with a value, but for its text and for groups, which nothing is known of."""
_FLAGS_OF_SU: Final = _options("- -l --login -m -p --preserve-environment -P --pty")
_TEXT_OF_SU: Final = _options("-c --command --session-command")
_WITH_VALUE: Final = {"-u", "--unset", "-C", "--chdir", "-a", "--argv0"}
"""Options of `env` that the next argument is the value of."""
_SHELLS: Final = {"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}
_PLAIN_SHELLS: Final = {"sh", "bash", "dash", "ash"}
"""Shells of which it is known what they have themselves."""
_BUFFER: Final = 256
"""Bytes of a file that the kernel reads (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`)."""
_SPLITS: Final = re.compile(r"-v?S|--split-string=?")
"""The option of `env` that makes words of its value; in ``#!`` the file's path follows it."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_MOST_OF_LIST: Final = 4096
"""Characters of a text that may be a list: a longer one is none."""
_LIST: Final = re.compile(r"""\[(?:["'\u201c][^\n;&|]*|[ \t]+["'][^\n;&|]*["'][ \t]*,[ \t]*["'][^\n;&|]*)?\]\s*""")
"""What a Dockerfile's list becomes that is no JSON: a shell's text."""


class Words(NamedTuple):
    """What is started: a program, by path or name, and its arguments.

    ``folder`` is where it starts, empty for where its starter is; ``must_enter`` is whether nothing starts if that
    folder cannot be entered. ``by_text`` is whether a shell runs a text without ``#!``, which the kernel refuses.
    ``user`` and ``root`` are its own, empty for those of its starter. ``loose`` is whether its starter may have changed
    PATH, the folder, the accounts or Python's settings: then only a path from the root is certain. ``cut`` is whether
    more arguments follow, which are unknown. ``sourced`` is whether a shell reads the file as a part of its text.
    """

    program: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    must_enter: bool = False
    by_text: bool = False
    user: str = ""
    loose: bool = False
    root: str = ""
    cut: bool = False
    sourced: bool = False


def interpreter(start: bytes) -> tuple[Words, str]:
    """Return what starts a script, or the problem of its first line; ``start`` is what the kernel reads of it."""
    line, newline, _ = start.removeprefix(b"#!").partition(b"\n")
    line = line.partition(b"\0")[0]
    if not line.strip(b" \t"):
        return Words(""), "names no program"
    if not newline and len(start) >= _BUFFER and not re.search(rb"[ \t]", line.lstrip(b" \t")):
        return Words(""), f"is longer than the {_BUFFER} bytes that the kernel reads"
    program, *arguments = (
        word.decode(errors="replace") for word in re.split(rb"[ \t]+", line.strip(b" \t"), maxsplit=1)
    )
    splits = posixpath.basename(program) == "env" and arguments and _SPLITS.match(arguments[0])
    if line.endswith(b"\r") and not splits:
        return Words(""), "ends with a carriage return, which is a part of the name: the file has line ends of Windows"
    return Words(program, tuple(arguments)), ""


def misread(words: Words) -> str:
    """Return why a shell has no program, if its text is a list; empty for other texts and programs."""
    options, rest = _shell_options(words.arguments)
    has_text = any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option) for option in options)
    is_text = posixpath.basename(words.program) in _SHELLS and has_text and rest and len(rest[0]) <= _MOST_OF_LIST
    return f"{one_line(rest[0])} is a shell's text, as it is no JSON" if is_text and _LIST.fullmatch(rest[0]) else ""


def launched(words: Words, environment: Mapping[str, str]) -> tuple[Words, ...]:
    """Return what a program other than a shell is certain to start, with an image's environment; nothing if unknown."""
    name = posixpath.basename(words.program)
    if name == "su" or (
        name == "runuser" and not {"-u", "--user"} & {word.partition("=")[0] for word in words.arguments}
    ):
        return tuple(_of_su(words.arguments))
    if name == "busybox" and words.arguments:
        return launched(Words(words.arguments[0], words.arguments[1:]), environment)
    launcher = _LAUNCHERS.get(name)
    other = _after_options(words.arguments, launcher, name) if launcher else None
    if name == "env":
        other = _of_env(words.arguments, environment)
    if name == "chroot" and other:
        other = _in_root(other)
    needs = (Words(each) for each in launcher.needs) if launcher and other else ()
    return (*needs, other) if other else ()


def _after_options(arguments: Sequence[str], launcher: _Launcher, name: str) -> Words | None:
    rest, user = list(arguments), launcher.default
    if launcher.command and rest[:1] != [launcher.command]:
        return None
    if launcher.command or (name == "setarch" and not "".join(rest[:1]).startswith("-")):
        rest = rest[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in _ABOUT_ITSELF or (launcher.unknown and launcher.unknown.fullmatch(option)):
            return None
        option, _, value = option.partition("=")
        option = _last_of(option, launcher)
        if option[:2] in launcher.with_value and not value:  # as in `-uapp`
            option, value = option[:2], option[2:]
        if option in launcher.with_value and rest and not value:
            value = rest.pop(0)
        user = value if option in launcher.user else user
    user = rest[0] if launcher.by_user and rest else user
    return _program(rest[launcher.before :], launcher, name, user)


def _program(words: list[str], launcher: _Launcher, name: str, user: str) -> Words | None:
    """Return what a launcher starts, by the words after its options."""
    if name == "flock" and words[:1] in (["-c"], ["--command"]):
        words = ["/bin/sh", "-c", *words[1:]]
    if name == "sudo":
        words = list(dropwhile(ASSIGNMENT.fullmatch, words))
    if not words or words[0].startswith("-") or (launcher.loose and "/" not in words[0]):
        return None
    by_text = name != "gosu"  # which starts it as the kernel does
    return Words(words[0], tuple(words[1:]), by_text=by_text, user=user, loose=launcher.loose)


def _in_root(words: Words) -> Words | None:
    """Return what `chroot` starts in a root, its program so far; nothing is known of the accounts of another root."""
    root, user = words.program.rstrip("/"), words.user
    if not words.arguments or (root and user):
        return None
    return words._replace(program=words.arguments[0], arguments=words.arguments[1:], folder="/", root=root)


def _of_su(arguments: Sequence[str]) -> Iterator[Words]:
    """Yield what `su -c` starts; the accounts' settings may set PATH."""
    rest, others, text = list(arguments), list[str](), ""
    while rest:
        option, _, value = rest.pop(0).partition("=")
        if option in _TEXT_OF_SU:
            text = value or "".join(rest[:1])
            rest = rest if value else rest[1:]
        elif option in _OF_SU and not value:
            rest = rest[1:]
        elif not option.startswith("-"):
            others.append(option)
        elif option not in _FLAGS_OF_SU | _OF_SU:
            return
    if text and len(others) <= 1:
        yield Words("/bin/sh", ("-c", text), user="".join(others) or "root", loose=True)


def _last_of(option: str, launcher: _Launcher) -> str:
    """Return the last of several options of one letter, which alone may have a value, as in `-gp KILL`."""
    while re.match("-[A-Za-z]{2}", option) and option[:2] not in launcher.with_value:
        option = f"-{option[2:]}"
    return option


def _of_env(arguments: Sequence[str], environment: Mapping[str, str]) -> Words | None:
    rest = list(arguments)
    options = list(takewhile(_is_setting, rest))
    split = next((number for number, option in enumerate(options) if _SPLITS.match(option)), None)
    if split is not None:
        text = " ".join((_SPLITS.sub("", rest[split], count=1), *rest[split + 1 : split + 2]))
        if (words := _split(text, environment)) is None:
            return None
        rest[split : split + 2] = words
    folder, loose = "", False
    while rest and _is_setting(rest[0]):
        option, value = _option(rest)
        if option in {"-C", "--chdir"}:
            folder = value
        changed = value if option in {"-u", "--unset"} else option
        loose |= bool(re.fullmatch(r"-\w*i\w*|-|--ignore-.*", option) or LOOKED_UP.fullmatch(changed))
    if not rest or (loose and "/" not in rest[0]):
        return None
    return Words(rest[0], tuple(rest[1:]), folder=folder, must_enter=True, by_text=True, loose=loose)


def _is_setting(word: str) -> bool:
    """Return whether an argument of `env` is an option or a variable, whose name may have any characters."""
    return word.startswith("-") or "=" in word


def _option(rest: list[str]) -> tuple[str, str]:
    """Take an option of `env` or a variable from its arguments, and return its name and value."""
    option = rest.pop(0)
    if option in _WITH_VALUE and rest:
        return option, rest.pop(0)
    if option[:2] in _WITH_VALUE:  # as in `-C/app`
        return option[:2], option[2:]
    name, _, value = option.partition("=")
    return name, value


def _split(text: str, environment: Mapping[str, str]) -> list[str] | None:
    """Return the words that `env -S` makes; None with escapes of its own, or a variable that only a container has."""
    text = _VARIABLE.sub(lambda name: environment.get(name[1], name[0]), text)
    try:
        return None if re.search(r"[\\$#]", text) else shlex.split(text)
    except ValueError:
        return []


def _shell_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a shell's options, and the arguments after them."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith(("-", "+")) and "--" not in options:
        options.append(rest.pop(0))
        if re.fullmatch(r"[-+][a-zA-Z]*[oO]", options[-1]) and rest:
            options.append(rest.pop(0))
    return options, rest


def _content(options: Sequence[str], rest: Sequence[str], script: Callable[[str], Script | None]) -> tuple[str, str]:
    """Return the name of a shell's script, empty for a text of its own, and the text; it may be empty."""
    content = "".join(rest[:1])
    if any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option) for option in options):
        return "", content
    known = script(content) if content else None
    return content, known.text if known else ""


def _reads_files(options: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a shell reads files of its own first, which may set PATH, as a login shell does."""
    reads = any(option == "--login" or re.fullmatch(r"-[a-zA-Z]*[li][a-zA-Z]*", option) for option in options)
    return reads or any(re.match(r"(?:BASH_)?ENV$|BASH_FUNC_", name) for name in environment)


def followed(
    words: Words,
    environment: Mapping[str, str],
    script: Callable[[str], Script | None],
    uid: int,
    is_there: Callable[[str], bool],
    start: Callable[[Words], Refusal | None],
) -> Refusal | None:
    """Return why a shell's script starts nothing; None if it may start something, or if these words are no shell's.

    ``uid`` is that of the user. ``is_there`` returns whether the image has a file, and ``start`` why a program does not
    start.
    """
    is_applet = posixpath.basename(words.program) == "busybox" and bool(words.arguments)
    if is_applet:
        words = words._replace(program=words.arguments[0], arguments=words.arguments[1:])
    name = posixpath.basename(words.program)
    if name not in _SHELLS:
        return None
    options, rest = _shell_options(words.arguments)
    path, content = _content(options, rest, script)
    loose = is_applet or name not in _PLAIN_SHELLS or "CDPATH" in environment or _reads_files(options, environment)

    def refusal(asked: Asked) -> Refusal | None:
        if asked.sourced and name not in _PLAIN_SHELLS:
            return None
        known = tuple(word for word in asked.words if word is not None) or ("",)
        is_cut, is_loose = len(known) < len(asked.words), asked.loose or loose
        each = Words(known[0], known[1:], asked.folder, not asked.words, by_text=True, loose=is_loose, cut=is_cut)
        return start(each._replace(sourced=asked.sourced))

    own = path or "".join(rest[1:2]) or name  # the word after a text is its $0
    arguments: list[str | None] = [*rest[1 if path else 2 :]]
    content = with_own_folder(content, path) if path else content
    shell = Shell(own, uid, is_there, refusal, name == "bash", options)
    return entry_scripts.refusal(content, [*arguments, None] if words.cut else arguments, shell)
