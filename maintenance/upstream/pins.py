"""The tags of an upstream that our stacks take, as they follow from the stacks and tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from containers.dockerfile.declarations import arguments
from containers.image.gpu.release_order import order
from containers.registry.reference import Reference
from maintenance.upstream.contract import Contract, Pin
from stacks import plan
from stacks.config.stack_file import ROOT, stack_names
from stacks.spec import Outside
from stacks.versions.tables import table


def tags(contract: Contract) -> list[str]:
    """Return the tags and commits that stacks take of an upstream, the oldest first."""
    pinned = {pin.tag.format(version) for pin in contract.pin for version in _versions(pin)}
    return sorted(pinned, key=lambda tag: (contract.version(tag) is None, order(contract.version(tag) or ""), tag))


def _versions(pin: Pin) -> set[str]:
    values = {match[1] for value in _values(pin) if (match := re.search(pin.match, value))}
    return {max(values, key=order)} if pin.newest else values


def _values(pin: Pin) -> Iterator[str]:
    if pin.version:
        yield pin.version
    if pin.table:
        file, _, name = pin.table.partition(".")
        yield from table(file)[name] if name else table(file)
    if pin.parent:
        yield from (parent.tag for parent in map(Reference.of, _parents()) if parent.repository == pin.parent)
    if pin.argument:
        for component, values in _arguments():
            if pin.component in {"", component} and values.get(pin.argument):
                yield values[pin.argument]


@functools.cache
def _parents() -> frozenset[str]:
    """Return the outside parents of every image of every stack."""
    specs = (spec for name in stack_names() for spec in plan.resolve(name)[1])
    return frozenset(
        parent.reference for spec in specs for parent in spec.parents.values() if isinstance(parent, Outside)
    )


@functools.cache
def _arguments() -> tuple[tuple[str, dict[str, str]], ...]:
    """Return COMPONENT and the build arguments, with their defaults, of every image of every stack."""
    images: dict[str, tuple[str, dict[str, str]]] = {}
    for name in stack_names():
        _, specs = plan.resolve(name)
        for spec in specs:
            defaults = arguments(ROOT / "dockerfiles" / spec.dockerfile)
            values = {**{key: value for key, value in defaults.items() if value}, **spec.args}
            images[repr(sorted(values.items()))] = (values.get("COMPONENT", ""), values)
    return tuple(images.values())
