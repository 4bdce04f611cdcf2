"""What a node must pull of an image, held against an engine that pulls it."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from cli.diff.comparison import compare
from containers.image.registry_image import Image, fetch
from tests.helpers import empty_engine
from tests.images.engine import base_image, pushed, remove


@pytest.fixture(scope="module")
def puller() -> Iterator[docker.DockerClient]:
    with empty_engine.started() as host:
        yield docker.DockerClient(base_url=host)


def published(programs: str) -> Image:
    """Push an image with a layer of each program, the same bytes on whatever is below."""
    copied = "".join(f"COPY --from={base_image()} /usr/bin/{name} /{name}\n" for name in programs.split())
    image = pushed(f"FROM scratch\n{copied}", "pulled")
    published = fetch(image.tag)
    remove(image)
    return published


def pulled(puller: docker.DockerClient, image: Image) -> int:
    """Return how many layers an engine pulls."""
    name = image.reference.rpartition(":")[0]
    lines = puller.api.pull(f"{name}@{image.digest}", stream=True, decode=True)
    return sum(line.get("status") == "Pull complete" for line in lines)


@pytest.mark.parametrize(
    ("before", "after", "layers"),
    [
        ("cut tac wc", "cut tac od", 1),
        ("cut tac wc", "od tac wc", 3),
        ("cut tac wc", "cut od tac wc", 3),
        ("cut tac wc", "cut wc", 1),
        ("cut tac wc", "cut", 0),
    ],
    ids=["last", "base", "inserted", "removed", "shorter"],
)
def test_layers_on_a_changed_one_are_pulled_again(
    puller: docker.DockerClient, before: str, after: str, layers: int
) -> None:
    images = [published(each) for each in (before, after)]
    told = compare(*images)
    assert [pulled(puller, each) for each in images] == [3, told.pull.layers]
    assert told.pull.layers == layers
    puller.images.prune(filters={"dangling": False})
