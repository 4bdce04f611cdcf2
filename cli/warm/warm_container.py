"""What runs in a container of the image: it says what the machine is, or runs the script and writes out its caches.

The image's own Python runs it, from 3.7 on, with nothing but the standard library. Its arguments are the text of
``warm_hook.py``, and for a run the folder of the caches, the script's name and the seconds that it may take. The script
comes on standard input. Its standard output is an archive of regular files, which the reader does not trust: the script
may have changed all that this program does.

In a job's pod nobody describes the machine before: there the arguments are those of :func:`leave`, and the archive is a
file.
"""

from __future__ import annotations

import base64
import faulthandler
import hashlib
import json
import os
import signal
import socket
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
KEYED = ("image", "machine", "sha256", "torch", "triton")
"""What the name of the caches' folder is made of. A script that was only renamed does the same."""
FOLDER, RECORD, CACHES = "SLIPWAY_CACHES", "record.json", "caches.tar"
"""The variable that names the folder for what a job's pod leaves, and the two files in it."""


def key(values: Any) -> str:
    """Return the name of the caches' folder.

    A script runs at its path in the image: some names of cached files are made of it (pytorch 001077cbc0f3,
    torch/_inductor/codecache.py, AotCodeCompiler.compile: the wrapper's path is in the kernel's C++).
    """
    keyed = {name: values[name] for name in KEYED}
    return hashlib.sha256(json.dumps(keyed, sort_keys=True).encode()).hexdigest()[:16]


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


def description(names: Any) -> Any:
    """Return what the machine and the image are."""
    about = versions()
    about.update(machine=names["machine"](), python=sys.version.split()[0], uid=os.getuid(), gid=os.getgid())
    about["modules"] = os.path.realpath(sysconfig.get_path("purelib"))
    return about


def bytecode(text: str, path: str) -> Any:
    """Return the hook's bytecode as this Python reads it from its cache: the part of its name, and the bytes in Base64.

    It is taken as it is (PEP 552), like that of the image's other modules: its user could not write it.
    """
    try:
        from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]  # noqa: PLC0415
        from importlib.util import source_hash  # noqa: PLC0415 - of a Python that may be another than tested
    except ImportError:
        return None
    code = compile(text, path, "exec", dont_inherit=True, optimize=0)
    content = _code_to_hash_pyc(code, source_hash(text.encode()), False)
    return [sys.implementation.cache_tag, base64.b64encode(content).decode()]


def archive(root: Path, kinds: list[str], output: BinaryIO) -> None:
    """Write the regular files of the caches to an archive; name what is left out."""
    paths = [root / kind for kind in kinds if os.path.lexists(root / kind)]
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as target:
        for path in paths:  # grows: a script's folders may be deeper than Python calls functions
            name, reason = str(path.relative_to(root)), "is no regular file"
            try:
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode):
                    paths += sorted(path.iterdir())
                    continue
                file = path.open("rb") if stat.S_ISREG(mode) else None
            except OSError as error:
                file, reason = None, "cannot be read: " + str(error.strerror)
            if file is None:
                print(f"left out: {name} {reason}", file=sys.stderr)
                continue
            with file:
                member = target.gettarinfo(arcname=name, fileobj=file)
                member.type, member.linkname = tarfile.REGTYPE, ""
                member.size = os.fstat(file.fileno()).st_size
                target.addfile(member, file)


def run(names: Any, root: Path, name: str, content: bytes, output: BinaryIO, seconds: float | None = None) -> None:
    """Run the script with its caches in ``root``, and write these out. By default somebody else ends it in time."""
    folder = Path(tempfile.mkdtemp())
    script = folder / name
    script.write_bytes(content)
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
    try:
        status = subprocess.call(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, cwd=str(folder), timeout=seconds
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{name}: it was not done in {seconds:g} s: slipway:warm.seconds is the limit")
    except OSError as error:
        sys.exit(f"{name}: {error.strerror}: its first line must name a program of the image, as #!/bin/sh does")
    if os.getpid() == 1:  # what it left running writes no more
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    room = os.statvfs(str(root))
    if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
        sys.exit(FULL if seconds is None else f"{name}: its caches have no room left on the disk of {root}")
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        sys.exit(status if 0 < status < FULL else f"{name}: it {how}")
    archive(root, sorted(names["CACHES"]), output)


def leave(names: Any, image: str, name: str, script: str, seconds: str) -> None:
    """Run the script in this pod; leave its caches and the machine's description in a folder for the pushing job."""
    about, content = description(names), script.encode("latin-1")
    if not any(line.startswith("gpu ") for line in about["machine"]):
        sys.exit("this job's container has no GPU of NVIDIA's: start `warm` with the labels of runners whose jobs have")
    about.update(image=image, sha256=hashlib.sha256(content).hexdigest(), host=socket.gethostname())
    root, folder = Path(names["ROOT"], key(about)), Path(os.environ[FOLDER])
    try:
        root.mkdir(parents=True)
    except OSError as error:
        sys.exit(
            f"{root}: user {about['uid']} cannot make the folder of the caches ({error.strerror}): update the runners, "
            "whose pods have the one above; or, where others made these, have the image's Dockerfile make it, as root: "
            f"RUN mkdir -p -m 1777 {names['ROOT']}"
        )
    folder.mkdir()
    with (folder / CACHES).open("wb") as output:
        run(names, root, name, content, output, float(seconds))
    (folder / RECORD).write_text(json.dumps(about))


def main(text: str, *words: str) -> None:
    """Describe the machine, or run a script."""
    names = hook(text)
    if not words:
        about = description(names)
        about["bytecode"] = bytecode(text, about["modules"] + "/slipway_warm.py")
        print("\n" + json.dumps(about), flush=True)
    elif len(words) == 3:
        # Whoever started the container ends it before, unless they were killed.
        faulthandler.dump_traceback_later(float(words[2]), exit=True)
        run(names, Path(words[0]), words[1], sys.stdin.buffer.read(), sys.stdout.buffer)
    else:
        leave(names, *words)


if __name__ == "__main__":
    main(*sys.argv[1:])
