"""What an upgrade says of each stack's images, and where it refuses."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.release import upgrade


def image(fingerprint: str, *siblings: str, **facts: str) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "siblings": list(siblings), "facts": {"args": facts}}


def test_upgrade_names_each_image_that_is_built_anew() -> None:
    base, gone = image("a", V="1"), image("b")
    before = {
        "same": {"images": {"base": base}},
        "many": {"images": {"base": base, "torch": image("c", "base")}},
        "some": {"images": {"base": base, "torch": image("c", "base"), "gone": gone}},
    }
    after = {
        "same": {"images": {"base": base}},
        "many": before["many"],
        "some": {"images": {"base": image("a2", V="2"), "torch": image("c2", "base"), "more": gone}},
    }
    assert [*upgrade._lines(upgrade._moved(before, after))] == [
        "same: as before, its image keeps its tag",
        "many: as before, 2 images keep their tags",
        "some",
        "  base   args V '1' -> '2'",
        "  torch  parent base",
        "  more   new",
        "  gone   no longer built",
    ]


def test_upgrade_of_a_checkout_of_slipway_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Checkout.here()
    monkeypatch.setattr(Checkout, "code", property(lambda checkout: checkout.root))
    with pytest.raises(ToolchainError) as caught:
        upgrade.upgrade(dataclasses.replace(here), "", writing=False)
    assert str(caught.value) == "upgrade: this is a checkout of Slipway: `git pull` brings a newer one"


def test_upgrade_goes_on_where_a_killed_one_ended(tmp_path: Path) -> None:
    """It had written the commits that tags keep, and not the pin."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "stacks").mkdir()
    for name in (".gitignore", "stacks/commits.txt", ".requirements.txt.new"):
        (tmp_path / name).touch()
    subprocess.run(["git", "-C", str(tmp_path), "add", ".gitignore"], check=True)
    assert upgrade._changed(Checkout(tmp_path)) == ".gitignore"
    subprocess.run(["git", "-C", str(tmp_path), "rm", "-q", "-f", ".gitignore"], check=True)
    assert upgrade._changed(Checkout(tmp_path)) == ""
