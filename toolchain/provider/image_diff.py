"""What a changed input means for an image: nothing, or an update in place. An image is never replaced."""

from __future__ import annotations

from typing import Any

from pulumi.runtime.proto import provider_pb2

from toolchain.provider.provider_base import Properties

PropertyDiff = provider_pb2.PropertyDiff


def diff(state: Properties, inputs: Properties) -> provider_pb2.DiffResponse:
    """Compare the inputs that made the present state with new ones.

    A difference is reported by top-level input. A changed user or password alone does not count: they change often
    and do not change the image.

    Args:
        state: the resource's state, with the inputs behind it in `__inputs`; without secrets' wrappers.
        inputs: checked inputs, without secrets' wrappers; unknown ones differ from every known value.
    """
    old: Properties = state.get("__inputs", {})
    kinds: dict[str, PropertyDiff.Kind.ValueType] = {}
    for key in old.keys() | inputs.keys():
        if key not in old:
            kinds[key] = PropertyDiff.ADD
        elif key not in inputs:
            kinds[key] = PropertyDiff.DELETE
        elif not _same(old[key], inputs[key]) and (key != "registry" or _server_changed(old[key], inputs[key])):
            kinds[key] = PropertyDiff.UPDATE
    if not kinds:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME,
        detailedDiff={key: PropertyDiff(kind=kind) for key, kind in kinds.items()},
        hasDetailedDiff=True,
    )


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
