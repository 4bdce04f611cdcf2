"""The way out: what `slipway export bake` and `export dockerfile` write builds the same without Slipway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import buildx
from stacks.config.stack_file import ROOT
from tests.engine.project import Project
from tests.images.engine import docker
from toolchain.checkout import Checkout

ROOTS = """ARG BASE_IMAGE
ARG WORD
ARG KIND=plain
FROM ${BASE_IMAGE} AS start
FROM scratch AS files
COPY link0/*.txt /from/
COPY ["link0/with space", "/from/"]
COPY ["link0/folder", "/from/folder/"]
FROM start AS unused
COPY link0/unused /
FROM start
ARG WORD
ARG KIND
ARG QUOTED="it's \\"quoted\\" and \\$HOME"
COPY --from=files /from /all
COPY --from=1 --chown=7:8 /from/file.txt /owned-${WORD}-${KIND}.txt
ENV QUOTED=${QUOTED} KIND=${KIND:-none}
"""
LINK = """ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS base
ARG WORD
COPY link1/file.txt /link1-${WORD}.txt
FROM base AS final
LABEL word=${WORD}
"""

OWN = """# An image of the team's own, with its context beside its Dockerfile.
ARG BASE_IMAGE
FROM scratch AS parts
COPY part*.txt /parts/
FROM ${BASE_IMAGE}
ARG LEVEL=low
COPY --from=parts /parts /parts
COPY --chmod=0755 run.sh /run-${LEVEL}
ENV LEVEL=${LEVEL}
WORKDIR parts
LABEL level=${LEVEL}
"""
ON_OWN = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY common/x.txt /x.txt\n"


@pytest.fixture
def chain(project: Project) -> Project:
    """A published chain of three images, with stages, patterns, quotes and arguments of one name in all of them.

    Two images of the team's own stand on the second one. No step copies into a folder that it makes or changes: that has the
    time of the step.
    """
    project.write("dockerfiles/link0/Dockerfile", ROOTS)
    project.write("dockerfiles/link0/with space", "space\n")
    project.write("dockerfiles/link0/folder/deep/a.txt", "deep\n")
    (project.root / "dockerfiles/link0/folder/link").symlink_to("deep/a.txt")
    project.write("dockerfiles/link0/unused", "unused\n")
    project.write("dockerfiles/link1/Dockerfile", LINK)
    (project.root / "dockerfiles/link0/file.txt").chmod(0o755)
    for path, text in {
        "Dockerfile": OWN,
        ".dockerignore": "*.log\nDockerfile\n",
        **{name: f"{name} {project.path}\n" for name in ("part1.txt", "part2.txt", "run.sh", "left.log", "deep/file")},
    }.items():
        project.write(f"images/own/{path}", text)
    project.write("images/last.Dockerfile", ON_OWN)
    project.write("images/common/x.txt", f"x {project.path}\n")
    own = {"name": "own", "dockerfile": "images/own/Dockerfile", "on": "link1", "args": {"LEVEL": "a ${b}"}}
    last = {"name": "last", "dockerfile": "images/last.Dockerfile", "context": "images", "on": "own"}
    project.configure(length=3, word='it\'s a ${word} "here"', images=[own, last])
    project.up()
    return project


def published(project: Project, name: str) -> dict[str, Any]:
    return project.config_of(project.outputs()["images"][name]["ref"])


def shown(config: dict[str, Any]) -> dict[str, Any]:
    """Return what an image is: its layers' content, and what it starts with."""
    settings = {key: config["config"].get(key) or None for key in ("Env", "Labels", "Cmd", "User", "WorkingDir")}
    return {"layers": config["rootfs"]["diff_ids"], **settings}


def on_engine(tag: str) -> dict[str, Any]:
    image = json.loads(docker("image", "inspect", tag).stdout)[0]
    return shown({"config": image["Config"], "rootfs": {"diff_ids": image["RootFS"]["Layers"]}})


@pytest.mark.parametrize("name", ["link0", "link1", "link2", "own", "last"])
def test_exported_dockerfile_builds_equal_layers(chain: Project, name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = chain.stacks("export", "dockerfile", "t", name, "--output", str(out))
    assert line.startswith("docker build --platform ")
    assert not list(out.rglob("unused"))
    tag = f"exported-{chain.path}-{name}"
    docker("build", "--tag", tag, out)
    assert on_engine(tag) == shown(published(chain, name))
    again = chain.stacks("export", "dockerfile", "t", name, "--output", str(out), code=1)
    assert again.count("\n") == 1
    assert chain.stacks("export", "dockerfile", "t", name, "--output", str(out), "--force") == line


@pytest.mark.slow  # buildx is compiled
def test_exported_bake_file_builds_equal_layers(chain: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    chain.stacks("export", "bake", "t", "--output", str(out))
    names = ["link0", "link1", "link2", "own", "last"]
    before = {name: shown(published(chain, name)) for name in names}
    document = json.loads((out / "docker-bake.json").read_text())
    assert document["group"]["default"]["targets"] == names
    for name, target in document["target"].items():
        target["tags"] = [f"exported-{chain.path}-bake-{name}"]
    (out / "docker-bake.json").write_text(json.dumps(document))
    words = [str(buildx.program(Checkout.here())), "bake", "--file", "docker-bake.json", "--load"]
    done = subprocess.run(words, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, expected in before.items():
        assert on_engine(f"exported-{chain.path}-bake-{name}") == expected


def test_action_skips_what_the_registry_has(project: Project, tmp_path: Path) -> None:
    """A foreign Dockerfile: the first run builds, an edit outside of its reach skips, one within builds."""
    (tmp_path / "Dockerfile").write_text("FROM scratch AS other\nCOPY other /\nFROM scratch\nCOPY app /\n")
    for file in ("app", "other"):
        (tmp_path / file).write_text(f"{project.path}\n")
    image = f"{project.registry}/{project.path}/app"

    def outputs() -> dict[str, str]:
        given = {"IMAGE": image, "FILE": "Dockerfile", "CONTEXT": ".", "PLATFORM": "linux/amd64"}
        done = subprocess.run(
            [sys.executable, "-IS", ROOT / ".github/actions/skip-built/skip_built.py"],
            cwd=tmp_path,
            env={**os.environ, **{f"SLIPWAY_{key}": value for key, value in given.items()}},
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    first = outputs()
    assert first["built"] == "false"
    docker("build", "--tag", first["image"], tmp_path)
    docker("push", first["image"])
    assert outputs() == {**first, "built": "true"}
    (tmp_path / "other").write_text("edited\n")
    assert outputs() == {**first, "built": "true"}
    (tmp_path / "app").write_text("edited\n")
    assert outputs()["built"] == "false"
    (tmp_path / "Dockerfile").write_text("FROM debian\nCOPY $UNKNOWN /\n")
    assert outputs() == {"key": "", "image": "", "built": "false"}
