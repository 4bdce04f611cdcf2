"""``slipway:inspection``: what an image must load, and the exceptions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from stacks.config.model import Line, Model, explaining


def _pattern(value: str) -> str:
    if not value.startswith(("/", "*")):
        raise ValueError("expected a path in the image that begins with / or *, such as /opt/acme/lib/*.so")
    return value


class InspectionExceptionConfig(Model):
    """A fault that does not stop an image, with the reason."""

    files: Annotated[Line, AfterValidator(_pattern)] = Field(
        description="Pattern of the files' paths, such as /opt/acme/lib/*.so. A star matches slashes too."
    )
    missing: Line = Field("*", description="Pattern of what they miss: the name of a library, a symbol or a version.")
    reason: Annotated[str, AfterValidator(explaining("why this is no fault"))] = Field(
        description="Why this is no fault."
    )

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not re.search(r"[^*?/.]", self.files) and not re.search(r"[^*?.]", self.missing):
            raise ValueError(
                "expected a pattern of files or of what they miss: this excepts every fault, as `gate: false`"
            )
        return self

    def covers(self, file: str, names: Sequence[str]) -> bool:
        """Return whether it excepts a fault: its file, and all libraries, symbols or versions that the file misses."""
        return fnmatch.fnmatchcase(file, self.files) and (
            self.missing == "*" or (bool(names) and all(fnmatch.fnmatchcase(name, self.missing) for name in names))
        )


class InspectionConfig(Model):
    """What an image must load before it gets its tag."""

    gate: bool = Field(
        default=True,
        description="Inspect each image that has checks. An image with a fault gets no tag, and none is built on it.",
    )
    requirements: bool = Field(
        default=False, description="Count packages as a fault whose requirements the packages beside them do not meet."
    )
    exceptions: tuple[InspectionExceptionConfig, ...] = Field(
        (), description="Faults that do not stop an image: [{files: PATTERN, missing: PATTERN, reason: TEXT}]."
    )
