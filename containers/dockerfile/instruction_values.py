"""What BuildKit refuses in an instruction that it can parse: flags, mounts, times, ports, signals, names of images.

The rules are those of moby/buildkit v0.26.3 (``frontend/dockerfile``: ``instructions/bflag.go``, ``parse.go`` and
``commands_run*.go``, ``dockerfile2llb/convert.go`` and ``convert_expose.go``, ``dfgitutil/git_ref.go``), and of its
containerd/platforms, moby/sys/signal, go-digest and dchapes-mode. A value that only the build knows is left to it.
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from decimal import Decimal
from urllib.parse import parse_qsl, unquote, urlsplit

from containers.dockerfile.instructions import HEREDOC, Instruction, declarations, json_array, pairs
from containers.errors import one_line

_UNKNOWN = "\0"
Value = Callable[[str], str | None]
"""Returns a word's value; None where only the build knows it."""

_BOOLEAN = "1|0|t|f|T|F|true|false|TRUE|FALSE|True|False"
_SWITCHES = {"keep-git-dir", "link", "parents", "unpack"}
_REPEATED = {"device", "exclude", "mount"}
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TIME = re.compile(rf"([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)({'|'.join(_UNITS)})")
_TIMES_ALONE = re.compile(f"(?:{_TIME.pattern})*")  # else a long text is searched anew from each digit
_MOST = (1 << 63) - 1
"""The largest integer of Go."""
_DEVICE_OPTION = rf"(?i:required)(?:=(?:{_BOOLEAN}))?"
_FLAGS = {
    **dict.fromkeys(_SWITCHES, ("true or false", "(?i:true|false)")),
    "device": ("a name", f"(?:(?:{_DEVICE_OPTION})?,)*[^,]+(?:,{_DEVICE_OPTION})*"),
    "mount": ("options such as type=cache,target=/x", ".+"),
    "network": ("default, none or host", "default|none|host"),
    "retries": ("a number of at most 2147483647", r"|[-+]?[0-9]+"),
    "security": ("sandbox or insecure", "sandbox|insecure"),
}
"""What a flag's value must be: in words, and as a regular expression. Any value will do for another flag."""
_NOTHING = "(?!)"
_TIMES = ("interval", "start-interval", "start-period", "timeout")
_HEALTHCHECK = re.compile(r"(?i:NONE)|(?i:CMD)[\t\v\f\r ]+(?!\[\s*\]$).+", re.DOTALL)
_OPTIONS = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly", "rw": "readwrite"}
"""Other names of a mount's options."""
_MOUNT = {
    **dict.fromkeys(("from", "source", "target", "id", "env"), ("a value", ".*")),
    "type": ("bind, cache, tmpfs, secret or ssh", "(?i:bind|cache|tmpfs|secret|ssh)"),
    "sharing": ("shared, private or locked", "(?i:shared|private|locked)"),
    "mode": ("octal digits", "0*[0-7]{1,10}"),
    **dict.fromkeys(("uid", "gid"), ("a number", "0*[0-9]{1,10}")),
    "size": ("a size such as 512m", r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e\+?[0-9]{1,2})? ?(?i:b|[kmgtp](?:i?b)?)?"),
    **dict.fromkeys(("readonly", "readwrite", "required"), ("true or false", _BOOLEAN)),
}
"""A mount's options, as :data:`_FLAGS`."""
_TYPES = {
    "required": ("secret", "ssh"),
    "size": ("tmpfs",),
    "sharing": ("cache",),
    **dict.fromkeys(("mode", "uid", "gid"), ("secret", "ssh", "cache")),
    "from": ("bind", "cache", "tmpfs", "ssh"),
    "source": ("bind", "cache", "tmpfs", "secret"),
}
"""The types of mounts that have an option."""
_MODE = re.compile(r"0*[0-7]{1,4}|[ugoa]*(?:[-+=][ugorstwxX]*)+(?:,[ugoa]*(?:[-+=][ugorstwxX]*)+)*")
REMOTE = re.compile(r"https?://|(?i:git|ssh)://|[A-Za-z0-9_-]+@[A-Za-z0-9.-]+:")
"""How a source of ``ADD`` begins that is no path in the context."""
_PORTS = re.compile(r"\+?0*([0-9]{1,9})(?:-\+?0*([0-9]{1,9}))?")
_PROTOCOL = re.compile("/(tcp|udp|sctp)?$", re.IGNORECASE)
_HTTP_CHECKSUM = re.compile("sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_GIT_SWITCHES = ("keep-git-dir", "submodules", "fetch-by-commit")
_GIT_QUERY = {
    **dict.fromkeys(("ref", "tag", "branch", "subdir", "checksum", "commit"), ("a value", ".+")),
    **dict.fromkeys(_GIT_SWITCHES, ("true or false", f"|{_BOOLEAN}")),
    "mtime": ("checkout or commit", "checkout|commit"),
}
"""Queries of a git address, as :data:`_FLAGS`. v0.31.0 added ``fetch-by-commit`` and ``mtime``."""
_SIGNAL = re.compile(
    "[-+]?0*[1-9][0-9]{0,18}|(?i:(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT"
    r"|RTMIN(?:\+(?:[1-9]|1[0-5]))?|RTMAX(?:-(?:[1-9]|1[0-4]))?|SEGV|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ))"
)
_PLATFORM = re.compile(
    r"[A-Za-z0-9_-]+(?:\([A-Za-z0-9_.%+-]*\))?(?:/[A-Za-z0-9_.-]+){1,2}"
    "|(?i:aix|android|darwin|dragonfly|freebsd|hurd|illumos|ios|js|linux|macos|nacl|netbsd|openbsd|plan9|solaris|windows|zos"
    r"|386|i386|amd64|x86_64|x86-64|amd64p32|arm|armhf|armel|armbe|arm64|aarch64|arm64be|loong64|mips\w*|ppc\w*"
    "|riscv(?:64)?|s390x?|sparc(?:64)?|wasm)"
)
"""A platform. A system or a processor is one by itself (containerd/platforms, ``database.go``). v0.31.0 takes
``%`` and ``+`` in the version of a system (``platforms.go:127``)."""


def flaw(each: Instruction) -> str:
    """Return what is wrong with an instruction whatever the values of its variables; empty for nothing."""
    used = set()
    is_none = each.keyword == "HEALTHCHECK" and each.rest.upper() == "NONE"  # whose flags nobody reads
    for flag in () if is_none else each.flags:
        name, equals, value = flag[2:].partition("=")
        if name in used and name not in _REPEATED:
            return f"--{name} is given twice; keep one"
        used.add(name)
        expected, pattern = _FLAGS.get(name, ("a value", ".*"))
        fits = re.fullmatch(pattern, value, re.DOTALL) if equals else name in _SWITCHES
        if not fits or (name == "retries" and not 0 <= _integer(value or "0") < 1 << 31):
            return f"{one_line(flag)}: expected --{name}= and {expected}"
        time = nanoseconds(value) if name in _TIMES else 0
        if time is None or 0 < time < _UNITS["ms"]:
            return f"{one_line(flag)}: expected --{name}= and a time of at least 1ms, such as 1m30s"
        if name == "mount":
            try:
                _row(value)
            except csv.Error as error:
                return f"{one_line(flag)}: {error}"
    match each.keyword:
        case "HEALTHCHECK" if not _HEALTHCHECK.fullmatch(each.rest):
            return f"{one_line(each.rest) or 'nothing'}: expected NONE, or CMD and a command"
        case "COPY" | "ADD" if each.heredocs and HEREDOC.fullmatch(each.words[-1]):
            return f"{one_line(each.words[-1])}: expected a path as the target"
    return ""


def words(each: Instruction, escape: str, given: Container[str]) -> Sequence[str]:
    """Return the words in which BuildKit replaces variables; the defaults of ``given`` arguments are not read."""
    match each.keyword:
        case "ARG":
            return [default for name, default in declarations(each, escape) if default and name not in given]
        case "ENV" | "LABEL":
            return [word for pair in pairs(each, escape) for word in pair]
        case "ADD" | "COPY":
            return [*_paths(each), *(each.flag(name) or "" for name in ("chown", "chmod", "checksum"))]
        case "EXPOSE" | "VOLUME":
            return each.words
        case "STOPSIGNAL" | "USER" | "WORKDIR":
            return [each.rest]
        case "FROM":
            return [each.words[0], each.flag("platform") or ""]
    return [value for mount in mounts(each) for name, _, value in mount if name != "from"]


def documents(each: Instruction) -> Sequence[str]:
    r"""Return the here-documents in which BuildKit replaces variables, always with ``\`` as the escape character.

    Quotes have no meaning there (``convert.go:935``). What stands for them here has none in a word.
    """
    if each.keyword not in ("ADD", "COPY"):
        return ()
    names = (match["name"] for match in map(HEREDOC.fullmatch, each.words) if match and match["name"])
    texts = zip(names, each.heredocs, strict=False)
    return [re.sub("['\"]", ".", text) for name, text in texts if name.isidentifier()]


def flaw_of_values(each: Instruction, value: Value) -> str:
    """Return what is wrong with the values of an instruction; empty for nothing."""
    match each.keyword:
        case "FROM" if platform := each.flag("platform"):
            return _unexpected(value(platform), _PLATFORM, "a platform such as linux/amd64")
        case "RUN" if json_array(each.rest) == []:
            return "[]: expected a command"
        case "RUN":
            return next(filter(None, (_flaw_of_mount(mount, value) for mount in mounts(each))), "")
        case "ADD" | "COPY":
            return _flaw_of_copy(each, value)
        case "EXPOSE":
            ports = (port for word in each.words for port in (value(word) or "").split())
            return next(filter(None, map(_flaw_of_port, ports)), "")
        case "VOLUME" if "" in map(value, each.words):
            return f"{one_line(each.rest)}: expected a path"
        case "STOPSIGNAL":
            signal = value(each.rest)
            pattern = _SIGNAL if abs(_integer(signal or "")) <= _MOST else re.compile(_NOTHING)
            return _unexpected(signal, pattern, "a signal such as SIGTERM or 15")
    return ""


def _unexpected(text: str | None, pattern: re.Pattern[str], expected: str) -> str:
    if text is None or pattern.fullmatch(text):
        return ""
    return f"{one_line(text) or 'nothing'}: expected {expected}"


def _flaw_of_port(port: str) -> str:
    if ports(port):
        return ""
    return f"{one_line(port)}: expected a port of at most 65535, such as 80, 80/udp or 80-90"


def ports(text: str) -> Sequence[str]:
    """Return the ports of a word of ``EXPOSE``, each with its protocol; nothing for what is none."""
    *address, host, own = text.split(":") if ":" in text else ("", text)
    protocol = _PROTOCOL.search(own)
    inner = _range(own[: protocol.start()] if protocol else own)
    outer = _range(host)
    if (host and not outer) or (outer and len(inner) not in (1, len(outer))):
        return ()
    if ip := ":".join(address):
        try:
            ipaddress.ip_address(ip[1:-1] if ip.startswith("[") else ip)
        except ValueError:
            return ()
    return [f"{port}/{(protocol[1] if protocol else None) or 'tcp'}".lower() for port in inner]


def _range(text: str) -> range:
    """Return the ports from the first to the last one; nothing for any other text."""
    match = _PORTS.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    return range(first, last + 1) if last < 1 << 16 else range(0)


def _integer(text: str) -> int:
    """Return the number that decimal digits are, of the first 20 alone, as no engine takes more; 0 for another text."""
    digits = re.fullmatch("([-+]?)0*([0-9]+)", text)
    return int(digits[1] + digits[2][:20]) if digits else 0


def nanoseconds(text: str) -> int | None:
    """Return the nanoseconds of a time as Go writes it, such as ``1m30s``; None for any other text, and below zero."""
    number = re.sub("^[-+]", "", text)
    if number == "0" or not text:
        return 0
    if not number or not _TIMES_ALONE.fullmatch(number):
        return None
    total = sum(int(min(Decimal(part), Decimal(_MOST + 1)) * _UNITS[unit]) for part, unit in _TIME.findall(number))
    return total if total <= (0 if text.startswith("-") else _MOST) else None


def _paths(each: Instruction) -> Sequence[str]:
    """Return the words of a ``COPY`` or an ``ADD`` that are no here-documents, with the target."""
    return [word for word in each.words if not each.heredocs or not HEREDOC.fullmatch(word)]


def mounts(each: Instruction) -> Sequence[Sequence[tuple[str, str, str]]]:
    """Return the mounts of a ``RUN``, each with its options as name, equals sign and value."""
    values = [value for name, _, value in (flag.partition("=") for flag in each.flags) if name == "--mount"]
    return [[_option(*option.partition("=")) for option in _row(value)] for value in values]


def _row(mount: str) -> list[str]:
    """Return the options of a mount, which BuildKit reads as CSV. Raises csv.Error."""
    return next(csv.reader([mount], strict=True), [])


def _option(name: str, equals: str, value: str) -> tuple[str, str, str]:
    return _OPTIONS.get(name.lower(), name.lower()), equals, value


def _flaw_of_mount(mount: Sequence[tuple[str, str, str]], value: Value) -> str:
    given = {"type": "bind"}
    for name, equals, written in mount:
        if name not in _MOUNT:
            return f"--mount: {one_line(name) or 'nothing'}: expected one of {', '.join(_MOUNT)}"
        expected, pattern = _MOUNT[name]
        if not equals and pattern != _BOOLEAN:
            return f"--mount: {name}: expected {name}= and {expected}"
        # BuildKit reads these two in their order
        if name in ("required", "size") and given["type"] not in (_UNKNOWN, *_TYPES[name]):
            return f"--mount: {name}: expected type={' or type='.join(_TYPES[name])} before it"
        text = written if name == "from" else value(written) if equals else "true"
        if flaw := _unexpected(text, re.compile(pattern, re.DOTALL), expected):
            return f"--mount: {name}={flaw}"
        given[name] = _UNKNOWN if text is None else text.lower() if name == "type" else text
    kind = given["type"]
    for name, kinds in _TYPES.items():
        if given.get(name) and kind not in (_UNKNOWN, *kinds):
            return f"--mount: {name}: expected type={' or type='.join(kinds)}, not type={kind}"
    names = [bool(given.get(name)) for name in ("id", "source", "target")]
    if kind == "secret" and (not any(names) or all(names[:2])):
        return "--mount: type=secret: expected id=, and no source="
    return ""


def _flaw_of_copy(each: Instruction, value: Value) -> str:
    mode, checksum = value(each.flag("chmod") or ""), value(each.flag("checksum") or "")
    if mode and not _MODE.fullmatch(mode):
        return f"--chmod={one_line(mode)}: expected octal digits of at most 7777, or a mode such as u+x"
    *sources, _ = _paths(each)
    if checksum and len(sources) != 1:
        return "--checksum: expected one source"
    for source in filter(None, map(value, sources)):
        if checksum and not REMOTE.match(source):
            return f"--checksum: {one_line(source)}: expected an address of http or git"
        if each.keyword == "ADD" and (flaw := _flaw_of_address(source, each, checksum)):
            return f"{one_line(source)}: {flaw}"
    if each.keyword == "COPY" and not each.flag("from"):
        for source in filter(None, map(value, sources)):
            if REMOTE.match(source):
                return f"{one_line(source)}: expected a path; ADD fetches addresses"
    return ""


def _flaw_of_address(address: str, each: Instruction, checksum: str | None) -> str:
    """Return what is wrong with an address of git, or with the checksum of another one."""
    with suppress(ValueError):  # which git finds
        parts = urlsplit(address)
        if re.match("https?://", address) and not unquote(parts.path).endswith(".git"):
            return _unexpected(checksum or None, _HTTP_CHECKSUM, "--checksum=sha256: and 64 digits")
        pairs = parts.query if REMOTE.match(address) else ""
        if re.match("[A-Za-z]+://", address):
            # Go's Query() leaves these out: net/url/url.go, parseQuery
            pairs = "&".join(pair for pair in pairs.split("&") if not re.search(";|%(?![0-9A-Fa-f]{2})", pair))
        given = parse_qsl(pairs, keep_blank_values=True)
        queries = dict(given)
        for name, value in given:
            expected, pattern = _GIT_QUERY.get(name, (f"one of {', '.join(_GIT_QUERY)}", _NOTHING))
            if not re.fullmatch(pattern, value):
                return f"?{one_line(name)}={one_line(value)}: expected {expected}"
        ref, _, folder = unquote(parts.fragment).partition(":")
        tag, branch = queries.get("tag", ""), queries.get("branch", "")
        one = {
            "ref": {ref, queries.get("ref", ""), _prefixed("refs/tags/", tag), _prefixed("refs/heads/", branch)},
            "subdir": {folder, queries.get("subdir", "")},
            "checksum": {checksum or "", queries.get("checksum", queries.get("commit", ""))},
            "keep-git-dir": {_switch(each.flag("keep-git-dir")), _switch(queries.get("keep-git-dir"))},
            "each query": set(map(str, range(len(given) - len(queries) + 1))),
        }
        if name := next((name for name, values in one.items() if len(values - {""}) > 1), ""):
            return f"expected one value of {name}"
    return ""


def _prefixed(prefix: str, name: str) -> str:
    return name and f"{prefix}{name.removeprefix(prefix)}"


def _switch(value: str | None) -> str:
    return "" if value is None else str(value.lower() in ("", "1", "t", "true"))
