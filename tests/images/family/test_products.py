"""Build products are images: an engine that has nothing takes from the registry what was compiled elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import docker
import pytest

from stacks.config.stack_file import ROOT
from tests.fakes.upstreams.upstreams import World
from tests.helpers import program_copy
from tests.images.engine import DOCKERFILES
from tests.images.family.conftest import Up
from tests.images.published import Published


def steps(engine_: str) -> list[str]:
    """Return the build steps that an engine has run."""
    return [record["Description"] for record in docker.DockerClient(engine_).api.df()["BuildCache"]]


TOOLS = (
    "mount / from exec /srv/layers/sealed /mnt/build /out",
    "mount / from exec /srv/layers/sealed /srv/build/nccl-tests /opt/hpcx/ompi /out",
)
"""The steps that compile a tool of nccl-tests."""


def compiled(engine_: str) -> int:
    """Return how many wheels an engine has compiled."""
    return steps(engine_).count("mount / from exec /srv/layers/sealed /mnt/build /source/src /dist")


@pytest.mark.slow
def test_new_vision_on_empty_engine_compiles_alone(up: Up, world: World, empty_engine: str, tmp_path: Path) -> None:
    _, stack = up("base-cu121")
    torch = {"version": "2.0.1", "vision": "0.15.2", "audio": "2.0.2"}
    bumped = stack.copy(tmp_path / "bumped")
    bumped.configure(torch={**torch, "commits": {"vision": world.commits["pytorch/vision"]}})
    bumped.up(DOCKER_HOST=empty_engine)

    before, after = stack.refs(), bumped.refs()
    assert {name for name in after if after[name] != before[name]} == {
        "vision-source",
        "vision-wheel",
        "torch",
        "torch-extras",
    }
    assert compiled(empty_engine) == 1


@pytest.mark.slow
def test_images_on_empty_engine_reuse_published_products(up: Up, empty_engine: str, tmp_path: Path) -> None:
    _, stack = up("base-cu121")
    again = Published(tmp_path, stack.stack, **stack.more)  # which knows nothing of the other's state
    again.up(DOCKER_HOST=empty_engine)
    before, after = stack.refs(), again.refs()
    assert {name for name in after if after[name] != before[name]} <= {"torch", "torch-extras"}
    assert steps(empty_engine)
    assert compiled(empty_engine) == 0


@pytest.mark.slow
def test_new_extra_on_empty_engine_compiles_alone(up: Up, empty_engine: str, tmp_path: Path) -> None:
    _, stack = up("base-cu121")
    more = stack.copy(tmp_path / "more")
    more.configure(extras={**stack.more["extras"], "xformers": "0.0.20"})
    more.up(DOCKER_HOST=empty_engine)
    before, after = stack.refs(), more.refs()
    assert {name for name in after if after[name] != before.get(name)} == {
        "xformers-source",
        "xformers-wheel",
        "torch-extras",
    }
    assert compiled(empty_engine) == 1


@pytest.mark.slow
def test_edited_tool_on_empty_engine_compiles_alone(up: Up, empty_engine: str, tmp_path: Path) -> None:
    _, stack = up("nccl-cu121")
    program = tmp_path / "program"
    program.mkdir()
    program_copy.write(program)
    shutil.copytree(DOCKERFILES, program / "dockerfiles", symlinks=True)
    shutil.copy(ROOT / "stacks/Pulumi.nccl-cu121.yaml", program / "stacks")
    build = program / "dockerfiles/hpc-tools/perftest/build"
    build.write_text(f"{build.read_text()}true\n")
    edited = stack.copy(tmp_path / "edited", program)
    edited.up(DOCKER_HOST=empty_engine)

    before, after = stack.refs(), edited.refs()
    assert {name for name in after if after[name] != before[name]} == {
        "perftest-build",
        "nccl-tests",
        "torch",
        "torch-extras",
    }
    assert compiled(empty_engine) == 0
    assert [step for step in steps(empty_engine) if step in TOOLS] == [TOOLS[0]]
