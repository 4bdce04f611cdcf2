"""What an upgrade says of each stack's images, and where it refuses."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stacks.places import CODE, PIN
from tests.helpers.every import every
from toolchain.checkout import Checkout
from toolchain.machine import pip
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.release import own_repository, own_workflows, upgrade
from toolchain.release.own_repository import TEMPLATE

RELEASES = "https://github.com/acme/slipway/releases/download"
WHEEL = "slipway-V-py3-none-any.whl"


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


@every(
    "pinned, release, asked",
    [
        (f"slipway @ {RELEASES}/vV/{WHEEL}", "9.9.9", f"{RELEASES}/v9.9.9/slipway-9.9.9-py3-none-any.whl"),
        (f"slipway @ https://x.example/{WHEEL}", "9.9.9", "https://x.example/slipway-9.9.9-py3-none-any.whl"),
        (f"slipway @ {RELEASES}/vV/{WHEEL}", "https://y.example/w.whl", "https://y.example/w.whl"),
        ("slipway==V", "https://y.example/w.whl?key=a", "https://y.example/w.whl?key=a"),
    ],
)
def test_upgrade_asks_where_the_pinned_release_is_from(
    pinned: str, release: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = list[str]()

    def download(_python: Path, address: str, *_: object) -> None:
        addresses.append(address)
        raise ToolchainError("none")

    monkeypatch.setattr(pip, "download", download)
    pin(tmp_path, pinned)
    with pytest.raises(ToolchainError, match="pip gets no https://"):
        upgrade._wheel(Checkout(tmp_path), release, tmp_path)
    assert addresses == [asked]


@every("release", ["", "9.9.9", "newest", "slipway", "git+https://x.example/s", "https://x.example/s.tar.gz"])
def test_upgrade_takes_a_release_of_no_index(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is another project's there. pip runs code of a source archive or a clone."""
    monkeypatch.setattr(pip, "_run", lambda *_: pytest.fail("pip runs"))
    pin(tmp_path, "slipway==V")
    with pytest.raises(ToolchainError) as caught:
        upgrade._wheel(Checkout(tmp_path), release, tmp_path)
    assert str(caught.value) == (
        f"upgrade: {f'{release!r} is no release: ' if release else ''}name a wheel's file or address, such as "
        f"./slipway-0.2.0-py3-none-any.whl; {PIN} pins no address, beside which a version is"
    )


def pin(root: Path, requirement: str) -> None:
    """Pin the release that runs."""
    requirement = requirement.replace("V", own_repository.version())
    (root / PIN).write_text(f"{requirement} --hash=sha256:{'0' * 64}\n")


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


def test_upgrade_replaces_the_workflows_that_nobody_edited(tmp_path: Path) -> None:
    root, code = tmp_path / "own", tmp_path / "newer"
    theirs = code / TEMPLATE.relative_to(CODE)
    paths = own_workflows.copied()
    assert [path.stem for path in paths] == ["preview", "publish", "up", "warm"]
    for path in paths:
        text = (TEMPLATE / path).read_text()
        for folder in (root, theirs):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    unedited, edited, same, gone = paths
    (root / edited).write_text("name: mine\n")
    (root / gone).unlink()
    for path in (unedited, edited, gone):
        (theirs / path).write_text("name: newer\n")
    workflows = own_workflows.newer(root, code)
    assert workflows.lines() == [
        f"workflows, `--write` copies the release's: {unedited}",
        f"workflows, edited here, compare with those of a new `slipway init`: {edited}",
    ]
    own_workflows.replace(root, workflows)
    assert (root / unedited).read_text() == "name: newer\n"
    assert (root / edited).read_text() == "name: mine\n"
    assert (root / same).read_text() == (TEMPLATE / same).read_text()
    assert not (root / gone).exists()
    assert own_workflows.newer(root, code).lines() == workflows.lines()[1:]
