"""Programs of Debian that tests run: `python -m tests.helpers.machine_programs` installs those that this machine lacks."""

from __future__ import annotations

import shutil
from typing import Final

from tests.helpers.needs import lack
from toolchain.checkout import Checkout
from toolchain.machine import apt

PACKAGES: Final = {
    "ccache": "ccache",
    "mksquashfs": "squashfs-tools",
    "skopeo": "skopeo",
    "strace": "strace",
}
"""The programs, and their packages."""


def have(*programs: str) -> None:
    """Have some of the programs, whichever tests run; skip the test where this user may not install them."""
    missing = sorted({PACKAGES[program] for program in programs if shutil.which(program) is None})
    if missing and not (apt.is_root() and apt.available()):
        lack(f"{' and '.join(missing)}: install it with this system's package manager")
    if missing:
        apt.install(Checkout.here(), *missing)


if __name__ == "__main__":
    if apt.is_root() and apt.available():
        have(*PACKAGES)
