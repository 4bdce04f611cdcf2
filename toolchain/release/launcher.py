"""The command `slipway` of a wheel: it unpacks its release into the repository, and goes on with the code in there.

In a wheel this is the whole package `slipway`. It needs nothing but Python, and puts no other name in anybody's way.
"""

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

ARCHIVE = Path(__file__).with_name("release.tar.gz")
RELEASE = Path(".slipway", "release")
"""As :mod:`stacks.places` has it."""
_USAGE = """\
usage: slipway init FOLDER   make a repository of your own, with this release of Slipway
       slipway COMMAND ...   in such a repository: `slipway --help` lists the commands there
"""


def _repository() -> Path | None:
    """Return the repository that the working directory is in.

    One above it that is another user's, as in `/tmp`, does not count: its code would run.
    """
    here = Path.cwd()
    trusted = {0, os.geteuid(), here.stat().st_uid}
    for folder in (here, *here.parents):
        project = folder / "Pulumi.yaml"
        ours = project.is_file() and project.lstat().st_uid in trusted
        if ours and b"name: slipway" in project.read_bytes().splitlines():
            return folder
    return None


def _unpack(archive: bytes, folder: Path) -> None:
    """Unpack the release into a new folder."""
    with tempfile.TemporaryFile() as file:
        file.write(archive)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            tar.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.2 has none
            tar.extractall(folder)  # noqa: S202 - our own
    # Until the repository's pin was compared, the code in there does not run: see `check_pin` of own_repository.
    (folder / "checked").write_text(f"no release is checked yet\n{sys.executable} -m pip\n")
    (folder / "archive.sha256").write_text(hashlib.sha256(archive).hexdigest())


def _unpacked(root: Path) -> Path:
    """Return the folder with this release in a repository; another release that is there is replaced."""
    folder, archive = root / RELEASE, ARCHIVE.read_bytes()
    try:
        if (folder / "archive.sha256").read_text() == hashlib.sha256(archive).hexdigest():
            return folder
    except FileNotFoundError:
        pass
    folder.parent.mkdir(mode=0o711, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".release-") as scratch:
        _unpack(archive, Path(scratch, "new"))
        with suppress(FileNotFoundError):  # as a first one, or one that another process replaces
            folder.rename(Path(scratch, "old"))
        try:
            Path(scratch, "new").rename(folder)
        except OSError:
            if not folder.exists():  # another process was faster
                raise
    return folder


def _run(code: Path, words: list[str]) -> int:
    """Run a verb of the release's toolchain in this process, whose first packages are then the release's."""
    sys.path.insert(0, str(code))
    from toolchain.verbs import main as verb  # noqa: PLC0415 - it is unpacked by now

    return verb(words)


def _init(words: list[str]) -> int:
    sys.dont_write_bytecode = True  # the code is gone after it
    scratch = tempfile.mkdtemp(prefix="slipway-")
    try:
        _unpack(ARCHIVE.read_bytes(), Path(scratch, "release"))
        return _run(Path(scratch, "release"), ["init", *words])
    finally:
        shutil.rmtree(scratch)


def _go_on(words: list[str]) -> int:
    """Go on as the command of the repository that the working directory is in; return a status where it cannot."""
    root = _repository()
    if root is None:
        if not words or words[0] in {"-h", "--help"}:
            print(_USAGE.rstrip())
            return 0
        if words == ["--version"]:
            print(f"slipway {metadata.version('slipway')}")
            return 0
        print(
            f"slipway: {Path.cwd()} is in no folder with a Pulumi.yaml of Slipway: `slipway init FOLDER` makes one, "
            "where commands run",
            file=sys.stderr,
        )
        return 1
    venv = root / ".slipway" / "venv"
    # It would start itself without end. Path.resolve() fails at a link that leads to itself, up to Python 3.12.
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        print(
            f"slipway: {venv} has a wheel of Slipway, and is for what that needs alone: remove the folder, and use pip "
            "and slipway of an environment of yours, in a shell without `. .slipway/env`",
            file=sys.stderr,
        )
        return 1
    if status := _run(_unpacked(root), ["packages"]):
        return status
    program = venv / "bin" / "slipway"
    sys.stdout.flush()
    return os.execv(program, [str(program), *words])  # noqa: S606 - this process goes on as the command


def main() -> int:
    """Run the command; return its exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is where an older Python is told so
        print(f"slipway: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed", file=sys.stderr)
        return 1
    words = sys.argv[1:]
    try:
        return _init(words[1:]) if words[:1] == ["init"] else _go_on(words)
    except OSError as error:
        print(f"slipway: {error.filename or 'the folder'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("slipway: interrupted", file=sys.stderr)
        return 130
