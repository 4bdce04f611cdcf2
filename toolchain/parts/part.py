"""A part of the toolchain, and the note of which program or service is that part on this machine.

Each part has a module with `find(checkout)`, which looks and changes nothing, and `get(checkout)`, which finds it or
makes it. Both give a `Part`. What `get` made is remembered in `.slipway/parts/<name>.json`, written last: a part
without its note is not complete, and is made again. Notes hold absolute paths, as what they speak of does
(an environment's scripts, a launcher): in a checkout that was moved or copied they count for nothing.
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
    """One part as it is used on this machine.

    `used` is the program or service, `version` its version, `why` the reason against the first choice, empty where that
    is used. `env` are the variables, and `path` the folders, that its users need.
    """

    name: str
    used: str
    version: str
    why: str = ""
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kind:
    """How to come by a part: its name, a look that changes nothing, and the way to have it.

    `gone` is the reason to print for a part that `get` once made and that is missing now.
    """

    name: str
    find: Callable[[Checkout], Part | None]
    get: Callable[[Checkout], Part]
    gone: str = ""


def _note(checkout: Checkout, name: str) -> Path:
    return checkout.state / "parts" / (re.sub(r"[^a-z]+", "-", name.lower()) + ".json")


def recall(checkout: Checkout, name: str, key: str | None = None) -> Part | None:
    """Return the part remembered under a name, None if there is none or it was made for another `key` or place."""
    try:
        noted = json.loads(_note(checkout, name).read_text())
        part = Part(**noted["part"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return part if noted.get("root") == str(checkout.root) and key in {None, noted["key"]} else None


def remember(checkout: Checkout, part: Part, key: str = "") -> Part:
    """Note that a part is complete. `key` is what it was made for: with another key it counts as missing.

    Credentials are removed from the note and from the part that is returned.
    """
    part = replace(part, used=without_credentials(part.used), why=without_credentials(part.why))
    write(
        _note(checkout, part.name),
        json.dumps({"root": str(checkout.root), "key": key, "part": asdict(part)}, indent=2) + "\n",
    )
    return part


def forget(checkout: Checkout, name: str) -> None:
    """Drop the note of a part, before something is done that leaves it incomplete if interrupted."""
    _note(checkout, name).unlink(missing_ok=True)
