"""How this machine reaches an engine that holds images, as inputs of a resource."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pulumi

from stacks.config.stack_file import ROOT

if TYPE_CHECKING:
    from containers.engine.connection import Address


@dataclass(frozen=True)
class ReachedEngine:
    """The parts of :class:`containers.engine.connection.Address`; without any, the engine of the environment.

    ``folder`` has the client's certificates, in place of ``tls``.
    """

    host: str = ""
    ssh: Sequence[str] = ()
    tls: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    folder: str = ""

    @classmethod
    def of_settings(cls) -> Self:
        """Return the engine of the default docker provider: that of ``docker:host``, if the stack's file has one."""
        given = pulumi.Config("docker")
        tls = {name: pem for name in ("ca", "cert", "key") if (pem := given.get_secret(f"{name}Material"))}
        return cls(given.get("host") or "", given.get_object("sshOpts") or (), tls, given.get("certPath") or "")

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of a resource that :func:`address` reads."""
        folder = {"certificates": self.folder} if self.folder else {}
        return {"engine": self.host, "ssh": list(self.ssh), "tls": dict(self.tls), **folder}


def address(props: Mapping[str, Any]) -> Address:
    """Return the address of the engine of a resource's inputs. Raises SlipwayError: its certificates cannot be read.

    Certificates alone are for the host of the environment, as the docker provider has it.
    """
    from containers.engine.connection import Address  # noqa: PLC0415 - previews do without the engine's client
    from containers.engine.engine import client_certificates  # noqa: PLC0415 - as above

    folder = props.get("certificates")
    tls = client_certificates(folder) if folder else props.get("tls") or {}
    host = props["engine"] or (os.environ.get("DOCKER_HOST", "") if tls else "")
    return Address(host, tuple(props.get("ssh") or ()), tls, ROOT)
