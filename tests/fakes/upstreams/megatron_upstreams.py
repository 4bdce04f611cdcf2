"""Small local stand-ins of what the Megatron-LM image is made of. Python's packages are the index's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

from stacks.versions.aks import aks_node
from tests.fakes.upstreams import ngc

TOPOLOGY = '<system version="1"><!-- a stand-in --></system>\n'


class Upstreams(ngc.Upstreams):
    """DOCA's packages, the topology file, and repositories."""

    stack = "aks-megatron"
    image = "megatron"
    standin = "aks"
    parent_stage = "ngc-aks"
    port = 40000
    tags: ClassVar = {
        "NVIDIA/Megatron-LM": ("v1",),
        "NVIDIA/NeMo-Framework-Launcher": ("24.12",),
        "NVIDIA/TransformerEngine": ("v2.12",),
    }
    downloads: ClassVar = {
        "https://linux.mellanox.com/public/repo/doca": "doca",
        "https://raw.githubusercontent.com/Azure/azhpc-images": "azhpc",
    }
    facts = (TOPOLOGY,)
    topology: ClassVar = {"commit": "a" * 40, "sha256": hashlib.sha256(TOPOLOGY.encode()).hexdigest()}

    @property
    def driver(self) -> Path:
        """The stand-in of NVIDIA's driver."""
        return self.files / "driver"

    def fill(self, folder: Path) -> None:
        """Fill a folder with the files."""
        super().fill(folder)
        for commit in ("a" * 40, aks_node("aks-ndv5").topology.commit):  # type: ignore[union-attr]
            file = folder / "azhpc" / commit / "topology/ndv5-topo.xml"
            file.parent.mkdir(parents=True)
            file.write_text(TOPOLOGY)

    def values(self, stack: str | None = None, **more: Any) -> dict[str, Any]:
        """Return a stack's configuration with the stand-ins' commits and topology file, and other keys."""
        written = super().values(stack)
        return {
            **written,
            "megatron": self.commits["NVIDIA/Megatron-LM"],
            "launcher": {**written.get("launcher", {}), "commit": self.commits["NVIDIA/NeMo-Framework-Launcher"]},
            "topology": self.topology,
            **more,
        }
