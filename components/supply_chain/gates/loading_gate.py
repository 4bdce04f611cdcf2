"""The gate of an image: everything in it loads, but for the stack's exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from containers.budget import apart
from containers.errors import SlipwayError, listing
from containers.evidence import loading_evidence
from containers.image.binaries import contents, inspection
from containers.image.binaries.refused_files import DEFAULT_PAGE
from containers.image.layers.layer import LayerIndex
from containers.image.registry_image import Image, fetch_each
from containers.registry import credentials
from stacks.config.gates.inspection_gate import InspectionExceptionConfig
from stacks.versions import cuda_toolkit


def evidence(
    ref: str,
    login: credentials.Login | None,
    exceptions: Sequence[InspectionExceptionConfig],
    compiled: Mapping[str, str],
    question: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Inspect a pushed image, ``repository@sha256:...``, or each image of an index; return the result as evidence.

    ``compiled`` is what the stack compiled, and for which GPUs: see :class:`stacks.spec.ImageSpec`. ``question`` is
    what else the stack wants to know: see :class:`stacks.placement.Gates`.

    Raises SlipwayError: a layer cannot be read.
    """
    return apart(ref, _evidence, ref, login, exceptions, compiled, question)


def _evidence(ref: str, login: credentials.Login | None, *rules: Any) -> dict[str, Any]:
    exceptions, compiled, question = rules
    inspections = [inspection.inspect(image, _question(compiled, question)) for image in fetch_each(ref, login)]
    return loading_evidence.predicate(inspections, exceptions, datetime.now(UTC))


def _question(compiled: Mapping[str, str], question: Mapping[str, Any] | None) -> inspection.Question:
    given = question or {}
    return inspection.Question(
        cuda_toolkit,
        compiled=compiled,
        page=int(given.get("page", DEFAULT_PAGE)),  # Pulumi's numbers are floats
        requirements=bool(given.get("requirements")),
    )


def check(
    ref: str,
    login: credentials.Login | None,
    exceptions: Sequence[Mapping[str, str]],
    compiled: Mapping[str, str],
    question: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the evidence of a pushed image in which everything loads; ``exceptions`` are of ``slipway:inspection``.

    Raises SlipwayError: something in the image does not load, or has no code for a GPU that it was compiled for, with a
    line for each fault; or a layer cannot be read.
    """
    rows = [InspectionExceptionConfig.model_validate(row) for row in exceptions]
    result = evidence(ref, login, rows, compiled, question)
    _refuse(f"{ref}: not tagged", result, rows, f"`slipway inspect {ref}` lists them")
    return result


def check_unpushed(
    name: str,
    image: Image,
    layers: list[LayerIndex],
    exceptions: Sequence[Mapping[str, str]],
    compiled: Mapping[str, str],
    question: Mapping[str, Any] | None = None,
) -> None:
    """Inspect an image of an engine, ``repository:tag``, whose layers were read with the facts of its contents.

    Raises SlipwayError: as for a pushed image.
    """
    rows = [InspectionExceptionConfig.model_validate(row) for row in exceptions]
    inspected = inspection.of_contents(image, contents.of(layers, image.config), _question(compiled, question))
    result = loading_evidence.predicate([inspected], rows, datetime.now(UTC))
    _refuse(f"{name}: ends the update", result, rows, "save it with `docker save`, and `slipway inspect` lists them")


def _refuse(
    subject: str, result: Mapping[str, Any], exceptions: Sequence[InspectionExceptionConfig], rest: str
) -> None:
    """Raise an error with a line for each fault that no exception covers, if there is one."""
    faults = loading_evidence.counting(result, exceptions)
    if faults:
        number = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        header = f"{subject} because of {number}; fix the image, or list it in slipway:inspection.exceptions:"
        raise SlipwayError(listing(header, faults, f"; {rest}"))
