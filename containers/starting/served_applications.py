"""Servers of Python applications: the module that one is certain to import when it starts.

Sources: uvicorn 0.54.0, uvicorn/main.py (`main`; its options are also variables, `auto_envvar_prefix`) and
uvicorn/importer.py; gunicorn 27.0.1, gunicorn/app/base.py (`chdir`, `load_config`) and gunicorn/config.py. Both were
started with and without the module. Several processes of uvicorn start a failed one again, and so does `--reload`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


def _options(names: str) -> frozenset[str]:
    return frozenset(names.split())


class Application(NamedTuple):
    """A ``module`` that a ``server`` imports, from a folder first; with its ``configuration`` there, all may differ."""

    server: str
    module: str
    folder: str
    configuration: str


class _Server(NamedTuple):
    """A server: its ``flags``, options with a value, and the one among them that names the folder of modules.

    Another option, or a variable that matches ``changed``, may change the imports.
    """

    flags: re.Pattern[str]
    with_value: frozenset[str]
    folder: str
    word: re.Pattern[str]
    changed: re.Pattern[str]
    configuration: str = ""


_SERVERS: Final[Mapping[str, _Server]] = {
    "uvicorn": _Server(
        re.compile("--(?:no-)?(?:proxy-headers|access-log|server-header|date-header|use-colors)|--factory"),
        _options(
            "--host --port --uds --loop --http --ws --interface --lifespan --log-level --root-path --app-dir "
            "--forwarded-allow-ips --limit-concurrency --timeout-keep-alive"
        ),
        "--app-dir",
        re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):.+"),
        re.compile("UVICORN_.*|WEB_CONCURRENCY"),
    ),
    "gunicorn": _Server(
        re.compile("--preload|--check-config"),
        _options(
            "-b --bind -w --workers -k --worker-class -t --timeout --threads --chdir --log-level --access-logfile "
            "--error-logfile --keep-alive --graceful-timeout --max-requests --max-requests-jitter --worker-tmp-dir "
            "--forwarded-allow-ips"
        ),
        "--chdir",
        re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::.+)?"),
        re.compile("GUNICORN_CMD_ARGS"),
        "gunicorn.conf.py",
    ),
}


def application(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Application | None:
    """Return what a Python with some arguments serves; None if that is not certain.

    ``module`` is what `-m` among the arguments names; without it, the first argument is the server's script.
    """
    rest = list(arguments)
    if module:
        rest = rest[2:] if rest[:2] == ["-m", module] else []
    elif rest:
        module = posixpath.basename(rest.pop(0))
    server = _SERVERS.get(module)
    if server is None or any(map(server.changed.fullmatch, environment)):
        return None
    words: list[str] = []
    folder = ""
    while rest:
        option, joined, value = rest.pop(0).partition("=")
        if not option.startswith("-"):
            words.append(f"{option}{joined}{value}")
            continue
        if re.fullmatch("-[a-z].+", option):  # as in `-w4`
            option, joined, value = option[:2], "=", option[2:]
        if option in server.with_value:
            value = value if joined else "".join(rest[:1])
            rest = rest if joined else rest[1:]
            folder = value if option == server.folder else folder
        elif joined or not server.flags.fullmatch(option):
            return None
    named = server.word.fullmatch(words[0]) if len(words) == 1 else None
    return Application(module, named["module"], folder, server.configuration) if named else None
