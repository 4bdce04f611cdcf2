"""The differences between two images in loading, and in their GPUs and drivers."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping
from typing import Final

from cli.inspection.inspection_text import counted_files
from containers.image.binaries import inspection
from containers.image.binaries.inspection import Inspection, Question
from containers.image.binaries.plugins import Plugin
from containers.image.registry_image import Image
from stacks.versions import cuda_toolkit

_FAULT: Final = "fault"


def values(image: Image, compiled: Mapping[str, str]) -> Mapping[str, str]:
    """Inspect an image; return what was found, by name: each fault and plugin, the GPU code, the least driver.

    ``compiled`` is what the image is held to: see :class:`stacks.spec.ImageSpec`.

    Raises:
        SlipwayError: a layer cannot be read.
    """
    return _values(inspection.inspect(image, Question(cuda_toolkit, compiled=compiled)))


def _values(inspected: Inspection) -> dict[str, str]:
    libraries = Counter(str(code) for codes in inspected.coverage.libraries.values() for code in codes)
    return {
        **{f"{fault.file}: {fault.missing}": fault.reason or _FAULT for fault in inspected.faults},
        **{_opened(plugin): _state(plugin) for plugin in inspected.loading.plugins if plugin.file},
        **{f"GPU code {code}": counted_files(number) for code, number in libraries.items()},
        **({"least driver": inspected.driver.least} if inspected.driver else {}),
    }


def _opened(plugin: Plugin) -> str:
    return f"{posixpath.basename(plugin.opener)} opens {plugin.name}"


def _state(plugin: Plugin) -> str:
    return "loads" if plugin.loads else "does not load"
