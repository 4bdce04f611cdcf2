"""Gives a fresh root file system the root certificates that this machine trusts beyond the distribution's own.

Behind a proxy that inspects TLS nothing could be downloaded in a build without them. A hook of mmdebstrap runs this
file by its path, so it imports nothing of this package.
"""

import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

BUNDLE: Final = Path("etc/ssl/certs/ca-certificates.crt")
LOCAL: Final = Path("usr/local/share/ca-certificates")
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\n.*?\n-----END CERTIFICATE-----\n", re.DOTALL)


def additional(machine: str, distribution: str) -> list[str]:
    """Return the PEM blocks of one bundle whose certificates the other one lacks, in order."""
    known = {ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(distribution)}
    blocks: dict[bytes, str] = {ssl.PEM_cert_to_DER_cert(block): block for block in _PEM.findall(machine)}
    return [block for certificate, block in blocks.items() if certificate not in known]


def add(root: Path) -> int:
    """Add this machine's additional certificates to a root file system; return how many there are."""
    machine = Path("/") / BUNDLE
    blocks = additional(machine.read_text(), (root / BUNDLE).read_text()) if machine.exists() else []
    for number, block in enumerate(blocks, 1):
        (root / LOCAL).mkdir(parents=True, exist_ok=True)
        (root / LOCAL / f"machine-{number}.crt").write_text(block)
    if blocks:
        subprocess.run(["chroot", root, "update-ca-certificates"], check=True, timeout=600)
    return len(blocks)


if __name__ == "__main__":
    add(Path(sys.argv[1]))
