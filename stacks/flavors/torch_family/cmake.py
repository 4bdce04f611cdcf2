"""``slipway:cmake``: variables of PyTorch's build, such as ``USE_MKLDNN: 0``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from stacks.config.model import Environment
from stacks.errors import one_line, suggest
from stacks.versions.tables import table

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[A-Za-z0-9_./+=:,;-]+( [A-Za-z0-9_./+=:,;-]+)*")
"""Values that no shell, and no list of CMake's, reads in another way."""

_FALSE = re.compile(r"0|OFF|NO|FALSE|N|IGNORE|(.*-)?NOTFOUND", re.IGNORECASE)
"""What CMake's ``if`` takes for false (cmake-commands, `if`, "Constant")."""


def _check_name(name: str) -> None:
    rules = table("torch_cmake")
    if setter := rules["set"].get(name):
        raise ValueError(f"the variable {name} cannot be set here: it is set by {setter}")
    if why := rules["none"].get(name):
        raise ValueError(f"the variable {name} cannot be set here: it {why}")
    if _NAME.fullmatch(name) and (name.startswith(tuple(rules["prefixes"])) or name in rules["others"]):
        return
    known = [*rules["others"], *rules["feature"]]
    raise ValueError(
        f"the variable '{one_line(name)}' does not reach PyTorch's build{suggest(name, known)}; expected a name that "
        f"begins with {', '.join(rules['prefixes'])}, or one of `others` in stacks/versions/torch_cmake.toml"
    )


def _check(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        _check_name(name)
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"the variable {name} cannot be '{one_line(value)}': expected words of letters, digits and "
                "_ . / + = : , ; -, with one blank between them"
            )
    return values


Switches = Annotated[Environment, AfterValidator(_check)]
"""Variables of PyTorch's build by name. True, false and numbers become text."""


DESCRIPTION = (
    "Variables of PyTorch's build that begin with USE_, BUILD_ or CMAKE_, such as USE_MKLDNN: 0. The image's "
    "check expects a feature to be off if one switches it off."
)
"""What the key is, for its documentation."""


def switches_argument(switches: Mapping[str, str]) -> dict[str, str]:
    """Return the argument by which torch's build gets the variables, a line for each; none without any."""
    lines = [f"{name}={value}" for name, value in sorted(switches.items())]
    return {"TORCH_SWITCHES": "\n".join(lines)} if lines else {}


def switched_features(switches: Mapping[str, str]) -> dict[str, bool]:
    """Return the features of torch that the variables decide, with whether torch has them then."""
    decided: dict[str, bool] = {}
    for name, value in sorted(switches.items()):
        for feature in table("torch_cmake")["feature"].get(name, {"features": ()})["features"]:
            decided[feature] = decided.get(feature, True) and not _FALSE.fullmatch(value)
    return decided
