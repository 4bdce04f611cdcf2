"""The messages with which Slipway refuses something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from containers.errors import SlipwayError


def refusal(call: Callable[..., Any], /, *arguments: Any, **options: Any) -> str:
    """Return the message of the :class:`SlipwayError` that a call raises: a line for each mistake."""
    with pytest.raises(SlipwayError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def refusal_line(call: Callable[..., Any], /, *arguments: Any, **options: Any) -> str:
    """Return the one line of the :class:`SlipwayError` that a call raises."""
    message = refusal(call, *arguments, **options)
    assert "\n" not in message
    return message
