"""The inspection of an image as text or Markdown: a line for each fault, and little beside it."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cli import text_table
from cli.inspection import nccl_report
from containers.errors import abridged, one_line
from containers.image.binaries.inspection import Inspection
from containers.image.binaries.loading import Loading
from containers.image.gpu.driver import Driver
from containers.image.gpu.gpu_coverage import gpu_label, listed
from containers.image.gpu.node_drivers import NodeDrivers
from containers.image.gpu.node_drivers import listed as listed_nodes
from containers.image.layers.space import Space
from containers.image.node_pull import size

_WIDTH: Final = 2000
"""Characters of one line."""
_LISTED_CONTESTED: Final = 5
"""Contested files in one line; `--json` has all."""
_LISTED_CONTRADICTIONS: Final = 8
"""Lines of requirements that are not met; `--json` has all."""


def markdown(inspection: Inspection) -> str:
    """Return the report in Markdown, for a comment on a pull request or the summary of a job."""
    image = inspection.image
    title = f"{text_table.code(one_line(image.reference))} {text_table.code(one_line(image.platform))}"
    lines = [f"### {title}: {summary(len(inspection.faults))}", ""]
    lines += [f"- {text_table.code(one_line(str(fault), _WIDTH))}" for fault in inspection.faults]
    rows = [(name, text_table.code(one_line(value, _WIDTH))) for name, value in facts(inspection)]
    table = text_table.markdown(("What", "In the image"), *rows).rstrip("\n")
    return "\n".join([*lines, *([""] if inspection.faults else []), table])


def text(inspection: Inspection) -> str:
    """Return the report."""
    image = inspection.image
    rows = [(name, one_line(value, _WIDTH)) for name, value in facts(inspection)]
    lines = [f"{one_line(image.reference)}  {one_line(image.platform)}"]
    lines += [f"  {line}" for line in text_table.aligned(rows)]
    lines += [f"fault: {one_line(str(fault), _WIDTH)}" for fault in inspection.faults]
    return "\n".join([*lines, summary(len(inspection.faults))])


def summary(faults: int) -> str:
    """Return the number of faults in words."""
    return f"{faults} fault{'s' if faults > 1 else ''}" if faults else "no fault"


def facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield what is worth a line beside the faults: its name and its value."""
    yield from _loading(inspection.loading)
    yield from (("two copies", str(one)) for one in inspection.copies if one.case is None)
    yield from _gpu_code(inspection)
    if inspection.driver:
        yield "driver", _driver(inspection.driver)
    if inspection.question.nodes:
        yield "nodes", _nodes(inspection.question.nodes)
    yield from _packages(inspection)
    yield "size", _space(inspection.space)


def _loading(loading: Loading) -> Iterator[tuple[str, str]]:
    yield "loader", _loader(loading)
    lines = {
        "not resolved": (f"{count} {reason}" for reason, count in sorted(loading.not_resolved.items())),
        "from the host": _libraries(loading.host),
        "by Python": _libraries(loading.preloaded),
        "may be missing": _libraries(loading.optional),
        "not preloaded": (f"{name}: {reason}" for name, reason in loading.ignored.items()),
        "not the host's": (path for paths in loading.hiding.values() for path in paths),
        "plugins": _plugins(loading),
    }
    yield from ((name, value) for name, values in lines.items() if (value := ", ".join(values)))
    yield from nccl_report.rows(loading.plugins)
    if unopened := {plugin.elsewhere: plugin for plugin in loading.plugins if plugin.elsewhere}:
        names = (f"{path} by {posixpath.basename(plugin.opener)}" for path, plugin in unopened.items())
        yield "not opened", f"{', '.join(names)}: in no folder that is searched"


def _packages(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if files := [one.path for one in inspection.contested if not one.is_fault]:
        yield "two owners", abridged(files, _LISTED_CONTESTED)
    unmet = inspection.allowed
    yield from (("requirements", str(one)) for one in unmet[:_LISTED_CONTRADICTIONS])
    if (more := len(unmet) - _LISTED_CONTRADICTIONS) > 0:
        yield "requirements", f"and {more} more that are not met"
    if inspection.unread:
        records = [f"/{path}: {reason}" for path, reason in inspection.unread.items()]
        yield "owners", f"not known of {abridged(records, _LISTED_CONTESTED)}"


def _gpu_code(inspection: Inspection) -> Iterator[tuple[str, str]]:
    coverage = inspection.coverage
    if not coverage.libraries:
        return
    yield "GPU code", f"{listed(coverage.codes)} in {counted_files(len(coverage.libraries))}"
    absent = (f"{arch} in {counted_files(len(paths))}" for arch, paths in inspection.arch_list.without.items())
    if lacking := ", ".join(absent):
        yield "arch list", f"no code for {lacking}"
    for name, capability in inspection.question.gpus.items():
        label = gpu_label(name, capability)
        without, compiled = (len(paths.get(label, ())) for paths in (coverage.without, coverage.compiled))
        ready = len(coverage.libraries) - without - compiled
        value = f"machine code in {counted_files(ready)}"
        if compiled:
            value += f", PTX alone in {compiled}, which the driver compiles at the first use"
        yield label, value + (f", none in {without}" if without else "")


def _space(space: Space) -> str:
    kinds = sorted(((sum(files.values()), kind) for kind, files in space.unneeded.items()), reverse=True)
    return ", ".join([f"{size(space.total)} unpacked", *(f"{size(number)} {kind}" for number, kind in kinds)])


def counted_files(number: int) -> str:
    """Return a number of files in words."""
    return f"{number} file{'' if number == 1 else 's'}"


def _driver(driver: Driver) -> str:
    value = f"{driver.least} or newer, for CUDA {driver.cuda or driver.major}"
    if driver.belongs and driver.belongs != driver.least:
        value += f"; PTX of that CUDA needs {driver.belongs}"
    return value + (f"; {driver.forward} replaces an older one's" if driver.forward else "")


def _nodes(nodes: NodeDrivers) -> str:
    drivers = ", ".join(f"{driver} on {listed_nodes(names)}" for driver, names in nodes.by_driver.items())
    return drivers + (f"; not known of {listed_nodes(nodes.unlabelled)}" if nodes.unlabelled else "")


def _loader(loading: Loading) -> str:
    if loading.loader:
        return f"{loading.resolved} ELF files resolved as {loading.loader} does"
    return "none in the image"


def _plugins(loading: Loading) -> Iterator[str]:
    """Yield the number of plugins that each opener finds, and how many of them load if not all do."""
    opened: defaultdict[str, list[bool]] = defaultdict(list)
    for plugin in loading.plugins:
        if plugin.file:
            opened[posixpath.basename(plugin.opener)].append(plugin.loads)
    counts = ((name, sum(loads), len(loads)) for name, loads in sorted(opened.items()))
    yield from (f"{name} ({some} of {all_})" if some < all_ else f"{name} ({all_})" for name, some, all_ in counts)


def _libraries(libraries: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield from (f"{library} ({len(files)})" for library, files in sorted(libraries.items()))
