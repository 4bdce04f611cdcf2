"""Documents of another shape than ours: the same signer may attest with other programs, under the same type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from containers.errors import MALFORMED, SlipwayError


@contextmanager
def expected(where: str, verb: str = "attest") -> Iterator[None]:
    """Read evidence in a block, or what Slipway otherwise ``verb``s; ``where`` names it in errors.

    Raises SlipwayError: it lacks what is read, or has something else in its place.
    """
    try:
        yield
    except MALFORMED as error:
        raise SlipwayError(
            f"{where}: what is {verb}ed has another shape than `slipway` {verb}s ({type(error).__name__}); publish "
            "the image again"
        ) from None
