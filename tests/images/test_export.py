"""Exports of a real image, read by what they are made for: the engine, skopeo, unsquashfs, pip."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from containers.image.registry_image import fetch
from tests.fakes.package_index import wheel
from tests.helpers.machine_programs import have
from tests.helpers.needs import mounting
from tests.images.engine import Image, base_image, client, docker, unique
from toolchain.machine import pip

DOCKERFILE = """FROM {parent}
RUN mkdir -p /a/b /opaque /own && echo one > /a/b/one && ln /a/b/one /a/same && echo gone > /a/gone && touch /opaque/x \
 && ln -s one /a/b/link && ln -s "/$(head -c 150 /dev/zero | tr '\\0' l)" /a/far && chmod 4755 /a/b/one && mkfifo /a/pipe && truncate -s 5M /a/sparse && mkdir -m 0700 /a/closed \
 && touch -d 1999-01-01 "/a/$(printf 'n\\303\\251')" && touch "/a/$(head -c 200 /dev/zero | tr '\\0' l)"
RUN rm -r /a/gone /opaque && mkdir /opaque && echo y > /opaque/y && echo two > /a/b/one && chown -R 1000:1000 /own
RUN ln /a/same /own/late && rm -r /usr/share/doc && mkdir -p /a/b/deep && rm /etc/rc*.d/* -f && ln -s a /through && echo z > /through/z
COPY dist /dist
ENV GREETING="hello you"
WORKDIR /work/here
ENTRYPOINT ["/bin/sh", "-c", "echo $GREETING in $PWD: $@", "sh"]
CMD ["it's", "fine"]
"""
GREETING = "hello you in /work/here: it's fine"


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    """Have the programs that read exports, and the one that makes a squashfs."""
    have("mksquashfs", "skopeo")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of several layers, which hide and link what others have; it is pushed."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "dist").mkdir()
    wheel(folder / "dist", "slipway-one", "1.0")
    wheel(folder / "dist", "slipway-two", "2.0", ["slipway-one==1.0"])
    (folder / "Dockerfile").write_text(DOCKERFILE.format(parent=base_image()))
    name = f"{os.environ['SLIPWAY_REGISTRY']}/{unique('export')}"
    docker("build", "--tag", name, folder)
    docker("push", name)
    yield Image(name)
    docker("image", "rm", "--force", name)


@pytest.fixture(scope="module")
def squashfs(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its squashfs."""
    output = tmp_path_factory.mktemp("squashfs") / "app.sqsh"
    assert export(image, "--format", "sqsh", "--output", output) == 0
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    return output


def export(image: Image, *words: str | Path) -> int:
    return main(["export", image.tag, *map(str, words)])


def test_archive_is_loaded_and_run_by_the_engine(image: Image, tmp_path: Path) -> None:
    before = image.id()
    assert export(image, "--format", "tar", "--output", tmp_path / "app.tar") == 0
    docker("image", "rm", "--force", image.tag)
    assert f"Loaded image: {image.tag}" in docker("load", "--input", tmp_path / "app.tar").stdout
    assert image.id() == before
    assert image.run().strip() == GREETING


@pytest.mark.parametrize(("form", "transport"), [("oci", "oci"), ("tar", "oci-archive"), ("tar", "docker-archive")])
def test_archive_layers_are_read_by_skopeo(image: Image, form: str, transport: str, tmp_path: Path) -> None:
    assert export(image, "--format", form, "--output", tmp_path / "app") == 0
    name = image.tag if transport == "docker-archive" else image.tag.rpartition(":")[2]
    target = tmp_path / "read"
    subprocess.run(
        ["skopeo", "copy", "--quiet", "--insecure-policy", f"{transport}:{tmp_path}/app:{name}", f"dir:{target}"],
        check=True,
    )
    manifest = json.loads((target / "manifest.json").read_text())
    config = json.loads((target / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    assert config["rootfs"]["diff_ids"] == image.diff_ids()
    assert config["config"]["Env"] == image.config()["Config"]["Env"]


FileState = tuple[str, int, str]
"""Kind, mode, and content: a file's hash and time, a link's target."""
ENGINES = {".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"}
"""Files that the engine adds to every container."""
ENROOTS = {"etc/environment", "etc/fstab", "etc/rc", "etc/rc.local"}


def contained(image: Image) -> dict[str, FileState]:
    """Return the files of an image's container, as the engine exports them."""
    container = docker("create", image.tag).stdout.strip()
    states: dict[str, FileState] = {}
    exporting = subprocess.Popen([client(), "export", container], stdout=subprocess.PIPE)
    with exporting, tarfile.open(fileobj=exporting.stdout, mode="r|") as archive:
        for member in archive:
            path = member.name.rstrip("/")
            if member.isdir():
                states[path] = ("folder", member.mode & 0o7777, "")
            elif member.issym():
                states[path] = ("link", 0o777, member.linkname)
            elif member.islnk():
                states[path] = states[member.linkname]
            elif content := archive.extractfile(member):
                digest = hashlib.sha256(content.read()).hexdigest()
                states[path] = ("file", member.mode & 0o7777, f"{digest} {int(member.mtime)}")
            else:
                states[path] = ("special", member.mode & 0o7777, "")
    docker("rm", container)
    return states


def unsquashed(root: Path) -> dict[str, FileState]:
    """Return the files of an unpacked squashfs; each belongs to the user who unpacked it."""
    states: dict[str, FileState] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
            mode, key = status.st_mode & 0o7777, str(path.relative_to(root))
            if path.is_symlink():
                states[key] = ("link", 0o777, str(path.readlink()))
            elif path.is_dir():
                states[key] = ("folder", mode, "")
            elif path.is_file():
                states[key] = ("file", mode, f"{hashlib.sha256(path.read_bytes()).hexdigest()} {int(status.st_mtime)}")
            else:
                states[key] = ("special", mode, "")
    return states


def test_squashfs_has_the_files_of_a_container(image: Image, squashfs: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", root, squashfs], check=True)
    inside, outside = contained(image), unsquashed(root)
    excluded = {path for path in inside if path.startswith("dev/")} | ENGINES | ENROOTS
    expected = {path: state for path, state in inside.items() if path not in excluded}
    assert len(expected) > 1000
    assert {path: state for path, state in outside.items() if path not in ENGINES | ENROOTS} == expected
    assert set(outside) >= ENROOTS
    assert outside["a/z"][0] == "file"
    assert (root / "own/late").samefile(root / "a/same")
    assert not (root / "a/same").samefile(root / "a/b/one")
    assert "GREETING=hello you" in (root / "etc/environment").read_text().splitlines()
    ran = subprocess.run(
        [*mounting(), "/usr/sbin/chroot", root, "env", "GREETING=hello you", "/bin/sh", "/etc/rc"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == GREETING


def test_squashfs_unpacks_without_root(squashfs: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, squashfs.open("rb") as opened:
        words = ["unsquashfs", "-quiet", "-no-progress", "-dest", f"{folder}/root", f"/proc/self/fd/{opened.fileno()}"]
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
        done = subprocess.run(words, pass_fds=[opened.fileno()], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_squashfs_on_full_disk_is_one_line(image: Image, tmp_path: Path) -> None:
    size = fetch(image.tag).size
    # Enough at the start; another program then takes half of the disk.
    script = (
        f"mount -t tmpfs -o size={2 * size + (2 << 20)} none {tmp_path} && head -c {size} /dev/zero > {tmp_path}/other "
        f'&& "$@"; status=$?; ls -A {tmp_path}; exit $status'
    )
    program = (
        "import sys, shutil; from types import SimpleNamespace; "
        "shutil.disk_usage = lambda _: SimpleNamespace(free=1 << 40); "
        "from cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, "export", image.tag, "--format", "sqsh", "--output", f"{tmp_path}/app.sqsh"]
    done = subprocess.run([*mounting(), "sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"{tmp_path}/app.sqsh: no space left on its disk; nothing was kept"
    assert done.stdout == "other\n"


def test_wheels_outside_a_container_install_and_import(image: Image, tmp_path: Path) -> None:
    assert export(image, "--wheels", tmp_path / "wheels") == 0
    pip.environment(tmp_path / "venv", tmp_path / "venv.log")
    python = tmp_path / "venv/bin/python"
    words: list[str | Path] = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        tmp_path / "wheels",
        "slipway-two",
    ]
    subprocess.run([python, *words], check=True)
    versions = "import slipway_one, slipway_two; print(slipway_one.__version__, slipway_two.__version__)"
    output = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=True)
    assert output.stdout == "1.0 2.0\n"
