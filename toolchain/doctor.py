"""`make doctor`: which part is used, its version, and why the first choice is not."""

from toolchain.checkout import Checkout
from toolchain.machine.steps import say
from toolchain.machine.toolchain_error import without_credentials
from toolchain.ready import inspect


def doctor(checkout: Checkout) -> int:
    """Print one paragraph a part, as the machine is, changing nothing. Returns 1 if a part is missing."""
    missing = 0
    for kind, part, wrong in inspect(checkout):
        if part is None:
            missing += 1
            say(f"{kind.name:<22}{wrong or 'missing'}")
            continue
        say(f"{kind.name:<22}{without_credentials(part.used)} ({part.version})")
        if part.why:
            say(f"{'':<22}because: {part.why}")
    if missing:
        say(f"{missing} missing: `make up` or `make ready` gets them")
    return 1 if missing else 0
