"""The inspection of an image as text: a line for each fault, and little beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oci.binaries.inspection import Inspection
from oci.binaries.loading import Loading
from stacks.errors import one_line


def text(inspection: Inspection) -> str:
    """Return the report."""
    image = inspection.image
    facts = list(_facts(inspection))
    width = max(len(name) for name, _ in facts)
    lines = [f"{one_line(image.reference)}  {image.platform}"]
    lines += [f"  {name:<{width}}  {one_line(value)}" for name, value in facts]
    lines += [f"fault: {one_line(fault)}" for fault in inspection.faults]
    return "\n".join([*lines, _summary(len(inspection.faults))])


def _summary(faults: int) -> str:
    return f"{faults} fault{'s' if faults > 1 else ''}" if faults else "no fault"


def _facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    loading = inspection.loading
    yield "loader", _loader(loading)
    if loading.not_resolved:
        yield "not resolved", ", ".join(f"{count} {reason}" for reason, count in sorted(loading.not_resolved.items()))
    named = {"from the host": loading.host, "by Python": loading.preloaded, "may be missing": loading.optional}
    for name, libraries in named.items():
        if libraries:
            yield name, _libraries(libraries)


def _loader(loading: Loading) -> str:
    if loading.loader:
        return f"{loading.resolved} ELF files resolved as {loading.loader} does"
    return "none in the image"


def _libraries(libraries: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{library} ({len(files)})" for library, files in sorted(libraries.items()))
