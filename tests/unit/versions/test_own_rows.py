"""Rows that a repository of one's own adds to the tables, read by the code of a release that is unpacked there."""

from __future__ import annotations

import copy
import tomllib

import pytest

from containers.errors import SlipwayError
from stacks.places import CODE, ROOT, TABLES
from stacks.versions import tables as table_files
from stacks.versions.tables import _add
from tests.helpers.every import every

_RELEASE = """
[release]
"13.2.9" = { driver = "595.99.01", distros = ["ubuntu24.04"], cudnn = { cudnn = "9" }, source = "our own mirror" }
"""


@every(
    "name, text, reason",
    [
        ("cuda.toml", _RELEASE.replace("13.2.9", "13.2.1"), "release.13.2.1.driver is Slipway's own"),
        ("cuda.toml", '[release."13.2.1"]\nold = "1"\n', "release.13.2.1.old is nothing that Slipway reads"),
        ("cuda.toml", _RELEASE.replace("driver", "drivers"), "release.13.2.9: no other row has 'drivers'"),
        ("cuda.toml", '[releases]\n"13.2.9" = {}\n', "releases is nothing that Slipway reads"),
        ("cuda.toml", '[release]\n"13.2.9" = 1\n', "release.13.2.9 is not of the form of the other rows"),
        ("cuda.toml", 'release = "13.2.9"\n', "release is Slipway's own"),
        ("cuda.toml", "[release\n", "not TOML"),
        ("cuda.toml", '[name]\nhopper = "9.0"\n', "name.hopper is Slipway's own"),
        ("extras.toml", '[mine]\ntitle = "Mine"\n', "mine is nothing that Slipway reads"),
        ("aks.toml", "[other]\n", "other is nothing that Slipway reads"),
        ("cude.toml", "", "Slipway has no such table (did you mean 'cuda'?)"),
        ("cuda.txt", "", "Slipway has no such table"),
    ],
)
def test_row_that_cannot_be_added_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, reason: str
) -> None:
    monkeypatch.setattr(table_files, "_own_files", lambda: {name: text})
    with pytest.raises(SlipwayError) as refused:
        table_files._with_own_rows.__wrapped__()
    assert str(refused.value).startswith(f"{TABLES}/{name}: {reason}")


def test_row_that_slipway_has_too_changes_nothing() -> None:
    """As after an upgrade to a release with the row, whose source is another."""
    ours = tomllib.loads((CODE / "stacks/versions/cuda.toml").read_text())
    before = copy.deepcopy(ours)
    own = {"release": {"13.2.1": {**before["release"]["13.2.1"], "source": "our own mirror"}}}
    _add(ours, own, f"{TABLES}/cuda.toml", ())
    assert ours == before


def test_checkout_of_slipway_has_no_such_folder() -> None:
    assert not (ROOT / TABLES).exists()
