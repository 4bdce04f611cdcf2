"""Layers of packages from the Python index and from Debian, for images that no engine builds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from containers.image.layers.layer import LayerIndex
from tests.helpers.folder_image import index
from tests.images.engine import Image, base_image, docker, unique

ENVIRONMENT: Final = "opt/venv"
SITE: Final = f"{ENVIRONMENT}/lib/python3.11/site-packages"
PLATFORM: Final = "x86_64-manylinux_2_36"
"""Debian 12."""
Wheels = Callable[..., LayerIndex]
Debian = Callable[..., LayerIndex]
_DOWNLOAD: Final = (
    "echo deb http://deb.debian.org/debian {suite} main > /etc/apt/sources.list; rm -f /etc/apt/sources.list.d/*; "
    "apt-get -o Acquire::Check-Valid-Until=false update -qq && cd /tmp && apt-get download -qq {packages} > /dev/null && "
    "mkdir root && for deb in *.deb; do dpkg-deb -x $deb root; done && tar -C root -c . > /out/files.tar"
)
_INSTALL: Final = "RUN dpkg --add-architecture arm64 && apt-get update -qq && apt-get install -y --no-install-recommends {packages} && apt-get clean"


class DebianImage(NamedTuple):
    """An image of Debian in the engine, and its files."""

    image: Image
    files: LayerIndex


def _unpacked(archive: Path) -> Path:
    folder = archive.with_suffix("")
    folder.mkdir()
    subprocess.run(["tar", "-C", folder, "-xf", archive], check=True)
    archive.unlink()
    return folder


def debian_image(folder: Path, *packages: str) -> DebianImage:
    """Return Debian with further packages installed."""
    install = _INSTALL.format(packages=" ".join(packages)) if packages else ""
    return files_of(folder, f"FROM {base_image()}\n{install}\n")


def files_of(folder: Path, dockerfile: str) -> DebianImage:
    """Return the image of a Dockerfile without a context."""
    image, container = Image(unique("files")), unique("files").replace("/", "-").replace(":", "-")
    docker("build", "--tag", image.tag, "-", text=dockerfile)
    docker("create", f"--name={container}", image.tag, "true")
    try:
        docker("export", f"--output={folder / 'files.tar'}", container)
    finally:
        docker("rm", container)
    return DebianImage(image, index(_unpacked(folder / "files.tar")))


def debian_packages(folder: Path, suite: str, *packages: str) -> LayerIndex:
    """Return the files of packages of a release of Debian, not of what they require."""
    script = _DOWNLOAD.format(suite=suite, packages=" ".join(packages))
    docker("run", "--rm", f"--volume={folder}:/out", "--user=0", base_image(), "sh", "-c", script)
    return index(_unpacked(folder / "files.tar"))


def install_wheels(
    folder: Path, cache: Path, *requirements: str, alone: bool, newest: str = "", platform: str = PLATFORM
) -> None:
    """Install wheels into an environment.

    Args:
        folder: the environment, which gets what wheels have beside their packages too.
        cache: downloaded wheels.
        requirements: what to install.
        alone: without what they require.
        newest: the last day of a release; empty for today.
        platform: what `uv` calls it.
    """
    command = ["uv", "pip", "install", "--quiet", "--only-binary=:all:", f"--prefix={folder}", f"--cache-dir={cache}"]
    command += ["--python-version=3.11", f"--python-platform={platform}", *(["--no-deps"] if alone else [])]
    command += [f"--exclude-newer={newest}"] if newest else []
    subprocess.run([*command, *requirements], check=True)
    [packages] = folder.glob("lib/python3.*")  # named for the Python that runs this
    packages.rename(folder / Path(SITE).relative_to(ENVIRONMENT).parent)
