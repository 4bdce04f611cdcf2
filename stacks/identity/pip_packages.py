"""The Python packages for a build's pip steps, as far as the lock has them.

Every pip step that reaches an index gets its options from ``pip-index``. With the lock, that script names one page in
place of the indexes. The page links each locked file with its SHA-256, and pip refuses a file with another one
(``pip install --find-links``: a link's fragment). What the page does not have, pip does not install: neither a package
nor a build requirement of a source, which ``--require-hashes`` does not cover.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from stacks.identity.prologue import Prologue

SCRIPT: Final = "common/layers/pip-index"
"""The script that prints pip's options, relative to the context."""

INDEX_ARG: Final = "PYTHON_INDEX_URL"
"""The build argument that a stage with such a step declares."""


def prologue(files: Mapping[str, str]) -> Prologue:
    """Return the lines before ``pip-index`` that take its place; ``files`` maps addresses to SHA-256 in hexadecimal.

    The identity has the names and hashes of the files. A mirror with the same files gives the same image.
    """
    links = "".join(
        f'<a href="{url}#sha256={digest}">{posixpath.basename(url)}</a>\n'
        for url, digest in ((address.partition("#")[0], digest) for address, digest in sorted(files.items()))
    )
    named = sorted({(_name(address), digest) for address, digest in files.items()})
    return Prologue(_page(links), "".join(f"{name} {digest}\n" for name, digest in named))


def _page(links: str) -> str:
    return f"""#!/bin/sh
# The Python packages of stacks/lock.toml, each file by its hash.
set -eu
page=$(mktemp -d)/packages.html
cat > "$page" << 'LINKS'
<!doctype html>
{links}LINKS
printf ' --no-index --find-links %s' "$page"
exit 0
"""


def versions(addresses: Iterable[str]) -> dict[str, str]:
    """Return the version of each package whose wheels have these addresses; of several, for other Pythons, all."""
    by_name: dict[str, set[str]] = {}
    for address in addresses:
        name, version, *_ = (*_name(address).split("-"), "")
        by_name.setdefault(name.lower().replace("_", "-"), set()).add(version)
    return {name: ", ".join(sorted(each)) for name, each in sorted(by_name.items())}


def _name(address: str) -> str:
    """Return the name of the file that an address leads to."""
    return unquote(posixpath.basename(urlsplit(address).path))
