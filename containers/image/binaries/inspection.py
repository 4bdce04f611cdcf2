"""The inspection of an image: what loads, what its GPU code runs on, who owns its files, what space they take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from containers.errors import SlipwayError
from containers.image.binaries import contents, loading
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import PLATFORM_MACHINES, X86_64
from containers.image.binaries.loader import DEFAULT_LEVEL
from containers.image.binaries.loading import Fault, Loading
from containers.image.binaries.refused_files import DEFAULT_PAGE
from containers.image.copies.library_copies import Copies, copies
from containers.image.gpu import driver, gpu_coverage
from containers.image.gpu.driver import CudaDrivers, Driver
from containers.image.gpu.gpu_coverage import Coverage
from containers.image.gpu.node_drivers import NodeDrivers
from containers.image.layers.space import Space
from containers.image.owners import contradictions, ownership
from containers.image.owners.contradictions import Contradiction
from containers.image.owners.ownership import Contested
from containers.image.registry_image import Image
from containers.platform_name import architecture
from containers.starting import started_programs

_ARCH_LIST: Final = "TORCH_CUDA_ARCH_LIST"
_ARCH: Final = re.compile(r"\d{1,2}\.\d")


@dataclass(frozen=True)
class Question:
    """What is asked of an image beside whether it loads.

    Args:
        drivers: the drivers of CUDA's releases.
        gpus: compute capabilities by GPU, each of which must be able to run all GPU code.
        driver: the version of the host's driver, empty for none.
        nodes: the drivers of a cluster's nodes, on which the image is to run; None for no cluster.
        compiled: compute capabilities by what was compiled for them: see :func:`gpu_coverage.lacking`.
        level: the level of the processor, which decides between variants of a library.
        page: bytes of a page of the host's kernel.
        requirements: whether a contradiction is a fault.
    """

    drivers: CudaDrivers
    gpus: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    nodes: NodeDrivers | None = None
    compiled: Mapping[str, str] = field(default_factory=dict)
    level: str = DEFAULT_LEVEL
    page: int = DEFAULT_PAGE
    requirements: bool = False


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    ``arch_list`` is for the compute capabilities in the image's TORCH_CUDA_ARCH_LIST, and no fault: not all libraries
    are compiled for it. ``unread`` says by path why a package manager's record is not read: owners may be unknown.
    ``contradictions`` are faults if files cannot be loaded for them, or if the question says so: an image may run in
    spite of the others.
    """

    image: Image
    question: Question
    loading: Loading
    coverage: Coverage
    arch_list: Coverage
    lacking: Sequence[Fault]
    driver: Driver | None
    contested: Sequence[Contested]
    unstarted: Sequence[Fault]
    unread: Mapping[str, str]
    space: Space
    copies: Sequence[Copies]
    contradictions: Sequence[Contradiction]

    @property
    def allowed(self) -> list[Contradiction]:
        """The contradictions that are no faults."""
        return [one for one in self.contradictions if not self._is_fault(one)]

    def _is_fault(self, one: Contradiction) -> bool:
        return bool(one.files) or self.question.requirements

    @property
    def faults(self) -> list[Fault]:
        """The faults, those of what the image starts first."""
        nodes = self.question.nodes.by_driver if self.question.nodes else None
        drivers = self.driver.faults(self.question.driver, nodes) if self.driver else []
        owners = [contested.fault() for contested in self.contested if contested.is_fault]
        known = {fault.file for fault in self.loading.faults if fault.kind in {"loader", "file"}}
        unstarted = [fault for fault in self.unstarted if not known.intersection((fault.file, *fault.names))]
        twice = [fault for one in self.copies if (fault := one.fault())]
        unmet = [one.fault() for one in self.contradictions if self._is_fault(one)]
        gpu = [*self.coverage.faults(), *self.lacking, *drivers]
        return [*unstarted, *self.loading.faults, *owners, *twice, *unmet, *gpu]

    def as_json(self) -> dict[str, Any]:
        """Return the inspection as JSON."""
        loading = self.loading
        return {
            "reference": self.image.reference,
            "digest": self.image.digest,
            "platform": self.image.platform,
            "faults": [fault._asdict() for fault in self.faults],
            "loader": {
                "loader": loading.loader,
                "resolved": loading.resolved,
                "notResolved": loading.not_resolved,
                "host": loading.host,
                "preloaded": loading.preloaded,
                "optional": loading.optional,
                "sonames": loading.sonames,
                "notPreloaded": loading.ignored,
                "inPlaceOfHost": loading.hiding,
                "plugins": [vars(plugin) for plugin in loading.plugins],
            },
            "gpuCode": {
                "libraries": {path: [*map(str, codes)] for path, codes in self.coverage.libraries.items()},
                "without": self.coverage.without,
                "compiledAtFirstUse": self.coverage.compiled,
                "archList": {"without": self.arch_list.without, "compiledAtFirstUse": self.arch_list.compiled},
            },
            "driver": vars(self.driver) if self.driver else None,
            "nodes": vars(self.question.nodes) if self.question.nodes else None,
            "contested": [
                {
                    "path": one.path,
                    "owners": [f"{owner.manager}: {owner}" for owner in one.owners],
                    "contentOf": str(one.winner) if one.winner else None,
                }
                for one in self.contested
            ],
            "copies": [one.as_json() for one in self.copies],
            "contradictions": [one._asdict() for one in self.contradictions],
            "recordsNotRead": {f"/{path}": reason for path, reason in self.unread.items()},
            "space": self.space.as_json(),
        }


def inspect(image: Image, question: Question, platform: str | None = None) -> Inspection:
    """Read an image's layers and inspect them; ``platform`` is what the image must be for.

    Raises SlipwayError: the image is for another platform, or one without such pages, or a layer cannot be read.
    """
    if platform and image.platform != platform:
        raise SlipwayError(f"{image.reference}: an image for {image.platform}, not for {platform}")
    if question.page > DEFAULT_PAGE and architecture(image.platform) != "arm64":
        pages = f"no host of {image.platform} has pages of {question.page} bytes"
        raise SlipwayError(f"{image.reference}: {pages}: leave out the size of a page, or name linux/arm64")
    return of_contents(image, contents.read(image), question)


def of_contents(image: Image, read: Contents, question: Question) -> Inspection:
    """Inspect an image whose layers are read."""
    processor = architecture(image.platform)
    machine = PLATFORM_MACHINES.get(processor)
    if machine is None:  # of the most files, so that they are counted
        machines = Counter(binary.machine for binary in read.binaries.values() if binary.loaded)
        machine = machines.most_common(1)[0][0] if machines else X86_64
    resolved = loading.resolve(read, machine, question.level, question.page)
    return Inspection(
        image,
        question,
        resolved,
        gpu_coverage.cover(read, question.gpus),
        gpu_coverage.cover(read, {arch: arch for arch in _ARCH.findall(read.environment.get(_ARCH_LIST, ""))}),
        list(gpu_coverage.lacking(read, question.compiled)),
        driver.needed(read, question.drivers),
        ownership.contested(read),
        started_programs.faults(read, machine, image.platform) if processor in PLATFORM_MACHINES else [],
        read.unread,
        read.space,
        copies(read, resolved.processes),
        contradictions.unmet(read, processor),
    )
