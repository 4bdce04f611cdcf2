"""What `kubectl` says of a cluster: it knows every way to log in to one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from stacks.child_environment import child_environment
from stacks.errors import SlipwayError, one_line

SECONDS: Final = 20
"""Seconds for one answer."""

Item = dict[str, Any]


class Unanswered(SlipwayError):
    """``kubectl`` got no answer; ``str()`` is the reason."""


def items(*words: str, kubeconfig: str | None = None, context: str | None = None) -> list[Item]:
    """Return the objects that ``kubectl get`` lists.

    Args:
        words: the kind, and options.
        kubeconfig: the path of one; by default ``kubectl``'s own.
        context: of the kubeconfig; by default its current one.

    Raises:
        FileNotFoundError: there is no ``kubectl`` on PATH.
        Unanswered: the cluster does not answer, or refuses.
    """
    flags = [("--kubeconfig", kubeconfig and str(Path(kubeconfig).expanduser())), ("--context", context)]
    options = [word for name, value in flags if value for word in (name, value)]
    command = ["kubectl", *options, "get", *words, "--output=json", f"--request-timeout={SECONDS}s"]
    try:
        process = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SECONDS * 2, env=child_environment("kubectl")
        )
        listed: list[Item] = json.loads(process.stdout)["items"]
    except FileNotFoundError:
        raise
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Unanswered(_reason(error)) from None
    return listed


def _reason(error: Exception) -> str:
    message = getattr(error, "stderr", None) or str(error)
    # After a timeout it is bytes (Python's documentation of TimeoutExpired).
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    # The last line is the reason: those before it are of each attempt.
    return one_line((text.strip().splitlines() or ["no reason is given"])[-1], 300)
