"""The tables of keys in the images' READMEs are the models' own."""

from __future__ import annotations

import shutil
from pathlib import Path

from stacks import docs, flavors
from stacks.source import ROOT


def test_every_table_is_current() -> None:
    for path, text in docs.readmes().items():
        assert path.read_text() == text, "run `python -m stacks docs`"


def test_every_flavor_with_keys_of_its_own_has_its_table_in_one_readme() -> None:
    having = [name for name in flavors.names() if len(docs.table([name]).splitlines()) > 2]
    assert set(flavors.names()) - set(having) == {"runners"}
    named = [name for path in docs.readmes() for name in docs.MARK.search(path.read_text())["flavors"].split()]  # type: ignore[index]
    assert sorted(named) == having


def test_a_row_has_the_default_and_the_description_of_a_key_and_of_those_in_it() -> None:
    rows = docs.table(["base", "nccl"]).splitlines()
    assert rows[0] == "| Key | Flavors | Default | Meaning |"
    assert "| `slipway:nccl` | nccl | `2.30.4-1` | NCCL, with its package revision. |" in rows
    assert "| `slipway:extras.xformers` | base, nccl | `false` | xformers. |" in rows
    assert (
        "| `slipway:tagFields` | base, nccl | `distro, abi` | Optional fields that the tags carry: distro, abi. |"
        in rows
    )
    assert "| `slipway:torch.commits.vision` | base, nccl |  | Commit of pytorch/vision. |" in rows
    assert not [row for row in rows if "slipway:registry" in row]
    assert docs.table(["efa"]).startswith("| Key | Default | Meaning |\n")


def test_an_old_table_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dockerfiles/efa", tmp_path / "dockerfiles/efa")
    readme = tmp_path / "dockerfiles/efa/README.md"
    current = readme.read_text()
    stale = current.replace("| `slipway:ngc` | `", "| `slipway:gone` | `")
    assert stale != current
    readme.write_text(stale)
    assert docs.write(tmp_path) == [readme]
    assert readme.read_text() == current
    assert docs.write(tmp_path) == []
