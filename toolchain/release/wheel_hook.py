"""What hatchling asks when it builds a wheel."""

import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # hatchling loads this file by its path

from toolchain.release.release_archive import NAME, archive


class ArchiveHook(BuildHookInterface[Any]):
    """Adds the archive to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Write the archive, and say where in the wheel it belongs."""
        file = Path(mkdtemp(), NAME)
        file.write_bytes(archive(Path(self.root)))
        build_data["force_include"][str(file)] = f"slipway/{NAME}"
