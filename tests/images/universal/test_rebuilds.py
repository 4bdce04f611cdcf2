"""Whose image it is changes that image and no other, whatever the engine still has."""

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
"""How an engine's cache calls the step in which a wheel is built."""


@pytest.mark.slow
def test_new_time_zone_or_user_rebuilds_train_image_alone(world: World, empty_engine: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    made, here = chain.published("universal-cu113", world, tmp_path / "here", train=[{"tz": "Asia/Seoul"}, BOB])
    elsewhere = here.copy(tmp_path / "elsewhere")
    before = here.refs()
    mine: dict[str, Any] = {}
    for change in ({"tz": "America/Los_Angeles"}, {"uid": 1005, "gid": 1005}):
        mine |= change
        elsewhere.configure(train=[mine, BOB])
        elsewhere.up(DOCKER_HOST=empty_engine)
        after = elsewhere.refs()
        assert {name for name in after if after[name] != before[name]} == {"train"}, change
        before = after
    steps = [record["Description"] for record in docker.DockerClient(empty_engine).api.df()["BuildCache"]]
    assert COMPILED not in steps
    assert not [step for step in steps if "/mnt/environment" in step or "/mnt/magma" in step]
    # The engine that does have everything says the same.
    here.configure(train=[{"tz": "America/Los_Angeles"}, BOB])
    was = here.refs()
    here.up()
    now = here.refs()
    assert {name for name in now if now[name] != was[name]} == {"train"}
    chain.remove(made)


def steps(engine: docker.DockerClient) -> Counter[str]:
    """Return how often an engine's cache has each script of the Dockerfiles: once for each time that it ran."""
    found = (re.search(r"exec \S*/(?:srv|mnt)/.*", record["Description"]) for record in engine.api.df()["BuildCache"])
    return Counter(match[0] for match in found if match)


@pytest.mark.slow
def test_clean_build_takes_nothing_from_cache(built: Built) -> None:
    engine = docker.from_env()
    built("universal-cu113", clean="monday", train=[{}])
    before = steps(engine)
    built("universal-cu113", clean="tuesday", train=[{}])
    after = steps(engine)
    [compiled] = [step for step in after if "/mnt/build /source/src" in step]
    [fetched] = [step for step in after if "/mnt/fetch /src" in step]
    assert after[compiled] - before[compiled] == after[fetched] - before[fetched] == 4
    again = after - before
    for script in ("environment", "magma", "collect", "conda", "wheels", "pip", "person"):
        assert any(f"/mnt/{script}" in step for step in again), script
