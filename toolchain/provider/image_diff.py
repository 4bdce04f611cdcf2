"""What a changed input means for an image: nothing, or an update in place. An image is never replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi.runtime.proto import provider_pb2

from toolchain.provider.provider_base import Properties

PropertyDiff = provider_pb2.PropertyDiff


def diff(state: Properties, inputs: Properties) -> provider_pb2.DiffResponse:
    """Compare the inputs that made the present state, in its `__inputs`, with new, checked ones.

    A difference is reported by top-level input. A changed user or password alone does not count: they change often and
    do not change the image. Neither has secrets' wrappers. Unknown inputs differ from every known value.
    """
    old: Properties = state.get("__inputs", {})
    kinds = dict(changed(old, inputs, _same))
    if kinds.get("registry") == PropertyDiff.UPDATE and not _server_changed(old["registry"], inputs["registry"]):
        del kinds["registry"]
    if not kinds:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME,
        detailedDiff={key: PropertyDiff(kind=kind) for key, kind in kinds.items()},
        hasDetailedDiff=True,
    )


def changed(
    old: Properties, new: Properties, same: Callable[[Any, Any], bool]
) -> Iterator[tuple[str, PropertyDiff.Kind.ValueType]]:
    """Yield each key that differs, with what became of it."""
    for key in old.keys() | new.keys():
        if key not in old:
            yield key, PropertyDiff.ADD
        elif key not in new:
            yield key, PropertyDiff.DELETE
        elif not same(old[key], new[key]):
            yield key, PropertyDiff.UPDATE


def _server_changed(old: Any, new: Any) -> bool:
    """Return whether the server differs; one that is added or taken away does not count, as officially."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    return "server" in old and "server" in new and not _same(old["server"], new["server"])


def _same(old: Any, new: Any) -> bool:
    """Return whether two values are equal; unlike in Python, true is not 1."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(item, new[key]) for key, item in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)
