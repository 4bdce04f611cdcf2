"""The engine's build cache: two variants built at once each keep their own, and nothing in the inputs names another."""

from __future__ import annotations

import json
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.engine.project import Project
from tests.images.engine import base_image, docker

RANDOM = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG WORD
RUN --mount=type=cache,target=/root/.cache/shared sleep 2 && echo ${WORD} >> /root/.cache/shared/words && \\
    cat /proc/sys/kernel/random/uuid > /made-${WORD}
"""
"""A step whose outcome is another each time that it is run."""


def variant(root: Path, word: str, base: str) -> Project:
    project = Project(root / word)
    project.add_stack()
    project.write("dockerfiles/link0/Dockerfile", RANDOM)
    project.configure(base=base, word=word)
    return project


def layers(project: Project) -> list[str]:
    """Return the layers of the project's image, by what they unpack to."""
    layers: list[str] = project.config_of(project.outputs()["images"]["link0"]["ref"])["rootfs"]["diff_ids"]
    return layers


def test_variants_built_at_once_keep_their_caches(tmp_path: Path) -> None:
    # The engine finds steps by a parent that it has, until somebody pulls that: so no other test knows this one's name.
    base = f"{os.environ['SLIPWAY_REGISTRY']}/test-{uuid.uuid4().hex[:8]}/parent:1"
    docker("tag", base_image(), base)
    docker("push", "--quiet", base)
    variants = [variant(tmp_path, word, base) for word in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        list(pool.map(Project.up, variants))
    first = [layers(project) for project in variants]
    assert first[0][:-1] == first[1][:-1]
    assert first[0][-1] != first[1][-1]
    replace = ["--replace", "**docker:index/image:Image::link0"]
    for project in variants:  # made anew, each finds its own step, and not the other's
        again = project.pulumi("up", "-s", "t", "--yes", "--skip-preview", *replace).output
        assert re.search(r"Image\W+link0 replaced", again), again
    assert [layers(project) for project in variants] == first


def test_cache_with_a_changing_name_is_no_input(project: Project) -> None:
    """`cacheFrom` is compared like any input: what is not the same for ever would never preview clean."""
    project.up()
    exported = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)
    images = [it for it in exported["deployment"]["resources"] if it["type"] == "docker:index/image:Image"]
    assert images
    assert not [image for image in images if "cacheFrom" in image["inputs"]["build"]]
