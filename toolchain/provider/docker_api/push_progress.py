"""The engine's streams while it builds, pulls and pushes: lines to show, results, and why something failed."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError
from containers.image.node_pull import size

_LAST_LINES: Final = 20
"""Lines of a failed step's output that its error quotes."""
_TRACE: Final = "moby.buildkit.trace"
_PUSHED: Final = re.compile(r"\S+: digest: (\w+:[0-9a-f]+) size: \d+")
"""The last line of a push."""
_EXIT_CODE: Final = re.compile(
    r"(?:failed to solve.*?: )?"
    r"(?:executor failed running \[.*\]|process \".*\" did not complete successfully): (exit code: .*)",
    re.DOTALL,
)
"""BuildKit's error of a failed step, which repeats the whole step."""
_LONGEST_NAME: Final = 160
_LONGEST_LINE: Final = 4000
"""Characters of a line of output that are shown."""
_LONGEST_ERROR: Final = 16_000
"""Characters of a build's error that are shown."""
_MOST_STEPS: Final = 10_000
"""Steps of a build. A Dockerfile has some hundred at most."""

Show = Callable[[str], None]


class StreamError(SlipwayError):
    """The engine reported an error in its stream."""


class BuildLog:
    """Follows one build: ``show`` takes each line worth showing, after ``hide`` has masked its secrets, before any cut.

    ``image_id`` is the id of the image that was built, "" until then, and ``error`` the engine's error, "" without one.
    """

    def __init__(self, show: Show, hide: Callable[[str], str]) -> None:
        self.image_id = self.error = ""
        self._show = show
        self._hide = hide
        self._names: dict[str, str] = {}
        self._running: set[str] = set()
        self._failed = ""
        self._output: dict[str, deque[str]] = {}

    def follow(self, messages: Iterable[dict[str, Any]]) -> None:
        """Read a build's stream to its end.

        Raises StreamError: if the build failed, with the step that did and its last lines.
        """
        for message in messages:
            with _documented():
                self._take(message)
                error = error_of(message)
            if error:
                self.error = self._hide(error)[:_LONGEST_ERROR]
                raise StreamError(self._explain(self.error))

    def running(self) -> str:
        """Return which steps have begun and not ended, for an error."""
        names = sorted(self._names[step] for step in self._running)
        return f"it did not end step {', '.join(map(repr, names))}: " if names else ""

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("id") == _TRACE:
            self._trace(message["aux"])
        elif "ID" in (message.get("aux") or {}):
            self.image_id = str(message["aux"]["ID"])
        elif "stream" in message:
            self._classic(message["stream"])
        if "status" in message and not error_of(message):
            self._show(transfer_line(message))

    def _trace(self, encoded: str) -> None:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - only BuildKit needs it

        from toolchain.provider.docker_api.protos import StatusResponse  # noqa: PLC0415 - as above

        try:
            status = StatusResponse.FromString(base64.b64decode(encoded))
        except DecodeError as error:
            raise ValueError(str(error)) from None
        for vertex in status.vertexes:
            self._vertex(vertex)
        for item in status.statuses:
            name = item.name or item.id
            self._show(f"{self._names.get(item.vertex, '')} {name}{amount(item.current, item.total)}".strip())
        for log in status.logs:
            for line in self._append(log.vertex, log.msg.decode("utf-8", "replace")):
                self._show(line)
        for warning in status.warnings:
            self._show(warning.short.decode("utf-8", "replace")[:_LONGEST_LINE])
        if len(self._names) + len(self._output) > 2 * _MOST_STEPS:
            raise StreamError(f"the Docker daemon names more than {_MOST_STEPS} steps")

    def _vertex(self, vertex: Any) -> None:
        name = self._names[vertex.digest] = shortened(self._hide(vertex.name))
        if vertex.error and not self._failed and "context canceled" not in vertex.error:
            self._failed = vertex.digest
        if vertex.HasField("completed"):
            seconds = (vertex.completed.ToNanoseconds() - vertex.started.ToNanoseconds()) / 1e9
            how = "CACHED" if vertex.cached else "ERROR" if vertex.error else f"{seconds:.1f}s"
            self._running.discard(vertex.digest)
            self._show(f"{name} {how}")
        elif vertex.HasField("started") and vertex.digest not in self._running:
            self._running.add(vertex.digest)
            self._show(name)

    def _classic(self, text: str) -> None:
        """Take a line of the first builder, whose steps have no ids: a new step forgets the last one's lines."""
        if text.startswith("Step "):
            self._names[""] = shortened(self._hide(text))
            self._output.pop("", None)
        for line in self._append("", text):
            self._show(line)

    def _append(self, step: str, text: str) -> Iterator[str]:
        lines = self._output.setdefault(step, deque(maxlen=_LAST_LINES))
        for line in self._hide(text).splitlines():
            visible = line.rpartition("\r")[2].rstrip()[:_LONGEST_LINE]
            if visible:
                lines.append(visible)
                yield visible

    def _explain(self, error: str) -> str:
        name = self._names.get(self._failed, "")
        lines = self._output.get(self._failed)
        if not name:
            return error
        exit_code = _EXIT_CODE.fullmatch(error)
        reason = exit_code[1] if exit_code else error
        quoted = "".join(f"\n    {line}" for line in lines or ())
        return f"step {name!r} failed: {reason}" + (f"; the last lines of its output:{quoted}" if quoted else "")


def follow(messages: Iterable[dict[str, Any]], show: Show) -> str:
    """Read the stream of a pull or a push to its end, and return the digest that was pushed, or "".

    An engine with its own image store sends it as a message; one with containerd's has it in the last line alone.

    Raises StreamError: if it reports an error.
    """
    digest = ""
    for message in messages:
        with _documented():
            error = error_of(message)
            if error:
                raise StreamError(error)
            aux = message.get("aux")
            if isinstance(aux, dict) and aux.get("Digest"):
                digest = str(aux["Digest"])
            if message.get("status"):
                match = _PUSHED.fullmatch(message["status"])
                digest = digest or (match[1] if match else "")
                show(transfer_line(message))
    return digest[:_LONGEST_NAME]


@contextmanager
def _documented() -> Iterator[None]:
    """Read a message in a block. Raises StreamError if it is not of the shape that Docker documents."""
    try:
        yield
    except MALFORMED as error:
        raise StreamError(
            f"a message of the Docker daemon has another shape than documented: {type(error).__name__}"
        ) from error


def error_of(message: dict[str, Any]) -> str:
    """Return the error a message reports, or ""."""
    detail = message.get("errorDetail") or {}
    return str(detail.get("message") or message.get("error") or "").strip()


def transfer_line(message: dict[str, Any]) -> str:
    """Write one line for a layer's progress: its id, what happens, and how far it is."""
    detail = message.get("progressDetail") or {}
    layer = f"{message['id']}: " if message.get("id") else ""
    line = f"{layer}{message.get('status', '')}{amount(detail.get('current'), detail.get('total'))}"
    return line[:_LONGEST_LINE]


def amount(current: int | None, total: int | None) -> str:
    """Write how many bytes of a layer are through, with a space before; "" where nothing is.

    The engine counts the tar stream that it sends and takes the size of the files as the total. The stream also has
    headers and padding, so that the count passes the total by some per cent: the total is the most that is shown.
    """
    if not current:
        return ""
    return f" {size(min(current, total))} / {size(total)}" if total else f" {size(current)}"


def shortened(name: str) -> str:
    """Return the name of a step on one line, cut where it is long."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"
