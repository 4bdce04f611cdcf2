"""The tables in the images' READMEs are the models' and the Dockerfiles' own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from containers.errors import SlipwayError
from maintenance.generated import readme_tables
from stacks import flavors
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every


def test_readme_tables_committed_are_current() -> None:
    for path, text in readme_tables.readmes().items():
        assert path.read_text() == text, "run `python -m maintenance docs`"


def test_readme_tables_have_each_flavor_once() -> None:
    documented = [name for name in flavors.names() if len(readme_tables.table([name]).splitlines()) > 2]
    assert set(flavors.names()) - set(documented) == {"runners"}
    marks = [mark for path in readme_tables.readmes() for mark in readme_tables.MARK.finditer(path.read_text())]
    named = [name for mark in marks for name in mark["flavors"].split()]
    assert sorted(named) == documented


def test_table_row_has_default_and_description() -> None:
    rows = readme_tables.table(["base", "nccl"]).splitlines()
    assert rows[0] == "| Key | Flavors | Default | Meaning |"
    assert "| `slipway:nccl` | nccl | `2.30.4-1` | NCCL, with its package revision. |" in rows
    assert "| `slipway:extras.xformers` | base, nccl | `false` | xformers. |" in rows
    assert "| `slipway:tagFields` | base, nccl | `distro, abi` | Optional fields of the tags: distro, abi. |" in rows
    assert "| `slipway:torch.commits.vision` | base, nccl |  | Commit of pytorch/vision. |" in rows
    assert not [row for row in rows if "slipway:registry" in row]
    assert readme_tables.table(["efa"]).startswith("| Key | Default | Meaning |\n")


def test_readme_with_stale_table_gets_only_a_new_table(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dockerfiles/efa", tmp_path / "dockerfiles/efa")
    readme = tmp_path / "dockerfiles/efa/README.md"
    current = readme.read_text()
    stale = current.replace("| `slipway:ngc` | `", "| `slipway:gone` | `")
    assert stale != current
    readme.write_text(stale)
    assert readme_tables.readmes(tmp_path) == {readme: current}


def test_readme_of_every_image_has_a_table_of_arguments() -> None:
    documented = [path.parent for path, text in readme_tables.readmes().items() if readme_tables.ARGUMENTS.search(text)]
    assert documented == sorted(path.parent for path in (ROOT / CONTEXT).glob("*/Dockerfile"))


def test_arguments_row_has_the_comment_or_the_meaning_of_key(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "# Not about it.\n# A What a|b is.\n# hadolint ignore=DL3064\nARG A\nARG APT_MIRROR=''\nFROM scratch\n"
        "# B_1 (slipway:torch.vision)\nARG B_1=1\nARG B_2\n# A Something else.\nARG A=x\n"
        '# D (the stack, slipway:train[].uid) Whose it is.\nARG D=""\n# E Somewhere.\nARG E=https://example.com\n'
        "ARG LABEL_BASE_NAME\n"
    )
    vision = "Release of torchvision. Default: the newest that goes with this torch."
    assert readme_tables.arguments(path).splitlines()[2:] == [
        "| `A` | `x` | by hand | What a\\|b is. |",
        f"| `B_1` | `1` | `slipway:torch.vision` | {vision} |",
        f"| `B_2` | none | `slipway:torch.vision` | {vision} |",
        "| `D` | empty | the stack, `slipway:train[].uid` | Whose it is. |",
        "| `E` | `https://example.com` | `slipway:mirrors.downloads` | Somewhere. |",
        f"| `APT_MIRROR` | empty | `slipway:mirrors.apt` | {MirrorsConfig.model_fields['apt'].description} |",
        "| `LABEL_BASE_NAME` | none | the stack | The label `org.opencontainers.image.base.name`. |",
    ]


@every(
    "text, message",
    [
        ("# What it is for.\nARG A\n", "nothing says what A means: write '# A ...' above its ARG"),
        ("# A Too far.\n\nARG A\n", "nothing says what A means"),
        ("# A (slipway:torch.vison) It.\nARG A\n", "no flavor has the key slipway:torch.vison"),
        ("# A (slipway:train[].vision)\nARG A\n", "no flavor has the key slipway:train[].vision"),
    ],
)
def test_arguments_without_meaning_or_known_key_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(SlipwayError, match=re.escape(f"{tmp_path}/Dockerfile: {message}")):
        readme_tables.arguments(tmp_path / "Dockerfile")


def test_images_of_a_stack_stand_after_their_parents() -> None:
    lines = readme_tables.images("nccl-cu132").splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    placed = ["", *(image for image, *_ in rows)]
    for image, base, mounted in rows:
        for parent in (base, *mounted.split(", ")):
            assert parent.startswith("`") or placed.index(parent) < placed.index(image)
    assert {image: base for image, base, _ in rows}["torch"] == "nccl-tests"
