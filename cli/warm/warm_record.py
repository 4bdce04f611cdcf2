"""What a warm layer is for, and how it came about: its key, kept in the image's history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.warm import warm_container
from containers.errors import MALFORMED


@dataclass(frozen=True)
class WarmRecord:
    """What decides the content of a warm layer.

    ``image`` is the digest of the image that the script ran in, ``script`` the script's path and ``sha256`` its
    content's hash. ``machine`` are the lines of GPUs, driver and processor that the layer fits.
    """

    image: str
    script: str
    sha256: str
    torch: str
    triton: str
    machine: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of the layer's folder in the image."""
        return warm_container.key(vars(self))

    @property
    def where(self) -> str:
        """The GPUs that it is for, in words."""
        models = [line.removeprefix("gpu ") for line in self.machine if line.startswith("gpu ")]
        return ", ".join(models) or "no GPU"

    def history(self) -> dict[str, str]:
        """Return the layer's entry in the history of an image's configuration."""
        comment = json.dumps({"warm": self.key, **vars(self)}, sort_keys=True)
        return {"created_by": f"slipway warm: {self.script} on {self.where}", "comment": comment}

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> WarmRecord | None:
        """Return the record of a layer's entry in the history; None if the layer is another one."""
        try:
            values = json.loads(entry["comment"])
            key = values.pop("warm")
            record = cls(**{**values, "machine": tuple(map(str, values["machine"]))})
        except (*MALFORMED, TypeError):
            return None
        return record if record.key == key else None


def combined_key(records: Sequence[WarmRecord]) -> str:
    """Return what tells an image with these layers from those with others."""
    return hashlib.sha256("".join(sorted(record.key for record in records)).encode()).hexdigest()[:8]
