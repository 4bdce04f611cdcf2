"""cosign and Syft, and a key pair: real ones, made for the tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from toolchain import signing
from toolchain.checkout import Checkout

PASSWORD = "of the tests' key"


class Keys:
    """A key pair of cosign's, below a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.environment = {"COSIGN_PASSWORD": PASSWORD}
        subprocess.run(
            ["cosign", "generate-key-pair"],
            cwd=folder,
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
        )
        self.private = folder / "cosign.key"
        self.public = (folder / "cosign.pub").read_text()

    def signing(self, **more: object) -> dict[str, object]:
        """Return `slipway:signing` with this key."""
        return {"key": str(self.private), "publicKey": self.public, **more}


@pytest.fixture(scope="session")
def programs() -> None:
    """Have cosign and Syft, on PATH."""
    checkout = Checkout.here()
    folders = {folder for tool in signing.TOOLS for folder in signing.get(checkout, tool).path}
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ["PATH"]])
