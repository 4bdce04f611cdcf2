"""`make doctor`: its choice, its version, the reason against the first choice, and the platforms of the engine."""

from collections.abc import Mapping
from typing import Any

from toolchain import json_answer
from toolchain.checkout import STARTING, Checkout
from toolchain.machine.steps import say
from toolchain.machine.toolchain_error import ToolchainError, without_credentials
from toolchain.parts import docker_engine, docker_registry, emulation, unused_space
from toolchain.ready import inspect


def doctor(checkout: Checkout, *, as_json: bool = False) -> int:
    """Print one paragraph a part, as the machine is, changing nothing. Returns 1 if a part is missing."""
    state = _state(checkout)
    if as_json:
        json_answer.give(state)
    else:
        _say(state)
    return int(any(part["missing"] for part in state["parts"]))


def _state(checkout: Checkout) -> dict[str, Any]:
    """Return the parts, the platforms of the engine, and bytes on the disk."""
    parts = []
    for kind, part, wrong in inspect(checkout):
        parts.append(
            {
                "name": kind.name,
                "used": without_credentials(part.used) if part else "",
                "version": part.version if part else "",
                "why": part.why if part else "",
                "missing": "" if part else wrong or "missing",
            }
        )
    platforms, problem = {}, ""
    if any(part["name"] == docker_engine.NAME and not part["missing"] for part in parts):
        try:
            platforms = {name: without_credentials(how) for name, how in emulation.described(checkout).items()}
        except ToolchainError as error:
            problem = without_credentials(str(error))
    folders = {
        ".slipway": checkout.state,
        "engine": checkout.state / "docker",
        "registry": docker_registry.storage(checkout),
    }
    sizes = {name: unused_space.folder_size(folder) for name, folder in folders.items() if folder.exists()}
    return {"parts": parts, "platforms": platforms, "platformsUnknown": problem, "bytes": sizes}


def _say(state: Mapping[str, Any]) -> None:
    for part in state["parts"]:
        say(f"{part['name']:<22}{part['missing'] or '{used} ({version})'.format_map(part)}")
        if part["why"]:
            say(f"{'':<22}because: {part['why']}")
    platforms = [f"{name}: {how}" for name, how in state["platforms"].items()]
    for number, line in enumerate(platforms or filter(None, [state["platformsUnknown"]])):
        say(f"{'' if number else 'platforms':<22}{line}")
    for name, size in state["bytes"].items():
        label, hint = (name, "; `slipway prune` lists what no stack needs") if name == ".slipway" else (f"  {name}", "")
        say(f"{label:<22}{unused_space.megabytes(size)}{hint}")
    if missing := sum(bool(part["missing"]) for part in state["parts"]):
        say(f"{missing} missing: {STARTING} gets them")
