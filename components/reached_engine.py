"""How this machine reaches an engine that holds images, as inputs of a resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import pulumi


@dataclass(frozen=True)
class ReachedEngine:
    """The inputs of :class:`containers.engine.connection.Address`; without any, the engine of the environment."""

    host: str = ""
    ssh: Sequence[str] = ()
    tls: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)

    @classmethod
    def of_settings(cls) -> Self:
        """Return the engine of the default docker provider: that of ``docker:host``, if the stack's file has one."""
        given = pulumi.Config("docker")
        tls = {name: pem for name in ("ca", "cert", "key") if (pem := given.get_secret(f"{name}Material"))}
        return cls(given.get("host") or "", given.get_object("sshOpts") or (), tls)
