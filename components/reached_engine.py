"""How this machine reaches an engine that holds images, as inputs of a resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi


@dataclass(frozen=True)
class ReachedEngine:
    """The inputs of :class:`containers.engine.connection.Address`; without any, the engine of the environment."""

    host: str = ""
    ssh: Sequence[str] = ()
    tls: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
