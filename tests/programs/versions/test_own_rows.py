"""Rows that a repository of one's own adds to the tables, read by the code of a release that is unpacked there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.places import CODE, PIN, RELEASE, TABLES
from tests.helpers.sample_repository import Checkout
from tests.unit.versions.test_own_rows import _RELEASE
from toolchain.release import release_archive
from toolchain.release.own_repository import TEMPLATE

_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from cli.main import run; run()"
_TAGS = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
from stacks import plan
print(json.dumps({stack: plan.make(stack).images[-1].tag.split("-")[0] for stack in sys.argv[1:]}))
"""
_FLAVOR = """
from pathlib import Path
from typing import Literal
from slipway import ImageSpec, Outside, StackConfig, Suffix

class Config(StackConfig):
    flavor: Literal["reading"] = "reading"

def images(config):
    base = Outside(reference="debian:bookworm-slim")
    suffix = Suffix(variant="reading")
    return [ImageSpec(name="reading", context="reading", dockerfile="Dockerfile", parents={"BASE_IMAGE": base},
                      platform=config.platform, description="d", licenses="MIT", suffix=suffix)]
"""
"""A flavor that may read any file."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a stack whose CUDA no table of Slipway has."""
    root = tmp_path_factory.mktemp("team")
    release_archive.unpack(release_archive.archive(CODE), root / RELEASE)
    (root / "stacks").mkdir()
    (root / TABLES).mkdir()
    (root / "Pulumi.yaml").write_text((TEMPLATE / "Pulumi.yaml").read_text())
    (root / PIN).write_text(f"slipway==0.1.0 --hash=sha256:{'0' * 64}\n")
    (root / "stacks" / "Pulumi.base.yaml").write_text(
        "config:\n  slipway:flavor: base\n  slipway:cuda: 13.2.9\n  slipway:distro: ubuntu24.04\n"
    )
    return root


@pytest.fixture
def tables(repository: Path) -> Iterator[Path]:
    """The folder of the repository's own rows, which is empty afterwards."""
    yield repository / TABLES
    for file in (repository / TABLES).iterdir():
        file.unlink()


def slipway(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", _RUN, str(root / RELEASE), *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=120)


def test_row_of_ones_own_admits_a_cuda_release(repository: Path, tables: Path) -> None:
    assert "13.2.9" in slipway(repository, "check").stderr
    (tables / "cuda.toml").write_text(_RELEASE)
    done = slipway(repository, "check")
    assert done.returncode == 0, done.stderr
    assert "-cuda13.2.9-ubuntu24.04-" in slipway(repository, "show", "base").stdout


def test_refused_row_is_a_line_of_the_check(repository: Path, tables: Path) -> None:
    """The first table that is read refuses it, which is while the flavors are loaded."""
    (tables / "cuda.toml").write_text("[release\n")
    done = slipway(repository, "check")
    assert done.returncode == 1
    assert all(f"{TABLES}/cuda.toml: " in line for line in done.stderr.splitlines() if "broken" in line), done.stderr
    assert f"{TABLES}/cuda.toml: not TOML" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("tables")
def test_row_moves_the_tags_of_its_stacks_alone(repository: Path) -> None:
    """The rows of each commit decide what it built; of a flavor that may read them, nobody can tell."""
    checkout = Checkout(repository)
    checkout.write("flavors/reading.py", _FLAVOR)
    checkout.write("reading/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    for stack in ("local", "reading"):
        checkout.write(f"stacks/Pulumi.{stack}.yaml", f"config:\n  slipway:flavor: {stack}\n")
    checkout.write(".gitignore", ".slipway\n")
    checkout.git("init", "-q", "-b", "main")
    first = checkout.commit(f"{TABLES}/cuda.toml", _RELEASE)
    vision = '"0.99.0" = { torch = "==2.15.0", python = ["*"] }'
    newer = checkout.commit(f"{TABLES}/torch.toml", f"[vision]\n{vision}\n")
    checkout.commit(f"{TABLES}/cuda.toml", _RELEASE.replace("[release]", "[release]\n'13.2.8' = { driver = '1' }"))
    last = checkout.commit(f"{TABLES}/cuda.toml", f"# only a comment\n{_RELEASE}")

    command = [sys.executable, "-P", "-c", _TAGS, str(repository / RELEASE), "local", "base", "reading"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == {"local": first, "base": newer, "reading": last}
    affected = slipway(repository, "affected", "--since", first).stdout
    assert affected.startswith(f"base\n  vision-source  the rows in {TABLES}/\n")
    assert affected.endswith("reading\n  reading  cannot be compared\n")
