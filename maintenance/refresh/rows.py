"""Whole rows of tables, made of what public sources say of new releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from containers.image.gpu.release_order import line, order
from maintenance.refresh import torch_table
from stacks.versions.tables import newest_from, table

Rows = Mapping[str, Mapping[str, Any]]
"""Rows by release."""


def torch_rows(package: str, releases: Collection[str], names: Collection[str]) -> Rows:  # noqa: ARG001
    """Return the rows of torch or a companion, which its wheels say. Raises SlipwayError: a wheel cannot be read."""
    return dict(torch_table.table(torch_table.pip_index_url(), package, only=releases))


def cuda_rows(repository: str, releases: Collection[str], names: Collection[str]) -> Rows:
    """Return the rows of CUDA releases whose line the table knows, by the tags of their images.

    Tags name no driver, so it is that of the line's last release, and weak. Of cuDNN they name the major version.
    """
    known = table("cuda")["release"]
    rows: dict[str, Mapping[str, Any]] = {}
    for release in sorted(releases, key=order):
        of_line = [version for version in known if line(version) == line(release)]
        like = newest_from(of_line, release) or next(iter(of_line), None)
        if like is None:
            continue
        tags = [name.removeprefix(f"{release}-") for name in names if name.startswith(f"{release}-")]
        cudnn: dict[str, str] = {}
        distros = sorted({tag.removeprefix("base-") for tag in tags if re.fullmatch(r"base-[a-z]+[\d.]+", tag)})
        for tag in tags:
            if part := re.fullmatch(r"(cudnn(\d*))-devel-[a-z]+[\d.]+", tag):
                cudnn[part[1]] = part[2] or table("cuda")["release"][like]["cudnn"].get(part[1], "9").split(".")[0]
        rows[release] = {
            "driver": known[like]["driver"],
            "distros": distros,
            "cudnn": cudnn,
            "weak": ["driver"],
            "source": f"tags of {repository}; driver of {like}",
        }
    return rows


ROWS: Final[Mapping[str, Callable[[str, Collection[str], Collection[str]], Rows]]] = {
    "torch": torch_rows,
    "cuda": cuda_rows,
}
"""By the word that a source has for them: from its name, the new releases and all names, the rows that can be made."""
