"""The two folders that everything is in: the repository with the stacks, and the code of Slipway that runs.

In a checkout of Slipway they are one. Elsewhere the code is that of a release, unpacked by the command into the
repository's `.slipway`. So a file's own path tells both, whatever the working directory and the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

RELEASE: Final = Path(".slipway", "release")
"""Where a repository has the code of its release, relative to the repository."""

UPGRADE: Final = RELEASE.with_name("upgrade")
"""Where it has the code of a newer release while :mod:`toolchain.release.upgrade` asks that what it would build."""

CODE: Final = Path(__file__).resolve().parents[1]
"""The folder of Slipway's code: its packages, ``dockerfiles`` and tables."""

ROOT: Final = CODE.parents[1] if CODE.parts[-2:] in {RELEASE.parts, UPGRADE.parts} else CODE
"""The repository: the folder of Pulumi.yaml, to which every path of a plan is relative."""

PIN: Final = "requirements.txt"
"""The file of a repository that pins its release of Slipway; a checkout of Slipway has none."""

CHECKED: Final = "checked"
"""The file of a release's code with the hash that the repository pins for it, and the pip that installed it."""

FLAVORS: Final = "flavors"
"""The folder of a repository's own flavors."""

TABLES: Final = "tables"
"""The folder of a repository's own rows of tables (:mod:`stacks.versions.tables`)."""


def newer_rows(module: str) -> str:
    """Return how a table gets rows that it lacks, as messages name it: by a module in a checkout of Slipway alone."""
    here = f"`python -m {module}` reads newer releases"
    return here if ROOT == CODE else f"a newer release of Slipway may have more; rows of your own: {TABLES}/"


def code(root: Path) -> Path:
    """Return the folder of the code that a tree of files is built with: its own, in a checkout of Slipway."""
    return root if ROOT == CODE else CODE
