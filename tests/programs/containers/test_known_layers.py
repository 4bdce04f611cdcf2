"""A layer that was read before is known: an inspection says the same of its images, and reads less of them."""

from __future__ import annotations

import json
import random

import pytest

from tests.fakes.registry import Registry
from tests.fuzzing.hostile_images import inspected
from tests.helpers.histories import histories
from tests.unit.containers import test_known_layers as known
from tests.unit.containers.test_known_layers import (
    base,
    downloads,
    layer,
)

_empty_cache = known._empty_cache
registry = known.registry


@pytest.mark.parametrize("seed", range(histories(3)))
def test_inspection_by_another_process_is_equal(registry: Registry, seed: int) -> None:
    choice = random.Random(seed)
    layers = [base(), layer(choice), layer(choice)]
    reference = registry.image("a/b:1", layers, {"Cmd": ["/usr/bin/run"]})
    first = inspected(reference, ["--json"])
    assert any(".so." in fault["file"] for fault in json.loads(first.output)["faults"])  # by what its bytes say
    assert downloads(registry, layers) == len(layers)
    assert inspected(reference, ["--json"]).output == first.output
    assert downloads(registry, layers) == 0
