"""What runs in a container of the image: it says what the machine is, or runs the script and writes out its caches.

The image's own Python runs it, from 3.7 on, with nothing but the standard library. Its arguments are the text of
``warm_hook.py``, and for a run the folder of the caches and the script's name. The script comes on standard input.
What it writes to standard output is an archive of regular files, which the reader does not trust: the script may have
changed all that this program does.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

FULL = 87
"""The exit status where the caches' file system is full."""


def hook(text: str) -> Any:
    """Return the names that the hook's text defines."""
    names: dict[str, Any] = {"__name__": "slipway_warm"}
    exec(text, names)  # noqa: S102 - our own text
    return names


def versions() -> Any:
    """Return the versions of torch and Triton, empty where the image has none."""
    try:
        from importlib import metadata  # noqa: PLC0415 - Python 3.7 has none
    except ImportError:
        return {"torch": "", "triton": ""}
    result = {}
    for name in ("torch", "triton"):
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            result[name] = ""
    return result


def describe(names: Any) -> None:
    """Print what the machine and the image are, as one line of JSON."""
    about = versions()
    about.update(machine=names["machine"](), python=sys.version.split()[0], uid=os.getuid(), gid=os.getgid())
    about["modules"] = os.path.realpath(sysconfig.get_path("purelib"))
    print("\n" + json.dumps(about), flush=True)


def archive(root: Path, kinds: list[str], output: BinaryIO) -> None:
    """Write the regular files of the caches to an archive, in order."""
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as target:
        for path in sorted(path for kind in kinds for path in (root / kind).rglob("*")):
            name, mode = str(path.relative_to(root)), path.lstat().st_mode
            if stat.S_ISREG(mode):
                with path.open("rb") as file:
                    member = target.gettarinfo(arcname=name, fileobj=file)
                    member.type, member.linkname = tarfile.REGTYPE, ""
                    member.size = os.fstat(file.fileno()).st_size
                    target.addfile(member, file)
            elif not stat.S_ISDIR(mode):
                print(f"left out: {name} is no regular file", file=sys.stderr)


def run(names: Any, root: Path, name: str) -> None:
    """Run the script with its caches in ``root``, and write these out."""
    folder = Path(tempfile.mkdtemp())
    script = folder / name
    script.write_bytes(sys.stdin.buffer.read())
    script.chmod(0o700)
    caches = {variable: root / kind for kind, variable in names["CACHES"].items()}
    for cache in caches.values():
        cache.mkdir()
    environment = {
        **os.environ,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **{key: str(caches[key]) for key in caches},
    }
    command = [sys.executable, str(script)] if name.endswith(".py") else [str(script)]
    status = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=2, env=environment, cwd=str(folder))
    if os.getpid() == 1:  # what it left running writes no more
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    room = os.statvfs(str(root))
    if room.f_bavail == 0 or room.f_favail == 0:
        sys.exit(FULL)
    if status:
        sys.exit(status if 0 < status < FULL else 1)
    archive(root, sorted(names["CACHES"]), sys.stdout.buffer)


def main(text: str, *run_in: str) -> None:
    """Describe the machine, or run a script."""
    names = hook(text)
    if run_in:
        run(names, Path(run_in[0]), run_in[1])
    else:
        describe(names)


if __name__ == "__main__":
    main(*sys.argv[1:])
