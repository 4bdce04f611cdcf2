"""Rows of the tables that no public source confirms: marked in the tables, and named for the stacks that use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stacks import flavors
from stacks.versions import tables
from stacks.versions.tables import Reliance, table, weak_keys, weak_line
from tests.helpers.every import every

FILES = sorted(path.stem for path in Path(tables.__file__).parent.glob("*.toml"))
OF_THE_ROW = {"weak", "source", "checked"}


def weak_rows(rows: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows that have the mark, at any depth."""
    if "weak" in rows:
        yield rows
    for row in rows.values():
        if isinstance(row, Mapping):
            yield from weak_rows(row)


def warnings(keys: Mapping[str, Any]) -> list[str]:
    return [line for line in flavors.load(keys, "stack mine").warnings if "no public source" in line]


@every("name", FILES)
def test_weak_keys_are_keys_of_their_row(name: str) -> None:
    for row in weak_rows(table(name)):
        assert row["weak"]
        assert set(row["weak"]) <= row.keys() - OF_THE_ROW


@every("name", FILES)
def test_table_names_its_sources(name: str) -> None:
    text = (Path(tables.__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    assert re.search(r"\b[Ss]ources?\b", text)


@every("name", ["distros", "ngc"])
def test_row_has_a_source_or_is_weak(name: str) -> None:
    for row in table(name).values():
        confirmed = row.keys() & {"source", "checked"}
        assert confirmed or set(row["weak"]) >= row.keys() - OF_THE_ROW - {"image", "packages", "refused"}


def test_line_names_weak_keys_that_are_relied_on() -> None:
    [line] = weak_line([Reliance("ngc", ("23.10",), ("cuda", "nccl")), Reliance("distros", ("ubi10",), ("gcc",))])
    assert line == (
        "no public source confirms ngc.23.10: cuda, nccl; distros.ubi10: gcc; check before you rely on it, "
        "stacks/versions/ngc.toml, stacks/versions/distros.toml"
    )


def test_key_of_a_confirmed_row_is_not_weak() -> None:
    assert weak_keys(Reliance("distros", ("ubuntu24.04",), ("python", "gcc"))) == ()
    assert weak_keys(Reliance("ngc", ("24.03",), ("torch",))) == ()
    assert weak_keys(Reliance("ngc", ("99.01",), ("cuda",))) == ()
    assert weak_line([]) == []


def test_stack_on_weak_parent_is_warned_once() -> None:
    [line] = warnings({"flavor": "efa", "ngc": "23.10", "efa": {"installer": "1.30.0", "ofiNccl": "1.7.3-aws"}})
    assert line.startswith("no public source confirms ngc.23.10: ubuntu, cuda, nccl; check")
    assert warnings({"flavor": "efa"}) == []


def test_stack_with_another_python_relies_on_that_key() -> None:
    keys = {"flavor": "base", "cuda": "12.6.3", "distro": "ubuntu22.04", "torch": {"version": "2.7.1"}, "extras": {}}
    assert warnings(keys) == []
    assert warnings(keys | {"python": "3.11"}) == [
        "no public source confirms distros.ubuntu22.04: pythons; check before you rely on it, stacks/versions/distros.toml"
    ]
