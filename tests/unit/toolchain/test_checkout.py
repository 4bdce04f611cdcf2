"""What a checkout says of its lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError


def test_lock_pins_a_package_by_its_whole_name(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    with pytest.raises(ToolchainError, match=r"requirements\.lock is missing: restore it with `git checkout requi"):
        checkout.locked("pulumi")
    checkout.lock.write_text(
        "# pulumi==0\npulumi-aws==7.1.0 \\\n    --hash=sha256:aa\npulumi==3.2.1 \\\n    --hash=sha256:bb\nmarked==1;x\n"
    )
    assert [checkout.locked(name) for name in ("pulumi", "pulumi-aws", "marked")] == ["3.2.1", "7.1.0", "1"]
    for name in ("pulumi-docker", "umi", "pulumi."):
        with pytest.raises(ToolchainError, match=rf"requirements\.lock does not pin {name}: "):
            checkout.locked(name)
