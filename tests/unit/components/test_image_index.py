"""``ImageIndex``: what a refresh reads of an index, and what the next update then does."""

from __future__ import annotations

from typing import Any

import pytest

from components.supply_chain.image_index import PutIndex
from tests.fakes.registry import Registry
from tests.helpers.refusals import refusal_line

ARM64 = "linux/arm64"


@pytest.fixture
def state(registry: Registry) -> dict[str, Any]:
    """Return the state of an index that was pushed."""
    parts = {
        f"linux/{arch}": registry.image(f"a/torch:{arch}", [arch.encode()], platform=("linux", arch))
        for arch in ("amd64", "arm64")
    }
    inputs = {"ref": f"{registry.address}/a/torch:1", "parts": parts}
    return inputs | PutIndex().run_as(inputs, None)


def read(state: dict[str, Any]) -> dict[str, Any]:
    outs = PutIndex().read("x", state).outs
    assert outs is not None
    return outs


def changes(state: dict[str, Any]) -> bool:
    """Return whether an update pushes the index again."""
    return bool(PutIndex().diff("x", state, {key: state[key] for key in ("ref", "parts")}).changes)


def test_refresh_of_a_whole_index_changes_nothing(state: dict[str, Any]) -> None:
    assert read(state) == state
    assert not changes(read(state))


def test_refresh_notes_an_image_that_is_deleted(registry: Registry, state: dict[str, Any]) -> None:
    """The tag names the same index as before; who pulls arm64 gets nothing."""
    del registry.manifests[state["parts"][ARM64].partition("@")[2]]
    assert changes(read(state))
    line = refusal_line(PutIndex().run_as, state, None)
    assert line.startswith(f"{state['parts'][ARM64]}: the registry no longer has the image for linux/arm64; ")
