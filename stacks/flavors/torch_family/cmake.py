"""``slipway:cmake``: variables of PyTorch's build, such as ``USE_MKLDNN: 0``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from containers.errors import one_line, suggest
from stacks.config.model import Environment, refuse
from stacks.versions.tables import table

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[A-Za-z0-9_./+=:,;-]+( [A-Za-z0-9_./+=:,;-]+)*")
"""Values that no shell, and no list of CMake's, reads in another way."""

_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native\b")
"""Options of gcc's, and of clang's, for the processor that compiles (gcc's manual, x86 and AArch64 options)."""

_FALSE = re.compile(r"0|OFF|NO|FALSE|N|IGNORE|(.*-)?NOTFOUND", re.IGNORECASE)
"""What CMake's ``if`` takes for false (cmake-commands, `if`, "Constant")."""


def _mistakes(name: str, value: str, flavor: str) -> Iterator[str]:
    rules = table("torch_cmake")
    row = rules["feature"].get(name, {})
    flavors = row.get("flavors", [flavor])
    if setter := rules["set"].get(name):
        yield f"the variable {name} cannot be set here: it is set by {setter}"
    elif why := rules["none"].get(name):
        yield f"the variable {name} cannot be set here: it {why}"
    elif not _NAME.fullmatch(name) or not (name.startswith(tuple(rules["prefixes"])) or name in rules["others"]):
        known = [*rules["others"], *rules["feature"]]
        yield (
            f"the variable '{one_line(name)}' does not reach PyTorch's build{suggest(name, known)}; expected a name "
            f"that begins with {', '.join(rules['prefixes'])}, or one of `others` in stacks/versions/torch_cmake.toml"
        )
    elif not _VALUE.fullmatch(value):
        yield (
            f"the variable {name} cannot be '{one_line(value)}': expected words of letters, digits and "
            "_ . / + = : , ; -, with one blank between them"
        )
    elif native := _NATIVE.search(value):
        yield (
            f"the variable {name} cannot be '{value}': {native[0]} compiles for the builder's own processor; name the "
            "oldest one that the image runs on, such as -march=haswell"
        )
    elif flavor not in flavors and not _FALSE.fullmatch(value):
        yield (
            f"the variable {name} cannot be '{value}' in flavor {flavor}, whose builder has no "
            f"{', '.join(row['features'])}: leave it out, or take flavor {', '.join(flavors)}"
        )


def _check(values: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    flavor = info.data.get("flavor", "")
    refuse(values, (ValueError(line) for name, value in values.items() for line in _mistakes(name, value, flavor)))
    return values


Switches = Annotated[Environment, AfterValidator(_check)]
"""Variables of PyTorch's build by name. True, false and numbers become text."""


DESCRIPTION = (
    "Variables of PyTorch's build, such as USE_MKLDNN: 0: those that begin with USE_, BUILD_ or CMAKE_, and some "
    "others, such as ATEN_THREADING. The image's check expects a feature to be off if one switches it off."
)
"""What the key is, for its documentation."""


def switches_argument(switches: Mapping[str, str]) -> dict[str, str]:
    """Return the argument by which torch's build gets the variables, a line for each; none without any."""
    lines = [f"{name}={value}" for name, value in sorted(switches.items())]
    return {"TORCH_SWITCHES": "\n".join(lines)} if lines else {}


def switched_features(switches: Mapping[str, str]) -> list[str]:
    """Return what the variables change of torch's features: ``-mkldnn`` it must not have, ``+mpi`` no wheel has."""
    rows = table("torch_cmake")["feature"]
    added = {feature for row in rows.values() if "flavors" in row for feature in row["features"]}
    decided: dict[str, bool] = {}
    for name, value in sorted(switches.items()):
        for feature in rows.get(name, {"features": ()})["features"]:
            decided[feature] = decided.get(feature, True) and not _FALSE.fullmatch(value)
    return [f"{'+' if on else '-'}{feature}" for feature, on in decided.items() if not on or feature in added]
