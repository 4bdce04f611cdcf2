"""The Docker engine that the image tests build with, through its command-line client."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from docker import DockerClient

from containers.blob import BlobUnreadable
from containers.image.layers.layer import members, opened
from containers.image.registry_image import fetch
from stacks.identity.content import CHECKS
from toolchain.provider.build_reach import without_secrets

DOCKERFILES = Path(__file__).parents[2] / "dockerfiles"
CHECKED = f"--target={CHECKS}"
"""The flag that builds an image's checks."""


@cache
def base_image() -> str:
    """Return the Debian that the images under test stand on, which the engine has: the mirror's, where there is one.

    The BuildKit of Docker 20.10 looks for a step under the parent's layers where the engine has the parent, else under its
    manifest: a pull between two builds would hide what the first has built.
    """
    mirrors = json.loads(os.environ.get("SLIPWAY_MIRRORS", "{}")).get("images", {})
    name = f"{mirrors.get('docker.io/library/debian', 'debian')}:bookworm-slim"
    if docker("image", "inspect", name, check=False).returncode:
        docker("pull", name)
    return name


@cache
def client() -> str:
    """Return a docker client that builds with BuildKit: one with the buildx plugin, or one older than 23."""
    candidates = [path for path in (shutil.which("docker"), "/usr/bin/docker") if path and Path(path).exists()]
    for path in candidates:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        major = int(version.split()[2].partition(".")[0])
        buildx = subprocess.run([path, "buildx", "version"], capture_output=True, check=False).returncode == 0
        if buildx or major < 23:
            return path
    raise AssertionError(f"no docker client that can build with BuildKit; found {candidates or 'none'}")


def docker(*arguments: str | Path, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the client with both its outputs in ``stdout``."""
    done = subprocess.run(
        [client(), *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
        check=False,
    )
    assert done.returncode == 0 or not check, f"docker {arguments[0]} failed:\n{done.stdout[-4000:]}"
    return done


@dataclass(frozen=True)
class Layer:
    """One layer of an image: its diff id and the tar headers of its files, by path."""

    diff_id: str
    files: dict[str, tarfile.TarInfo]

    def packages(self) -> list[str]:
        """Return the Python packages that this layer brings, as ``name-version``, sorted."""
        metadata = [Path(path).parent.name for path in self.files if path.endswith(".dist-info/METADATA")]
        return sorted(name.removesuffix(".dist-info") for name in metadata)


@dataclass(frozen=True)
class Image:
    """A built image."""

    tag: str

    def config(self) -> dict[str, Any]:
        """Return what ``docker image inspect`` says."""
        return cast("dict[str, Any]", json.loads(docker("image", "inspect", self.tag).stdout)[0])

    def id(self) -> str:
        return cast("str", self.config()["Id"])

    def diff_ids(self) -> list[str]:
        return cast("list[str]", self.config()["RootFS"]["Layers"])

    def run(self, *command: str, options: tuple[str, ...] = (), text: str | None = None, check: bool = True) -> str:
        """Run a command in a new container and return what it printed."""
        return docker("run", "--rm", "-i", *options, self.tag, *command, text=text, check=check).stdout

    def fails(self, *command: str, options: tuple[str, ...] = (), text: str | None = None) -> str:
        """Run a command that must fail, and return what it printed."""
        done = docker("run", "--rm", "-i", *options, self.tag, *command, text=text, check=False)
        assert done.returncode != 0, f"{command} succeeded:\n{done.stdout}"
        return done.stdout

    def layers(self) -> list[Layer]:
        """Return the layers, the parent's first.

        Those of a published image are read from its registry: an engine would first write all of them to its disk. The
        last few images are kept, as several tests read one and it takes seconds.
        """
        return _published_layers(self.tag) if "@" in self.tag else _saved_layers(self.tag, tuple(self.diff_ids()))


@lru_cache(maxsize=4)
def _published_layers(reference: str) -> list[Layer]:
    image = fetch(reference)
    return [
        Layer(layer.diff_id, image.repository.blob(layer.digest, partial(headers, media_type=layer.media_type)))
        for layer in image.layers
    ]


@lru_cache(maxsize=4)
def _saved_layers(tag: str, diff_ids: tuple[str, ...]) -> list[Layer]:
    files: dict[str, dict[str, tarfile.TarInfo]] = {}
    manifest: list[dict[str, Any]] = []
    links: dict[str, str] = {}
    with subprocess.Popen([client(), "save", tag], stdout=subprocess.PIPE) as saving:
        with tarfile.open(fileobj=saving.stdout, mode="r|") as archive:
            for member in archive:
                if member.issym():  # a duplicate of an earlier layer, such as an empty one
                    links[member.name] = posixpath.normpath(f"{posixpath.dirname(member.name)}/{member.linkname}")
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if member.name == "manifest.json":
                    manifest = json.load(content)
                elif member.name.endswith("layer.tar") or member.name.startswith("blobs/"):
                    with suppress(BlobUnreadable):  # the configuration is among them
                        files[member.name] = headers(content)
        # Past the last member there is only padding, which must be read for the client to end well.
        assert saving.stdout is not None
        saving.stdout.read()
    assert saving.returncode == 0
    names = manifest[0]["Layers"]
    return [Layer(diff_id, files[links.get(name, name)]) for diff_id, name in zip(diff_ids, names, strict=True)]


def pushed(dockerfile: str, name: str) -> Image:
    """Build a Dockerfile without a context, and push what comes of it by a name of its own."""
    image = Image(f"{os.environ['SLIPWAY_REGISTRY']}/{unique(name)}")
    docker("build", "--tag", image.tag, "-", text=dockerfile)
    docker("push", "--quiet", image.tag)
    return image


def remove(image: Image) -> None:
    """Remove an image's name; the engine deletes layers that no other image has."""
    docker("image", "rm", "--force", image.tag)


def forget(step: str, least: int) -> None:
    """Remove the steps that match a pattern and hold at least so many bytes from the build cache, and what stands on them.

    The engine removes no step that a build holds. One that has ended lets go a moment later; another's may stay.
    """
    engine = DockerClient.from_env().api
    forgotten: list[str] = []
    for record in sorted(engine.df()["BuildCache"], key=lambda record: str(record["CreatedAt"])):
        large = record["Size"] >= least and re.search(step, record["Description"])
        # Engines have one parent, several, or several below a key that begins with a blank (moby v26.1.5, api/types).
        below = {record.get("Parent"), *(record.get("Parents") or ()), *(record.get(" Parents") or ())}
        if large or below & {*forgotten}:
            forgotten.append(record["ID"])
    for _ in range(25):
        for record_id in reversed(forgotten):
            engine.prune_builds(all=True, filters={"id": [record_id]})  # type: ignore[arg-type]  # the stubs know few filters
        if not {*forgotten} & {record["ID"] for record in engine.df()["BuildCache"]}:
            break
        time.sleep(0.2)


def headers(stream: IO[bytes], media_type: str = "tar") -> dict[str, tarfile.TarInfo]:
    """Return the headers of a layer's archive, compressed as the end of `media_type` says.

    Raises:
        BlobUnreadable: it is something else.
    """
    with opened(stream, media_type) as archive:
        return {member.name: member for member in members(archive)}


def build(
    tag: str, arguments: dict[str, str], *flags: str, context: Path = DOCKERFILES, image: str = "torch"
) -> subprocess.CompletedProcess[str]:
    """Build an image of `context`, by default on the base image; the caller checks the result.

    The Dockerfile has no mounts of secrets, as the provider sends it: each costs a second, and the steps are the same.
    """
    arguments = {"BASE_IMAGE": base_image(), **arguments}
    written = context / image / "Dockerfile"
    with TemporaryDirectory() as folder:
        sent = Path(folder, "Dockerfile")
        sent.write_bytes(without_secrets(written.read_bytes(), str(written), ()))
        ignored = written.with_name("Dockerfile.dockerignore")
        if ignored.exists():
            shutil.copy(ignored, folder)
        return docker(
            "build",
            "--progress=plain",
            *(("--tag", tag) if tag else ()),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            f"--file={sent}",
            *flags,
            context,
            check=False,
        )


def check_planted(context: Path, checks: str, arguments: dict[str, str], *, image: str = "torch") -> None:
    """Add a failing check to a copy of the build context, and expect the build of the checks to fail.

    If the image was built before, all layers but the check's are in the engine's cache.
    """
    planted = context / checks / "00-planted"
    planted.write_text("#!/bin/sh\necho this image is no good\nexit 3\n")
    planted.chmod(0o755)
    done = build("", arguments, CHECKED, context=context, image=image)
    assert done.returncode != 0
    assert "this image is no good" in done.stdout
    assert "check failed: 00-planted" in done.stdout


def unique(name: str) -> str:
    """Return a tag that no other test run uses."""
    return f"slipway-test/{name}:{uuid.uuid4().hex[:12]}"
