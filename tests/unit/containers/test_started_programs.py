"""What an image starts, on written files; tests/images/test_started.py has real containers beside it."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from containers.image.binaries import contents
from containers.image.binaries.elf_file import AARCH64, ARM, I386, PLATFORM_MACHINES, X86_64, ElfMachine
from containers.image.layers.layer import Entry, index
from containers.starting import started_programs
from tests.helpers.elf_writer import LOADER, elf, static_32
from tests.helpers.every import every
from tests.helpers.image_files import BASE, SITE, Files, image

PROGRAM = elf(interpreter=LOADER)
APP: Files = {
    "usr/bin/env": PROGRAM,
    "usr/bin/tini": PROGRAM,
    "usr/bin/su-exec": PROGRAM,
    "bin/sh": PROGRAM,
    "usr/local/bin/python3.11": PROGRAM,
    "usr/local/bin/python3": "->python3.11",
    "opt/venv/pyvenv.cfg": "home = /usr/local/bin",
    "opt/venv/bin/python": "->/usr/local/bin/python3.11",
    "opt/venv/bin/serve": "#!/opt/venv/bin/python\nimport app\n",
    "opt/started.py": "x",
    "etc/passwd": "root:x:0:0::/root:\napp:x:1000:1000::/home/app:",
    "etc/group": "root:x:0:\nvideo:x:44:app",
    f"{SITE}/app-1.0.dist-info/RECORD": "app/__init__.py,sha256=AAAA,1\n",
    f"{SITE}/app/__init__.py": "",
}
PATH = "PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
Config = Mapping[str, Any]


def lines(
    files: Files,
    config: Config,
    modes: Mapping[str, tuple[int, int]] | None = None,
    machine: ElfMachine = X86_64,
    base: Mapping[str, bytes | str] = BASE,
) -> list[str]:
    read = image(files, {"Env": [PATH], **config}, base, modes)
    return [str(fault) for fault in started_programs.faults(read, machine, "linux/amd64")]


def entry(*words: str, **more: object) -> Config:
    return {"Entrypoint": list(words), **more}


@every(
    "config",
    [
        entry("serve"),
        entry("/opt/venv/bin/serve", "--port=1"),
        entry("bin/serve", WorkingDir="/opt/venv"),
        entry("tini", "-g", "--", "serve"),
        entry("env", "A=1", "-u", "B", "serve"),
        entry("su-exec", "app:app", "serve"),
        entry("/bin/sh", "-c", "set -e; A=1 exec serve --port=$PORT && touch x"),
        entry("/bin/sh", "-c", "cd /app && ./gone"),
        entry("/bin/sh", "-c", "PATH=/x gone"),
        entry("/bin/sh", "-c", "$COMMAND"),
        entry("/bin/sh", "-c", "'unfinished"),
        entry("/bin/sh", "-lc", "gone"),
        entry("/bin/sh", "/mounted/start.sh"),
        entry("/bin/sh", "-c", "cd /opt/venv && bin/serve"),
        entry("/bin/sh", "-c", "cd $FOLDER && ./gone"),
        entry("/bin/sh", "-c", "cd /opt/venv; cd /gone; ./gone"),
        entry("/bin/sh", "-c", "cd venv && ./gone", WorkingDir="/opt", Env=[PATH, "CDPATH=/x"]),
        entry("/bin/sh", "-c", "exec -a name serve"),
        entry("/bin/sh", "-c", "gone || serve"),
        entry("/bin/sh", "-c", "gone; serve"),
        entry("/bin/sh", "-c", "echo > run; ./run"),
        entry("/bin/sh", "-c", "export PATH=/x; gone"),
        entry("/bin/sh", "-c", "serve", "gone"),
        entry("/bin/sh", "-c", "serve", Env=["PATH=:/bin"], WorkingDir="/opt/venv/bin"),
        entry("env", "-S", "${GONE}serve"),
        entry("env", "-S", "se\\_rve"),
        entry("env", "-C", "/opt/venv", "bin/serve"),
        entry("env", "-i", "gone"),
        entry("python", "-m", "app.main", WorkingDir="/mounted"),
        entry("python", "-m", "json.tool"),
        entry("python", "-c", "x", "-m", "gone"),
        entry("python", "-m", "started", WorkingDir="/opt"),
        {"Cmd": ["serve"], "Healthcheck": {"Test": ["NONE"]}},
        {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD-SHELL", "python3 -c x || exit 1"]}},
        {"Cmd": None, "Entrypoint": None, "Healthcheck": None},
        {"Cmd": [], "Healthcheck": {"Test": []}},
        {"Healthcheck": {"Test": "curl"}},
        {"Healthcheck": ["x"]},
    ],
)
def test_program_that_starts_is_no_fault(config: Config) -> None:
    setuid = {"usr/bin/su-exec": (0o4755, 0)}
    assert lines(APP, config, setuid) == lines(APP, {**config, "User": "app"}, setuid) == []


GONE = "no folder of PATH has gone"


@every(
    "files, config, expected",
    [
        ({}, entry("gone"), f"/: does not start as Entrypoint: {GONE}"),
        ({}, {"Cmd": ["gone"]}, f"/: does not start as Cmd: {GONE}"),
        ({}, entry("/gone"), "/gone: does not start as Entrypoint: /gone does not exist"),
        ({}, entry(""), "/: does not start as Entrypoint: its program has no name"),
        ({}, entry("serve --port 1"), "/: does not start as Entrypoint: no folder of PATH has serve --port 1"),
        ({}, entry("/opt/venv"), "/opt/venv: does not start as Entrypoint: /opt/venv is a directory"),
        ({}, entry("tini", "--", "gone"), f"/usr/bin/tini: does not start as Entrypoint: {GONE}"),
        ({}, entry("tini", "-g", "gone"), f"/usr/bin/tini: does not start as Entrypoint: {GONE}"),
        ({}, entry("tini", "-p", "KILL", "gone"), f"/usr/bin/tini: does not start as Entrypoint: {GONE}"),
        ({"usr/bin/gosu": PROGRAM}, entry("tini", "--", "gosu", "app", "gone"), f"/usr/bin/tini: does not start as Entrypoint: {GONE}"),
        ({}, entry("env", "-S", "A=1 gone"), f"/usr/bin/env: does not start as Entrypoint: {GONE}"),
        ({}, entry("env", "-Sgone-S"), f"/usr/bin/env: does not start as Entrypoint: {GONE}-S"),
        ({}, entry("/bin/sh", "-c", "gone --x"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-ec", "cd /x; exec gone"), None),
        ({"x": "->y", "y": "->x"}, entry("/x"), "/x: does not start as Entrypoint: /x is a cycle of links"),
        ({"x": ""}, entry("/x"), "/x: does not start as Entrypoint: /x is empty"),
        ({"x": "text"}, entry("/x"), "/x: does not start as Entrypoint: /x has no #!, and is no program"),
        ({"x": "#!"}, entry("/x"), "/x: does not start as Entrypoint: #! of /x names no program"),
        ({"x": f"#!/{'y' * 4096}"}, entry("/x"), "/x: does not start as Entrypoint: #! of /x is longer than the 256 bytes that the kernel reads"),
        ({"x": f"#!/bin/sh -{'e' * 4096}\n"}, entry("/x"), None),
        ({"x": "#!/bin/sh\r\n"}, entry("/x"), "/x: does not start as Entrypoint: #! of /x ends with a carriage return, which is a part of the name: the file has line ends of Windows"),
        ({"x": "#!/usr/bin/env -S gone -u\n"}, entry("/x"), f"/x: does not start as Entrypoint: {GONE}"),
        ({"x": "#! /usr/bin/env python3"}, entry("/x"), None),
        ({"x": elf(machine=183, interpreter="/lib/ld")}, entry("/x"), "/x: does not start as Entrypoint: /x is for aarch64, the image for x86-64"),
        ({"x": elf(interpreter="/opt/ld"), "opt/ld": elf(machine=183)}, entry("/x"), "/x: does not start as Entrypoint: /opt/ld, the loader of /x, is for aarch64"),
        ({"x": elf(interpreter="/lib/ld-musl-x86_64.so.1")}, entry("/x"), "/x: does not start as Entrypoint: /lib/ld-musl-x86_64.so.1 does not exist"),
        ({"x": "#!/bin/sh\nexec \"$@\"\n"}, entry("/x", "gone"), f"/x: does not start as Entrypoint: {GONE}"),
        ({"x": "#!/bin/sh\n. /y\nexec \"$@\"\n"}, entry("/x", "gone"), None),
        ({"opt/venv/bin/tini/readme": "x"}, entry("tini", "serve"), None),
        ({"x": "#!/bin/sh\nexec \"$@\"\n"}, entry("/x", "/gone"), "/x: does not start as Entrypoint: /gone does not exist"),
        ({"x": "#!/bin/sh\nexec \"$@\"\n"}, entry("/x", "--help"), None),
        ({}, {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD", "gone"]}}, f"/: does not start as Healthcheck: {GONE}"),
        ({}, {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD-SHELL", "gone -f || exit 1"]}}, f"/bin/sh: does not start as Healthcheck: {GONE}"),
        ({}, {"Healthcheck": {"Test": ["CMD-SHELL", "serve"]}, "Shell": ["/bin/zsh", "-c"]}, "/bin/zsh: does not start as Healthcheck: /bin/zsh does not exist"),
        ({}, entry("/bin/sh", "-c", "cd /opt/venv && ./gone"), "/bin/sh: does not start as Entrypoint: /opt/venv/gone does not exist"),
        ({}, entry("/bin/sh", "-c", "cd opt && cd venv; exec ./gone"), "/bin/sh: does not start as Entrypoint: /opt/venv/gone does not exist"),
        ({}, entry("/bin/sh", "-c", "cd /bin/sh && ./gone"), "/bin/sh: does not start as Entrypoint: /bin/sh is no folder"),
        ({}, entry("/bin/sh", "-c", "exec ./gone", WorkingDir="/opt"), "/bin/sh: does not start as Entrypoint: /opt/gone does not exist"),
        ({}, entry("/bin/sh", "-c", "set -e\ncd /opt\nexec ./gone\n"), "/bin/sh: does not start as Entrypoint: /opt/gone does not exist"),
        ({}, entry("/bin/sh", "-c", "cd /opt || exit 1; ./gone"), "/bin/sh: does not start as Entrypoint: /opt/gone does not exist"),
        ({}, entry("/bin/sh", "-o", "pipefail", "-c", "gone"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", 'exec "$@"', "sh", "gone"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", "gone > /log 2>&1"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-ec", "gone; serve"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, {"Cmd": ["serve"], "Healthcheck": {"Test": ["CMD-SHELL", "cd /opt && ./gone"]}}, "/bin/sh: does not start as Healthcheck: /opt/gone does not exist"),
        ({}, entry("env", "-C", "/opt", "./gone"), "/usr/bin/env: does not start as Entrypoint: /opt/gone does not exist"),
        ({}, entry("env", "-i", "/gone"), "/usr/bin/env: does not start as Entrypoint: /gone does not exist"),
        ({}, entry("env", "-S", "/gone${ROOT}", Env=[PATH, "ROOT=/x"]), "/usr/bin/env: does not start as Entrypoint: /gone/x does not exist"),
        ({"usr/bin/timeout": PROGRAM}, entry("timeout", "-s", "INT", "9", "gone"), f"/usr/bin/timeout: does not start as Entrypoint: {GONE}"),
        ({"usr/bin/gosu": PROGRAM}, entry("gosu", "nobody", "serve"), "/usr/bin/gosu: does not start as Entrypoint: /etc/passwd has no user nobody"),
        ({"x": "text"}, entry("tini", "/x"), None),
        ({"x": "#!/usr/bin/env -S serve -u\r\n"}, entry("/x"), None),
        ({}, entry("serve", Env=["PATH=:/bin"], WorkingDir="/opt/venv/bin"), "/: does not start as Entrypoint: no folder of PATH has serve"),
        ({}, entry("serve", Env=["PATH="]), "/: does not start as Entrypoint: no folder of PATH has serve"),
        ({}, entry("python", "-m", "gone.main"), "/opt/venv/bin/python: does not start as Entrypoint: Python 3.11 has no module gone"),
        ({}, entry("python", "-um", "app.gone"), f"/opt/venv/bin/python: does not start as Entrypoint: /{SITE}/app has no module gone"),
        ({}, entry("python", "-m", "app"), f"/opt/venv/bin/python: does not start as Entrypoint: /{SITE}/app is a package without __main__"),
        ({f"{SITE}/editable.pth": "/src"}, entry("python", "-m", "gone"), None),
        ({f"{SITE}/_virtualenv.pth": "import x"}, entry("python", "-m", "gone"), "/opt/venv/bin/python: does not start as Entrypoint: Python 3.11 has no module gone"),
        ({f"{SITE}/gone.abi3.so": elf()}, entry("python", "-W", "error", "-m", "gone"), None),
        ({}, entry("/bin/sh", "-c", "cd /etc && exec python -m started"), "/bin/sh: does not start as Entrypoint: Python 3.11 has no module started"),
        ({}, entry("python", Env=[PATH, "PYTHONHOME=/gone"]), "/opt/venv/bin/python: does not start as Entrypoint: PYTHONHOME=/gone has no encodings of Python 3.11"),
        ({"x": "#!/bin/sh\n'''exec' '/gone/python' \"$0\" \"$@\"\n' '''\nimport app\n"}, entry("/x"), "/x: does not start as Entrypoint: /gone/python does not exist"),
        ({"x": "#!/bin/sh\n'''exec' '/opt/venv/bin/python' \"$0\" \"$@\"\n' '''\nimport app\n"}, entry("/x"), None),
        ({"x": '#!/bin/sh\nD=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &> /dev/null && pwd)\nexec "$D/gone"\n'}, entry("/x"), "/x: does not start as Entrypoint: /gone does not exist"),
        ({"x": '#!/bin/sh\nif [ "${1#-}" != "$1" ]; then\n  set -- serve "$@"\nfi\nexec "$@"\n'}, entry("/x", "gone"), f"/x: does not start as Entrypoint: {GONE}"),
        ({"x": "#!/bin/sh\nif [ \"${1:0:1}\" = '-' ]; then\n  set -- serve \"$@\"\nfi\nexec \"$@\"\n"}, entry("/x", "-gone"), None),
        ({"x": '#!/bin/sh\nif [ -z "$1" ]; then\n  set -- a\nelif [ "${1#-}" != "$1" ]; then\n  set -- b "$@"\nfi\nexec "$@"\n'}, entry("/x", "gone"), f"/x: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", "['gone', '--x']"), "/bin/sh: does not start as Entrypoint: ['gone', '--x'] is a shell's text, as it is no JSON"),
        ({}, entry("/bin/sh", "-c", '[ "gone", "--x", ]'), "/bin/sh: does not start as Entrypoint: [ \"gone\", \"--x\", ] is a shell's text, as it is no JSON"),
        ({}, entry("/bin/sh", "-c", "[ 'x' ]"), None),
        ({}, entry("/bin/sh", "-c", "['x'] || exec serve"), None),
        ({}, entry("/bin/sh", "-c", '[ -n "$A" ] && export B=1; test -f /x || exit 3; exec gone'), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", "[ -f /x ] && exit 0; exec gone"), None),
        ({}, entry("/bin/sh", "-c", "[ -f /x ] || PATH=/y; exec gone"), None),
        ({}, entry("/bin/sh", "-c", "[ -f /x ] || . /y; exec gone"), None),
        ({}, entry("/bin/sh", "-c", "[ -f /x ] | cat & exec gone"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", "until nc -z db 1; do sleep 1; done\nexec gone"), f"/bin/sh: does not start as Entrypoint: {GONE}"),
        ({}, entry("/bin/sh", "-c", "while [ -z x ]; do PATH=/y; done; exec gone"), None),
        ({}, entry("/bin/sh", "-c", "until [ -x /opt/gone ]; do sleep 1; done; exec /opt/gone"), None),
        ({}, entry("/bin/sh", "-c", "cd /opt; until test -f gone; do sleep 1; done; exec ./gone"), None),
        ({}, entry("/bin/sh", "-c", "while true; do sleep 1; done; exec gone"), None),
        ({"srv/app/x.py": ""}, entry("python", "-m", "app.gone", WorkingDir="/srv"), None),
        ({"srv/web/x.py": ""}, entry("python", "-m", "web.gone", WorkingDir="/srv"), "/opt/venv/bin/python: does not start as Entrypoint: /srv/web has no module gone"),
        ({"srv/web/x.py": "", f"{SITE}/editable.pth": "/src"}, entry("python", "-m", "web.gone", WorkingDir="/srv"), None),
        ({"srv/x.py": ""}, entry("python", "-m", "web.gone", WorkingDir="/srv", Volumes={"/srv/web": {}}), None),
        ({"opt/venv/bin/python": "->/usr/local/bin/python3.12"}, entry("tini", "serve"), "/usr/bin/tini: does not start as Entrypoint: /usr/local/bin/python3.12, where /opt/venv/bin/python leads, does not exist"),
    ],
)  # fmt: skip
def test_program_that_does_not_start_is_a_fault(files: Files, config: Config, expected: str | None) -> None:
    assert [line for line in lines({**APP, **files}, config) if "does not start as" in line] == [expected][
        : bool(expected)
    ]


@every("count, starts", [(5, True), (6, False)])
def test_chain_of_scripts_ends_where_the_kernel_ends_it(count: int, *, starts: bool) -> None:
    chain: Files = {f"s{number}": f"#!/s{number - 1}\n" for number in range(1, count + 1)}
    result = lines({**APP, **chain, "s0": PROGRAM}, entry(f"/s{count}"))
    assert result == ([] if starts else [f"/s{count}: does not start as Entrypoint: #! leads on more than 5 times"])


@every(
    "modes, expected",
    [
        ({"opt/venv/bin/serve": (0o644, 0)}, "/opt/venv/bin/serve: does not start as Entrypoint: user {user} may not run /opt/venv/bin/serve, whose mode is 0644"),
        ({"opt/venv/bin/serve": (0o711, 0)}, "/opt/venv/bin/serve: does not start as Entrypoint: user app may not read /opt/venv/bin/serve, whose mode is 0711"),
        ({"opt/venv": (0o700, 0)}, "/opt/venv/bin/serve: does not start as Entrypoint: user app may not enter /opt/venv"),
        ({"usr/local/bin/python3.11": (0o700, 0)}, "/opt/venv/bin/serve: does not start as Entrypoint: user app may not run /usr/local/bin/python3.11, whose mode is 0700"),
        ({"lib64/ld-linux-x86-64.so.2": (0o700, 0)}, "/opt/venv/bin/serve: does not start as Entrypoint: user app may not run /lib64/ld-linux-x86-64.so.2, whose mode is 0700"),
        ({"opt/venv": (0o700, 1000)}, None),
        ({"opt/venv": (0o750, 44)}, None),
        ({"opt/venv/bin/serve": (0o700, 1000)}, None),
    ],
)  # fmt: skip
def test_program_is_started_as_the_image_s_user(modes: Mapping[str, tuple[int, int]], expected: str | None) -> None:
    for user in ("app", "root"):
        only_app = expected is None or "user app" in expected
        result = lines(
            APP,
            entry("serve", User=user),
            modes,
            base={**BASE, "lib64/ld-linux-x86-64.so.2": BASE["lib64/ld-linux-x86-64.so.2"]},
        )
        wanted = [expected.format(user=user)] if expected and not (user == "root" and only_app) else []
        assert [line for line in result if "as Entrypoint" in line] == wanted, user


@every(
    "user, expected",
    [
        ("1234", []),
        ("1234:44", []),
        ("app:video", []),
        ("+1000:+44", []),
        (
            "9" * 5000,
            [f"/etc/passwd: missing {'9' * 5000}: /etc/passwd has no user {'9' * 5000}, which the image names"],
        ),
        ("gone", ["/etc/passwd: missing gone: /etc/passwd has no user gone, which the image names"]),
        ("app:gone", ["/etc/passwd: missing app:gone: /etc/group has no group gone, which the image names"]),
    ],
)
def test_user_of_image_must_exist(user: str, expected: Sequence[str]) -> None:
    assert lines(APP, entry("serve", User=user)) == expected


def test_ids_that_are_no_numbers_are_root_s() -> None:
    """As in a container: moby's reader of the file leaves such a field at 0."""
    files = {**APP, "etc/passwd": "odd:x:none:none::/:\n"}
    assert lines(files, entry("serve", User="odd"), {"opt/venv": (0o700, 0)}) == []


@every("user, starts", [("5000", False), ("5000:44", True), ("01000", True), ("app", True)])
def test_number_is_an_id_and_no_name(user: str, *, starts: bool) -> None:
    files = {**APP, "etc/passwd": "root:x:0:0::/root:\napp:x:1000:1000::/:\n5000:x:0:0::/:"}
    closed = {"opt/venv": (0o750, 44)}
    assert (lines(files, entry("/opt/venv/bin/serve", User=user), closed) == []) == starts


ACCOUNTS = [
    "sudo -E -u {}",
    "sudo -u{} --",
    "runuser --user={} --",
    "runuser -u {}",
    "chpst -o 9 -u {}",
    "s6-setuidgid {}",
]


@every("launcher", ACCOUNTS)
def test_program_is_started_as_the_launcher_s_user(launcher: str) -> None:
    files, closed = {**APP, f"usr/bin/{launcher.split(maxsplit=1)[0]}": PROGRAM}, {"opt/venv/bin": (0o700, 0)}
    assert lines(files, entry(*launcher.format("root").split(), "/opt/venv/bin/serve"), closed) == []
    found = lines(files, entry(*launcher.format("app").split(), "/opt/venv/bin/serve"), closed)
    assert [line.partition(": user ")[2] for line in found] == ["app may not enter /opt/venv/bin"]


def test_program_is_started_as_the_user_of_gosu() -> None:
    files, closed = {**APP, "usr/bin/gosu": PROGRAM}, {"opt/venv/bin": (0o700, 0)}
    reason = "user app may not enter /opt/venv/bin"
    assert lines(files, entry("gosu", "root", "serve"), closed) == []
    assert lines(files, entry("gosu", "app", "/opt/venv/bin/serve"), closed) == [
        f"/usr/bin/gosu: does not start as Entrypoint: {reason}"
    ]


def test_user_that_may_not_change_the_user_is_a_fault() -> None:
    files: Files = {
        **APP,
        "usr/bin/gosu": PROGRAM,
        "run": '#!/bin/sh\nif [ "$(id -u)" = 0 ]; then exec gosu app "$@"; fi\nexec "$@"\n',
    }
    [line] = lines(files, entry("gosu", "app", "serve", User="app"))
    assert line.endswith(
        "user app may not change the user with /usr/bin/gosu, which has neither the setuid bit nor capabilities"
    )
    assert lines(files, entry("gosu", "app", "serve", User="app"), {"usr/bin/gosu": (0o4755, 0)}) == []
    assert lines(files, entry("gosu", "app", "serve")) == lines(files, entry("/run", "serve", User="app")) == []
    seen = image(files, {**entry("gosu", "app", "serve", User="app"), "Env": [PATH]})
    seen.entries["usr/bin/gosu"] = with_capabilities("usr/bin/gosu", PROGRAM)
    assert started_programs.faults(seen, X86_64, "linux/amd64") == []


def with_capabilities(path: str, content: bytes) -> Entry:
    """Return the entry of a program as an engine's archive has it."""
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.pax_headers = len(content), 0o755, {"SCHILY.xattr.security.capability": "\1\0\0\2"}
    layer = io.BytesIO(member.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512 + 1024))
    return index(layer, "application/vnd.oci.image.layer.v1.tar", facts=contents.facts).entries[path]


ENTRY_POINT = "#!/opt/venv/bin/python\n# -*- coding: utf-8 -*-\nimport re\nimport sys\n{} import main\nif __name__ == '__main__':\n    main()\n"


@every(
    "start, expected",
    [
        ("from app", []),
        ("from gone.cli", ["Python 3.11 has no module gone"]),
        ("from app.gone", ["/opt/venv/lib/python3.11/site-packages/app has no module gone"]),
        ("from json.gone", []),
        ("try:\n    from gone", []),
        ("if __name__ == '__main__':\n    from gone", ["Python 3.11 has no module gone"]),
    ],
)
def test_entry_point_without_its_module_is_a_fault(start: str, expected: list[str]) -> None:
    files = {**APP, "opt/venv/bin/serve": ENTRY_POINT.format(start)}
    added = {**files, f"{SITE}/__editable__.gone-1.0.pth": "/src"}
    of_another = expected if "app.gone" in start else []
    for read, faults in ((files, expected), (added, of_another)):
        assert [line.partition("Entrypoint: ")[2] for line in lines(read, entry("tini", "--", "serve"))] == faults


@every(
    "config, reason",
    [
        (entry("$HOME/serve"), "/$HOME/serve does not exist"),
        (entry("~/serve"), "/~/serve does not exist"),
        (entry(" bin/sh"), "/ bin/sh does not exist"),
        (entry("python3.11", "/opt/venv"), "/opt/venv is a folder without __main__.py"),
        (entry("/bin/sh", "-ec", "source /opt/gone.sh; exec serve"), "/opt/gone.sh does not exist"),
        (entry("/bin/sh", "-c", ". /opt/activate && exec serve"), "/opt/activate does not exist"),
        (
            entry("/bin/sh", "-c", ". ./gone.bash || exit 1; exec serve", WorkingDir="/opt"),
            "/opt/gone.bash does not exist",
        ),
        (entry("/bin/sh", "-c", ". ./gone.sh && serve", WorkingDir="/mounted"), ""),
        (entry("/bin/sh", "-c", ". /opt/gone.sh; exec serve"), "/opt/gone.sh does not exist"),
        (entry("/bin/sh", "-c", "[ -e /x ] && . /opt/gone.sh; exec serve"), ""),
        (entry("/bin/sh", "-c", ". /opt/started.py && exec gone"), ""),
        (entry("/bin/sh", "-c", ". /mounted/gone.sh && exec serve"), ""),
        (entry("/bin/sh", "-c", ". /vault/secrets/config.sh && exec serve"), ""),
        (entry("/bin/sh", "-c", "set -a; . /opt/.env && exec serve"), ""),
        (entry("/bin/sh", "-c", "[ ! -e /x ] || . /opt/gone.sh; exec serve"), ""),
        (entry("/bin/sh", "-c", "set -e; echo > /opt/gone.sh; . /opt/gone.sh; exec serve"), ""),
        (entry("python3.11", "/opt/venv/lib"), "/opt/venv/lib is a folder without __main__.py"),
        (entry("python3.11", "-c", "x"), ""),
        (entry("python3.11", "/mounted"), ""),
        (entry("/bin/sh", "-c", 'cd "$(dirname "$1")"; exec python3.11 opt/venv/lib'), ""),
    ],
)
def test_home_is_a_shells_and_a_file_may_be_mounted(config: Config, reason: str) -> None:
    found = lines(APP, config, {"mounted": (0o755, 0)})
    assert [line.partition("Entrypoint: ")[2] for line in found] == ([reason] if reason else [])


def test_folder_to_start_in_that_is_a_file_is_a_fault() -> None:
    result = lines(APP, entry("serve", WorkingDir="/opt/started.py"))
    assert result == [
        "/opt/started.py: is no WorkingDir: /opt/started.py, where the image starts, is no folder",
    ]


def test_image_without_a_program_for_its_platform_is_a_fault() -> None:
    files: Files = {
        "bin/app": elf(machine=183, interpreter="/lib/ld-linux-aarch64.so.1"),
        "lib/a.so": elf("a.so", machine=183),
    }
    assert lines(files, entry("/bin/app"), base={}) == ["/: missing programs for linux/amd64: 2 files are for aarch64"]
    assert lines(files, {}, machine=AARCH64, base={}) == []
    assert lines({"data": "x", "gpu.cubin": elf(machine=190)}, {}, base={}) == []
    beside: Files = {"usr/lib/app": files["bin/app"], "bin/app-arm64": files["bin/app"], "bin/b": PROGRAM}
    assert lines({**beside, "lib/a.so": files["lib/a.so"]}, {}) == [], "files for another processor may be data"
    assert lines({**files, "bin/b": PROGRAM}, {}) == [
        "/bin/app: cannot be run: it is for aarch64, the image for x86-64"
    ]


BUILT = {"amd64": elf(), "arm64": elf(machine=183), "386": static_32(3), "arm": static_32(40)}


@every("platform", BUILT)
@every("built", BUILT)
def test_image_with_programs_of_another_platform_is_a_fault(platform: str, built: str) -> None:
    config, machine = entry("/bin/app"), PLATFORM_MACHINES[platform]
    alone = image({"bin/app": BUILT[built]}, config, {})
    beside = image({"bin/app": BUILT[built], "bin/other": BUILT[platform]}, config, {})
    runs = built == platform or (platform, built) == ("amd64", "386")
    results = [started_programs.faults(read, machine, f"linux/{platform}") for read in (alone, beside)]
    assert [len(result) for result in results] == ([0, 0] if runs else [1, 1])
    if not runs:
        assert results[0][0].missing == f"missing programs for linux/{platform}"
        assert results[1][0].file == "/bin/app"


@every(
    "files, expected",
    [
        ({"opt/venv/bin/python": "->/root/python3.12"}, "/opt/venv/bin/python: does not start: /root/python3.12, where /opt/venv/bin/python leads, does not exist"),
        ({"opt/venv/bin/python": elf(machine=183, interpreter=LOADER)}, "/opt/venv/bin/python: does not start: /opt/venv/bin/python is for aarch64, the image for x86-64"),
        ({"opt/venv/bin/python": "->/usr/bin/python3.12", "usr/bin/python3.12": PROGRAM}, "/opt/venv/bin/python: missing its packages: it is Python 3.12, as /usr/bin/python3.12; they are of Python 3.11"),
    ],
)  # fmt: skip
def test_python_of_each_environment_starts(files: Files, expected: str) -> None:
    assert lines({**APP, **files}, {"Cmd": ["sh"]}) == [expected]


def test_environment_in_a_cache_or_out_of_reach_is_no_fault() -> None:
    broken: Files = {
        f"{place}/{name}": content
        for place in ("root/.cache/uv/builds/x", "root/env", f"{SITE}/virtualenv/x")
        for name, content in {"pyvenv.cfg": "", "bin/python": "->/gone"}.items()
    }
    assert lines({**APP, **broken}, entry("serve", User="app"), {"root": (0o700, 0)}) == []


def test_packages_must_be_readable_by_the_user() -> None:
    modes = {f"{SITE}/app": (0o700, 0), f"{SITE}/app/__init__.py": (0o600, 0)}
    closed = f"/{SITE}/app: is closed to Python: user app may not read it, nor 1 other paths of /opt/venv"
    assert lines(APP, entry("serve", User="app"), modes) == [closed]
    assert lines(APP, entry("serve"), modes) == []
    system = {"usr/local/lib/python3.11/site-packages/x.py": "x", "usr/lib/python3/dist-packages/y.py": "y"}
    of_system = lines({**APP, **system}, {"Cmd": ["python3"], "User": "app"}, dict.fromkeys(system, (0o640, 0)))
    assert len(of_system) == 2, of_system


def test_library_of_started_program_must_be_readable() -> None:
    files = {**APP, "bin/p": elf(needed=["liba.so"], interpreter=LOADER), "lib64/liba.so": elf("liba.so")}
    closed = {"lib64/liba.so": (0o700, 0)}
    reason = "user app may not read /lib64/liba.so, whose mode is 0700; needed by /bin/p"
    assert lines(files, entry("/bin/p", User="app"), closed) == [f"/lib64/liba.so: cannot be loaded: {reason}"]
    assert lines(files, entry("/bin/p"), closed) == []


@every(
    "files, starts",
    [
        ({}, False),
        ({"usr/lib/python3.11/encodings/__init__.py": ""}, True),  # where it may be built for
        ({"opt/py/lib/python311.zip": "PK"}, True),
        ({"gone/bin/python3.11": PROGRAM}, True),
        ({"opt/venv/pyvenv.cfg": "home = /gone/bin\n"}, True),
    ],
)
def test_copied_python_without_its_modules_is_a_fault(files: Files, *, starts: bool) -> None:
    """As of `venv --copies` in another stage of a Dockerfile."""
    settings = "home = /gone/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n"
    copied: Files = {"opt/venv/pyvenv.cfg": settings, "opt/venv/bin/python": PROGRAM, **files}
    reason = "/opt/venv/bin/python: does not start: its pyvenv.cfg has the home /gone/bin, which does not exist"
    assert [line.partition(", and")[0] for line in lines(copied, {})] == ([] if starts else [reason])


@every(
    "setting, name",
    [
        ("Entrypoint", "Entrypoint[1]"),
        ("Cmd", "Cmd[1]"),
        ("Env", "Env A"),
        ("Healthcheck", "Healthcheck.Test[1]"),
    ],
)
def test_text_that_the_kernel_does_not_take_is_a_fault(setting: str, name: str) -> None:
    """Tried: this machine's kernel, with pages of 4 KiB, takes 131,071 bytes, and no more."""
    cases = (
        (131_071, X86_64, False),
        (131_072, X86_64, True),
        (131_072, I386, True),
        (131_072, ARM, True),
        (200_000, AARCH64, False),
    )
    for size, machine, refused in cases:
        text = "A=\ud800".ljust(size - 2, "x")  # three bytes, as the U+FFFD that engines read
        words = ["CMD" if setting == "Healthcheck" else "/x", text]
        config = {"Entrypoint": ["/x"], setting: {"Test": words} if setting == "Healthcheck" else words}
        read = image({"x": "no program"}, config, base={})
        lines = [str(one) for one in started_programs.faults(read, machine, "linux/any") if name in str(one)]
        reason = f"it has {size:,} bytes, the kernel takes 131,071; shorten it"
        assert lines == ([f"/: starts nothing with {name}: {reason}"] if refused else [])


LAUNCHED: Files = {
    **APP,
    **{f"usr/bin/{name}": "#!/bin/sh\n" for name in ("xvfb-run", "conda")},
    **dict.fromkeys(["usr/bin/xauth", "usr/bin/Xvfb", "usr/bin/micromamba"], PROGRAM),
    **{f"opt/venv/bin/{name}": "#!/opt/venv/bin/python\n" for name in ("poetry", "torchrun")},
    **{
        f"{SITE}/{path}/__init__.py": "" for path in ("torch", "torch/distributed", "accelerate", "accelerate/commands")
    },
    **dict.fromkeys([f"{SITE}/torch/distributed/run.py", f"{SITE}/accelerate/commands/launch.py"], ""),
    "srv/train.py": "",
}
GONE = "/srv/gone does not exist"


@every(
    "words, missing, reason",
    [
        ("xvfb-run -a -s '-screen 0 1x1x8' /srv/gone", "", GONE),
        ("xvfb-run -a serve", "", ""),
        ("xvfb-run -a serve", "usr/bin/xauth", "no folder of PATH has xauth"),
        ("xvfb-run --help /srv/gone", "", ""),
        ("conda run -n app --no-capture-output /srv/gone", "", GONE),
        ("conda run -n app gone", "", ""),
        ("conda run --cwd /srv ./gone", "", ""),
        ("conda list /srv/gone", "", ""),
        ("micromamba run -n app /srv/gone", "", GONE),
        ("micromamba run -n app python /srv/gone.py", "", "/srv/gone.py does not exist, which micromamba is to run"),
        ("poetry run python /srv/gone.py", "", "/srv/gone.py does not exist, which poetry is to run"),
        ("poetry run python /srv/train.py", "", ""),
        ("poetry show python /srv/gone.py", "", ""),
        ("python -m torch.distributed.run --nproc-per-node 2 /srv/train.py", "", ""),
        ("python -m torch.distributed.run --nproc-per-node 2 /srv/x.py", "", "/srv/x.py does not exist, which python is to run"),
        ("python -m accelerate.commands.launch --multi_gpu /srv/train.py", "", ""),
        ("python -m accelerate.commands.launch --multi_gpu /srv/x.py", "", "/srv/x.py does not exist, which python is to run"),
    ],
)  # fmt: skip
def test_launchers_of_displays_and_environments(words: str, missing: str, reason: str) -> None:
    files: Files = {path: content for path, content in LAUNCHED.items() if path != missing}
    found = [line.partition(" does not start as Entrypoint: ")[2] for line in lines(files, entry(*shlex.split(words)))]
    assert found == [reason][: bool(reason)]
