"""What is asked of a registry before a build product is built, and what of the answer is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from components.published import _Asking
from stacks.errors import SlipwayError
from tests.unit.registry import MANIFEST, Registry, hasten, serve


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    hasten(monkeypatch)
    with serve() as served:
        yield served


def found(registry: Registry, **login: str) -> str:
    made = _Asking().create({"ref": f"{registry.address}/a/wheel:x1", "found": None, **login})
    assert made.outs is not None
    assert not set(login) & set(made.outs)
    answer: str = made.outs["found"]
    return answer


def test_a_product_is_found_by_its_tag_and_named_by_its_digest(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    assert found(registry) == f"{registry.address}/a/wheel@{digest}"
    assert registry.asked == ["HEAD /v2/a/wheel/manifests/x1"]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_where_there_is_none_or_none_to_be_seen_it_is_built(registry: Registry, status: int) -> None:
    registry.digests["a/wheel:x1"] = status
    assert found(registry) == ""


def test_a_registry_that_only_the_engine_reaches_is_no_error(registry: Registry) -> None:
    registry.address = "127.0.0.1:9"
    assert found(registry) == ""


def test_a_registry_that_is_broken_is_told_before_hours_of_building(registry: Registry) -> None:
    registry.refusals = [503] * 9
    with pytest.raises(SlipwayError, match=r"/a/wheel:x1: the registry answers \(503\)$"):
        found(registry)


def test_the_stacks_own_login_is_used_and_not_kept(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    registry.token, registry.login = "t", ("me", "hunter2")
    assert found(registry, username="me", password="hunter2").endswith(digest)
    assert found(registry, username="me", password="wrong") == ""


def test_a_refresh_forgets_what_is_gone_and_finds_what_has_come(registry: Registry) -> None:
    digest = registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    name = f"{registry.address}/a/wheel"
    kept = {"ref": f"{name}:x1", "found": f"{name}@{digest}"}
    assert _Asking().read(kept["ref"], kept).outs == kept
    registry.refusals = [401]
    assert _Asking().read(kept["ref"], kept).outs == kept
    del registry.manifests[digest]
    registry.digests["a/wheel:x1"] = 404
    assert _Asking().read(kept["ref"], kept).outs == kept | {"found": ""}
    assert _Asking().read(kept["ref"], kept | {"found": ""}).outs == kept | {"found": ""}
    registry.manifest("a/wheel:x1", MANIFEST, {"layers": []})
    assert _Asking().read(kept["ref"], kept | {"found": ""}).outs == kept
