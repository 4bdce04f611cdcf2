"""Former names of dynamic providers, so that states written under them can still be refreshed and destroyed.

A dynamic resource keeps its provider in the state, pickled as module and class name (``__provider``). Pulumi unpickles
that name to read, update or delete the resource. An unchanged resource keeps the name in its outputs even after an
update. So a provider class that moves leaves its former name here, for good.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

MOVED: Final[Mapping[str, Mapping[str, str]]] = {
    "components.published": {"_Asking": "components.supply_chain.published_product.FindPublished"},
    "components.runners.certificates": {"_Making": "components.runners.kubernetes.certificates.MakeCertificates"},
    "components.runners.ec2.builder.shift": {
        "_Resting": "components.runners.ec2.builder.power.StopBuilder",
        "_Waking": "components.runners.ec2.builder.power.StartBuilder",
    },
    "components.runners.reached": {"_Waiting": "components.runners.kubernetes.engine_readiness.WaitForEngine"},
    "components.signing": {
        "_Listing": "components.supply_chain.sbom_attestation.AttestSbom",
        "_Signing": "components.supply_chain.image_signature.SignImage",
        "_Tracing": "components.supply_chain.provenance_attestation.AttestProvenance",
        "_Verifying": "components.supply_chain.verified_parent.VerifyParent",
    },
    "components.tag": {"_Tagging": "components.supply_chain.extra_tag.TagImage"},
}
"""By former module and class: the class's name today."""


class _FormerModule(ModuleType):
    """A former module; its classes are imported from their new modules on first use."""

    def __getattr__(self, name: str) -> Any:
        current = MOVED[self.__name__].get(name)
        if current is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, _, provider = current.rpartition(".")
        return getattr(import_module(module), provider)


def install() -> None:
    """Make the former modules importable. The classes behind them stay unloaded until a state needs one."""
    for module in MOVED:
        sys.modules[module] = _FormerModule(module)
