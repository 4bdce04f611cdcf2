"""`make doctor`: its choice, its version, the reason against the first choice, and the platforms of the engine."""

from toolchain.checkout import STARTING, Checkout
from toolchain.machine.steps import say
from toolchain.machine.toolchain_error import ToolchainError, without_credentials
from toolchain.parts import docker_engine, docker_registry, emulation, unused_space
from toolchain.ready import inspect


def doctor(checkout: Checkout) -> int:
    """Print one paragraph a part, as the machine is, changing nothing. Returns 1 if a part is missing."""
    missing, engine = 0, False
    for kind, part, wrong in inspect(checkout):
        if part is None:
            missing += 1
            say(f"{kind.name:<22}{wrong or 'missing'}")
            continue
        engine = engine or kind.name == docker_engine.NAME
        say(f"{kind.name:<22}{without_credentials(part.used)} ({part.version})")
        if part.why:
            say(f"{'':<22}because: {part.why}")
    if engine:
        _say_platforms(checkout)
    for name, folder in (
        (".slipway", checkout.state),
        ("  engine", checkout.state / "docker"),
        ("  registry", docker_registry.storage(checkout)),
    ):
        if not folder.exists():
            continue
        size = unused_space.megabytes(unused_space.folder_size(folder))
        say(f"{name:<22}{size}" + ("; `slipway prune` lists what no stack needs" if folder == checkout.state else ""))
    if missing:
        say(f"{missing} missing: {STARTING} gets them")
    return 1 if missing else 0


def _say_platforms(checkout: Checkout) -> None:
    try:
        lines = emulation.lines(checkout)
    except ToolchainError as error:
        lines = [str(error)]
    for number, line in enumerate(lines):
        say(f"{'' if number else 'platforms':<22}{without_credentials(line)}")
