"""A user's settings change only that user's image, with any engine's cache."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.universal.conftest import Built

BOB = {"name": "bob", "uid": 1001, "gid": 1001}
COMPILED = "mount / from exec /srv/layers/sealed /mnt/build /source/src /dist"
"""The description of the step that builds a wheel, in an engine's cache."""


@pytest.mark.slow
def test_new_time_zone_or_user_rebuilds_train_image_alone(world: World, empty_engine: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    images, first_up = chain.published("universal-cu113", world, tmp_path / "here", train=[{"tz": "Asia/Seoul"}, BOB])
    second_up = first_up.copy(tmp_path / "elsewhere")
    before = first_up.refs()
    changed: dict[str, Any] = {}
    for change in ({"tz": "America/Los_Angeles"}, {"uid": 1005, "gid": 1005}):
        changed |= change
        second_up.configure(train=[changed, BOB])
        second_up.up(DOCKER_HOST=empty_engine)
        after = second_up.refs()
        assert {name for name in after if after[name] != before[name]} == {"train"}, change
        before = after
    steps = [record["Description"] for record in docker.DockerClient(empty_engine).api.df()["BuildCache"]]
    assert COMPILED not in steps
    assert not [step for step in steps if "/mnt/environment" in step or "/mnt/magma" in step]
    # An engine with a full cache gives the same images.
    first_up.configure(train=[{"tz": "America/Los_Angeles"}, BOB])
    was = first_up.refs()
    first_up.up()
    now = first_up.refs()
    assert {name for name in now if now[name] != was[name]} == {"train"}
    chain.remove(images)


def steps(engine: docker.DockerClient) -> Counter[str]:
    """Return how often each script of the Dockerfiles ran, by an engine's cache."""
    matches = (re.search(r"exec \S*/(?:srv|mnt)/.*", record["Description"]) for record in engine.api.df()["BuildCache"])
    return Counter(match[0] for match in matches if match)


@pytest.mark.slow
def test_new_cache_key_takes_nothing_from_cache(built: Built) -> None:
    engine = docker.from_env()
    built("universal-cu113", cacheKey="monday", train=[{}])
    before = steps(engine)
    built("universal-cu113", cacheKey="tuesday", train=[{}])
    after = steps(engine)
    [compiled] = [step for step in after if "/mnt/build /source/src" in step]
    [fetched] = [step for step in after if "/mnt/fetch /src" in step]
    assert after[compiled] - before[compiled] == after[fetched] - before[fetched] == 4
    again = after - before
    for script in ("environment", "magma", "collect", "conda", "wheels", "pip", "person"):
        assert any(f"/mnt/{script}" in step for step in again), script
