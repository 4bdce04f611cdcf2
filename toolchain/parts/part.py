"""A part of the toolchain, and the record of the program or service that this machine uses for it.

Each part has a module with `find(checkout)`, without changes, and `get(checkout)`, which also makes a missing part.
Both return a `Part`. `get` records the part in `.slipway/parts/<name>.json` at its end: a part without a record is
incomplete, and is made again. Records have absolute paths, as the parts do (an environment's scripts, a launcher), so
they are ignored in a moved or copied checkout.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.toolchain_error import without_credentials


@dataclass(frozen=True)
class Part:
    """One part on this machine.

    `used` is the program or service, `version` its version, and `why` the reason against the first choice, if it is not
    used. `env` are the variables, and `path` the folders for PATH, that its users need.
    """

    name: str
    used: str
    version: str
    why: str = ""
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kind:
    """A part's name and functions: `find` changes nothing, `get` makes a missing part.

    `missing` is the reason to print for a part from an earlier `get` that is missing now.
    """

    name: str
    find: Callable[[Checkout], Part | None]
    get: Callable[[Checkout], Part]
    missing: str = ""


def _note(checkout: Checkout, name: str) -> Path:
    return checkout.state / "parts" / (re.sub(r"[^a-z]+", "-", name.lower()) + ".json")


def recall(checkout: Checkout, name: str, key: str | None = None) -> Part | None:
    """Return the recorded part of a name; None without a record, or if it is for another `key` or folder."""
    try:
        noted = json.loads(_note(checkout, name).read_text())
        part = Part(**noted["part"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return part if noted.get("root") == str(checkout.root) and key in {None, noted["key"]} else None


def remember(checkout: Checkout, part: Part, key: str = "") -> Part:
    """Record a complete part. With another `key` than this one, it counts as missing.

    Credentials are removed from the record and from the returned part.
    """
    part = replace(part, used=without_credentials(part.used), why=without_credentials(part.why))
    write(
        _note(checkout, part.name),
        json.dumps({"root": str(checkout.root), "key": key, "part": asdict(part)}, indent=2) + "\n",
    )
    return part


def forget(checkout: Checkout, name: str) -> None:
    """Remove a part's record before a change that would leave it incomplete if interrupted."""
    _note(checkout, name).unlink(missing_ok=True)
