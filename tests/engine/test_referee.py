"""The engine judges fingerprints: where one stays, the engine takes every step of the build from its cache.

Each edit is built from the whole context, as `docker build` by hand does. A step's outcome is another each time that the
engine runs it, so equal layers and settings say that every step came from the cache.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containers.dockerfile.build_key import build_key
from containers.dockerfile.context import Folder
from stacks.identity.content import CheckoutContents
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec, Outside
from stacks.tags import Suffix
from tests.images.engine import base_image, docker

Edit = Callable[[Path], None]

RANDOM = "cat /proc/sys/kernel/random/uuid"
DOCKERFILE = f"""\
# What this builds.
ARG BASE_IMAGE
ARG TOOLS=tools
ARG UNREAD=1

FROM ${{BASE_IMAGE}} AS unreached
COPY other/ /other/
RUN {RANDOM} > /unreached

FROM scratch AS recipe
ARG COMPONENT=one
COPY app/recipes/${{COMPONENT}} /recipe

FROM ${{BASE_IMAGE}} AS tools
# A comment.
ARG VERSION=0
ENV MODE=fast \\
    # A comment within.
    LEVEL=2
RUN --mount=type=bind,source=app/layers,target=/mnt \\
    --mount=type=bind,from=recipe,target=/srv \\
    sh /mnt/install && {RANDOM} > /tools

FROM ${{TOOLS}} AS final
COPY --chown=1:1 --chmod=0755 app/*.txt app/link /texts/
COPY ["app/run", "/usr/bin/app"]
ADD app/archive.tar /archive/
WORKDIR /srv
ENV ONE=1
RUN {RANDOM} > /final
ARG LABEL_TITLE
LABEL title=${{LABEL_TITLE}}
EXPOSE 80 443
HEALTHCHECK --interval=60s CMD app
CMD ["app"]
"""
FILES = {
    "app/Dockerfile.dockerignore": "*\n!app\n!other\napp/Dockerfile*\n**/*.md\n",
    "app/README.md": "about\n",
    "app/one.txt": "1\n",
    "app/two.txt": "2\n",
    "app/unread": "x\n",
    "app/run": "#!/bin/sh\n",
    "app/archive.tar": "no archive\n",
    "app/recipes/one": "one\n",
    "app/recipes/two": "two\n",
    "app/layers/install": "# A comment.\ncat /srv/recipe\n",
    "app/layers/deep/more": "more\n",
    "other/file": "other\n",
}


def text(old: str, new: str, path: str = "app/Dockerfile") -> Edit:
    def edit(root: Path) -> None:
        content = (root / path).read_text()
        assert old in content
        (root / path).write_text(content.replace(old, new, 1))

    return edit


def written(path: str, content: str) -> Edit:
    def edit(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)

    return edit


def renamed(path: str, name: str) -> Edit:
    def edit(root: Path) -> None:
        (root / path).rename((root / path).with_name(name))

    return edit


def mode(path: str, bits: int) -> Edit:
    return lambda root: (root / path).chmod(bits)


def touched(path: str) -> Edit:
    return lambda root: os.utime(root / path, (1, 1))


def relinked(root: Path) -> None:
    (root / "app/link").unlink()
    (root / "app/link").symlink_to("two.txt")


UNREAD: dict[str, Edit] = {
    "comment at the top": text("# What this builds.", "# Another text."),
    "comment removed": text("# What this builds.\n", ""),
    "comment before an instruction": text("WORKDIR", "# More.\nWORKDIR"),
    "comment within an instruction": text("# A comment within.", "# Another within."),
    "blank lines": text("WORKDIR", "\n\nWORKDIR"),
    "keyword in small letters": text("WORKDIR", "workdir"),
    "spaces after a keyword": text("WORKDIR ", "WORKDIR    "),
    "spaces between flags": text("--chown=1:1 --chmod", "--chown=1:1    --chmod"),
    "order of flags": text("--chown=1:1 --chmod=0755", "--chmod=0755 --chown=1:1"),
    "spaces at the end": text("WORKDIR /srv", "WORKDIR /srv   "),
    "line continued": text("--chown=1:1 ", "--chown=1:1 \\\n  "),
    "line ends of Windows": written("app/Dockerfile", DOCKERFILE.replace("\n", "\r\n")),
    "default that the spec overrides": text("ARG VERSION=0", "ARG VERSION=9"),
    "argument that nothing uses": text("ARG UNREAD=1", "ARG UNREAD=2"),
    "instruction of an unreached stage": text("/unreached\n", "/elsewhere\n"),
    "new unreached stage": text("FROM scratch AS recipe", "FROM scratch AS more\nCOPY app /\nFROM scratch AS recipe"),
    "file of an unreached stage": written("other/file", "changed\n"),
    "file that nothing reads": written("app/unread", "changed\n"),
    "new file that nothing reads": written("app/new", "new\n"),
    "recipe of another component": written("app/recipes/two", "changed\n"),
    "ignored file": written("app/README.md", "changed\n"),
    "ignore file's comment": text("*\n", "# A comment.\n*\n", "app/Dockerfile.dockerignore"),
    "time of a file": touched("app/one.txt"),
    "time of a mounted file": touched("app/layers/install"),
    "mode of the Dockerfile": mode("app/Dockerfile", 0o755),
}
READ: dict[str, Edit] = {
    "value of a variable": text("LEVEL=2", "LEVEL=3"),
    "script's comment": text("# A comment.", "# Another.", "app/layers/install"),
    "mounted file deep down": written("app/layers/deep/more", "changed\n"),
    "new mounted file": written("app/layers/new", "new\n"),
    "mounted file renamed": renamed("app/layers/deep/more", "other"),
    "recipe": written("app/recipes/one", "changed\n"),
    "copied file": written("app/one.txt", "changed\n"),
    "new file of a pattern": written("app/three.txt", "3\n"),
    "copied file renamed": renamed("app/two.txt", "four.txt"),
    "executable bit of a copied file": mode("app/run", 0o755),
    "executable bit of a mounted file": mode("app/layers/install", 0o755),
    "archive": written("app/archive.tar", "changed\n"),
    "target of a link": relinked,
    "flag's value": text("--chmod=0755", "--chmod=0700"),
    "command": text("sh /mnt/install", "sh -e /mnt/install"),
    "new instruction": text("WORKDIR /srv", "WORKDIR /srv\nENV MORE=1"),
    "working directory": text("WORKDIR /srv", "WORKDIR /opt"),
    "default that is used": text("COMPONENT=one", "COMPONENT=two"),
    "file left out": text("**/*.md", "**/*.md\napp/two.txt", "app/Dockerfile.dockerignore"),
}


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    tag = f"slipway-test/{uuid.uuid4().hex[:12]}"
    yield tag
    docker("image", "rm", "-f", tag, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, content in {**FILES, "app/Dockerfile": DOCKERFILE}.items():
        written(path, content)(tmp_path)
    (tmp_path / "app/link").symlink_to("one.txt")
    for path in (*FILES, "app/Dockerfile"):
        (tmp_path / path).chmod(0o644)
    return tmp_path


def fingerprint(root: Path, parent: str) -> str:
    spec = ImageSpec(
        name="app",
        dockerfile="app/Dockerfile",
        target="final",
        args={"VERSION": "1"},
        parents={"BASE_IMAGE": Outside(reference=parent)},
        description="d",
        licenses="MIT",
        suffix=Suffix(variant="v"),
    )
    return fingerprints([CheckoutContents(lambda _: Folder(root)).of(spec)])["app"]


def built(root: Path, parent: str, name: str) -> str:
    """Build by hand, and return the image's layers and settings."""
    given = {"BASE_IMAGE": parent, "VERSION": "1", "LABEL_TITLE": "app"}
    flags = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
    docker("build", "-q", "-t", name, "--target", "final", *flags, "-f", root / "app/Dockerfile", root)
    return docker("image", "inspect", "-f", "{{json .RootFS}} {{json .Config}}", name).stdout.strip()


@pytest.mark.parametrize(("edits", "read"), [(UNREAD, False), (READ, True)], ids=["unread", "read"])
def test_fingerprint_moves_where_the_engine_runs_a_step(
    root: Path, tmp_path_factory: pytest.TempPathFactory, name: str, edits: dict[str, Edit], read: bool
) -> None:
    parent = base_image()
    first = fingerprint(root, parent), built(root, parent, name)
    verdicts = {}
    for title, edit in edits.items():
        copy = tmp_path_factory.mktemp("edited") / "context"
        shutil.copytree(root, copy, symlinks=True)
        edit(copy)
        after = fingerprint(copy, parent), built(copy, parent, name)
        verdicts[title] = tuple(before != now for before, now in zip(first, after, strict=True))
    assert verdicts == dict.fromkeys(edits, (read, read))


def made(path: str) -> Edit:
    return lambda root: (root / path).mkdir()


def relinked_to_a_copy(root: Path) -> None:
    (root / "app/link").unlink()
    shutil.copy2(root / "app/one.txt", root / "app/same")
    (root / "app/link").symlink_to("same")


KEPT: dict[str, Edit] = {
    "mode of the context": mode(".", 0o700),
    "mode of the folder above": mode("app", 0o700),
    "mode of a file that nothing reads": mode("app/unread", 0o600),
    "empty folder that nothing reads": made("empty"),
    "older form of a variable": text("ENV ONE=1", "ENV ONE 1"),
    "time in another unit": text("--interval=60s", "--interval=1m0s --retries=0"),
    "ports in another order, and twice": text("80 443", "443/TCP 80\nEXPOSE 80/tcp"),
    "setting above a step": text("WORKDIR", 'CMD ["app"]\nWORKDIR'),
    "constant for a variable": text("app/recipes/${COMPONENT}", "app/recipes/one"),
    "target with a dot": text("/archive/", "/./archive/"),
    "another link to the content": relinked_to_a_copy,
    "argument that the client has": text("ARG UNREAD=1", "ARG UNREAD=1\nARG BUILDKIT_INLINE_CACHE=0"),
}
MOVED: dict[str, Edit] = {
    "mode of a mounted file": mode("app/layers/install", 0o600),
    "group's mode of a copied file": mode("app/run", 0o664),
    "mode of a mounted folder": mode("app/layers", 0o700),
    "mode of a deep folder": mode("app/layers/deep", 0o700),
    "empty mounted folder": made("app/layers/empty"),
    "another time": text("--interval=60s", "--interval=61s"),
    "another port": text("443", "444"),
    "link to other content": relinked,
}


@pytest.mark.parametrize(("edits", "moved"), [(KEPT, False), (MOVED, True)], ids=["kept", "moved"])
def test_key_moves_where_the_engine_runs_a_step(
    root: Path, tmp_path_factory: pytest.TempPathFactory, name: str, edits: dict[str, Edit], moved: bool
) -> None:
    """The key is of the folder as it is; a fingerprint is of what git keeps of it."""
    parent = base_image()

    def judged(folder: Path) -> tuple[str, str]:
        given = {"BASE_IMAGE": parent, "VERSION": "1", "LABEL_TITLE": "app"}
        return (
            build_key(folder / "app/Dockerfile", folder, "final", given, "linux/amd64").key,
            built(folder, parent, name),
        )

    for folder in (path for path in (root, *root.rglob("*")) if path.is_dir()):
        folder.chmod(0o755)
    first = judged(root)
    verdicts = {}
    for title, edit in edits.items():
        copy = tmp_path_factory.mktemp("edited") / "context"
        shutil.copytree(root, copy, symlinks=True)
        edit(copy)
        verdicts[title] = tuple(before != now for before, now in zip(first, judged(copy), strict=True))
    assert verdicts == dict.fromkeys(edits, (moved, moved))
