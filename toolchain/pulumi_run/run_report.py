"""A short report of a run of Pulumi, from the events of Pulumi's engine.

The events are what `pulumi up --json` prints, one a line: sdk/go/common/apitype/events.go in pulumi/pulumi.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, TextIO

from containers.errors import engine_advice
from containers.registry.reference import Reference
from stacks.differences import changed_lines, differences, published_contents
from stacks.identity import file_texts
from toolchain.pulumi_run.run_progress import RunProgress

_STACK: Final = "pulumi:pulumi:Stack"
_IMAGES: Final = ("slipway:image:ImageVariant", "slipway:image:BuildProduct")
_CHECKS: Final = "slipway:checks:Checks"
_BUILD: Final = "docker:index/image:Image"
_REFERENCES: Final = {_BUILD: "repoDigest", "pulumi-python:dynamic/image:CompressedPush": "pushed"}
"""The outputs with the digest of an image that was built, or pushed by a step of its own."""
_UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""A value that only an update gives (sdk/go/common/resource/plugin/rpc.go)."""
_SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
"""The key that marks a secret, whose value is masked (sdk/go/common/resource/properties.go)."""
_CALLED: Final = "Exception calling application: "
"""What gRPC puts before an error of a Python provider (grpcio 1.85.1, grpc/_server.py, line 621)."""
_ENDS: Final = {
    "update failed",
    "preview failed",
    "an unhandled error occurred: program exited with non-zero exit code: 1",
}
"""What Pulumi says after the error that ended a run."""
_CANCELLING: Final = "^C received; cancelling"
"""What Pulumi says once at a signal (pkg/backend/cancellation_scope.go)."""
_MARKS: Final = {"create": "+", "update": "~", "delete": "-", "replace": "+-", "import": "="}
"""The operations that are printed. The others are parts of a replacement, or change nothing."""
_COUNTS: Final = {
    "create": ("created", "to create"),
    "update": ("updated", "to update"),
    "replace": ("replaced", "to replace"),
    "delete": ("deleted", "to delete"),
    "same": ("unchanged", "unchanged"),
}
_BUILT: Final = {"images", "products", "plan", "planFiles", "checkFiles"}
"""The outputs that the images' own lines cover."""
_LONGEST_VALUE: Final = 200
_MOST_FILES: Final = 5
"""Changed files of an image whose lines are printed."""
_LEAD: Final = 20
"""Characters that are printed before the first difference of two long values."""


class RunReport:
    """Follows a run of Pulumi and prints what it changes to ``progress``; ``log`` gets everything that the run reports.

    ``root`` is the repository, which may have the texts of changed files. ``outputs`` are the stack's, empty until the
    program has succeeded, and ``before`` those before the run. ``counts`` says how many resources the run changes, and
    its time; it is empty until the run's end. ``failed`` is whether the run reported an error.
    """

    def __init__(self, progress: RunProgress, log: TextIO, root: Path, *, preview: bool) -> None:
        self.outputs: Mapping[str, Any] = {}
        self.before: Mapping[str, Any] = {}
        self.counts = ""
        self.failed = False
        self._cancelled = False
        self._progress = progress
        self._log = log
        self._root = root
        self._preview = preview
        self._images: dict[str, str] = {}
        self._unchanged: list[str] = []
        self._changed_outputs: list[dict[str, Any]] = []
        self._reported: set[tuple[str, str]] = set()
        self.errors: list[str] = []
        self._warnings: list[str] = []
        self._changes: list[dict[str, Any]] = []
        self._counted: Mapping[str, int] = {}

    def as_json(self) -> dict[str, Any]:
        """Return what the run changes, or would change."""
        return {
            "changes": self._changes,
            "unchanged": self._unchanged,
            "outputs": self._changed_outputs,
            "warnings": self._warnings,
            "counts": {op: self._counted.get(op, 0) for op in _COUNTS},
        }

    def follow(self, lines: Iterable[str]) -> None:
        """Read Pulumi's output to its end. Lines that are no events are printed unchanged."""
        for line in filter(str.strip, lines):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict):
                self._event(event)
            else:
                if line.startswith("error: "):
                    self.errors.append(line.removeprefix("error: ").strip())
                self._progress.say(line.rstrip("\n"))

    def _event(self, event: Mapping[str, Any]) -> None:
        for kind, content in event.items():
            match kind:
                case "diagnosticEvent":
                    self._diagnostic(content)
                case "resourcePreEvent":
                    self._begin(content["metadata"])
                case "resOutputsEvent":
                    self._end(content["metadata"])
                case "resOpFailedEvent":
                    self._progress.end(_title(content["metadata"]))
                case "stdoutEvent":
                    self._cancelled |= _CANCELLING in content["message"]
                    self._progress.say(content["message"].rstrip("\n"))
                case "errorEvent":
                    self.failed = True
                    self.errors.append(content["error"])
                    if not (self._cancelled and content["error"].endswith(" canceled")):  # which is known
                        self._progress.say(f"error: {content['error']}")
                case "summaryEvent":
                    self._progress.say(*self._summary(content))

    def _diagnostic(self, content: Mapping[str, Any]) -> None:
        message, severity, urn = content["message"].rstrip(), content["severity"], content.get("urn", "")
        message = message.removeprefix(_CALLED)
        # The provider of Kubernetes repeats what a kubelet says.
        advice = engine_advice(message)
        message += advice if advice not in message else ""
        if severity == "debug" or not message:
            return
        name = "" if not urn or f"::{_STACK}::" in urn else urn.rpartition("::")[2]
        print(f"{name or 'pulumi'}: {message}", file=self._log, flush=True)
        if self._cancelled and severity.startswith("info"):
            return  # where Python was when the engine ended the program
        if content.get("ephemeral"):
            self._progress.status(name, message)
            return
        if severity == "error":
            if self.failed and message in _ENDS:
                return
            self.failed = True
        text = f"{name}: {message}" if name else message
        if (severity, text) not in self._reported:
            {"error": self.errors, "warning": self._warnings}.get(severity, []).append(text)
        label = f"{severity}: " if severity in {"error", "warning"} else ""
        if severity.startswith("info") or (severity, text) not in self._reported:
            self._progress.say(f"{label}{text}")
        self._reported.add((severity, text))

    def _begin(self, step: Mapping[str, Any]) -> None:
        name, kind, op = _name(step), step["type"], step["op"]
        if kind == _STACK:
            self.before = _sides(step, "outputs")[0]
        elif kind in _IMAGES:
            before, after = _sides(step, "inputs")
            # A run that failed leaves its own inputs: what is published counts.
            before = published_contents(self.before, name) or before
            if op in {"same", "update"}:
                op = "update" if any(_values(before, after)) else "same"
            self._images[step["urn"]] = op
            if op == "same":
                self._unchanged.append(name)
            elif op in _MARKS:
                self._note("image", name, op, before, after)
                self._progress.say(*_image(name, op, before, after), *_changed_files(op, before, after, self._root))
        elif kind == _CHECKS:
            self._checks(step)
        elif kind != _STACK and op in _MARKS and self._images.get(_parent(step), _default(step)) == "same":
            self._unchanged = [image for image in self._unchanged if image != _parent(step).rpartition("::")[2]]
            self._note(kind, name, op, *_sides(step, "inputs"))
            self._progress.say(*_resource(name, step))
        if not self._preview and step.get("provider") and op in _MARKS and op != "replace":
            self._progress.begin(_title(step))

    def _checks(self, step: Mapping[str, Any]) -> None:
        """Report changed checks of an unchanged image. The line of a changed image covers its checks."""
        op, of_image = step["op"], self._images.get(_parent(step), _default(step))
        self._images[step["urn"]] = of_image if op == "same" else op
        if op in _MARKS and of_image == "same":
            name = _parent(step).rpartition("::")[2]
            self._unchanged = [image for image in self._unchanged if image != name]
            self._note("checks", name, op, *_sides(step, "inputs"))
            if op == "delete":
                self._progress.say(f"- {name}: no checks")
            else:
                self._progress.say(f"{_MARKS[op]} {name}: checks run again", *_values(*_sides(step, "inputs")))

    def _end(self, step: Mapping[str, Any]) -> None:
        outputs = (step.get("new") or {}).get("outputs") or {}
        if step["type"] == _STACK and outputs:
            self.outputs = outputs
            self._changed_outputs = list(_changed_values(*map(_other_outputs, _sides(step, "outputs"))))
            return
        seconds = self._progress.end(_title(step))
        given = _REFERENCES.get(step["type"])
        if given and not self._preview and step["op"] in _MARKS and step["op"] != "delete":
            digest = Reference.of(ref := str(outputs.get(given, ""))).digest or ref
            passed = f"${_CHECKS}$" in step["urn"]
            self._progress.say(
                f"{_name(step)}: " + (f"passed in {seconds}" if passed else f"done in {seconds}: {digest}")
            )

    def _summary(self, content: Mapping[str, Any]) -> Iterator[str]:
        if self._unchanged:
            yield f"Unchanged: {', '.join(self._unchanged)}"
        if self._changed_outputs:
            yield "Outputs:"
            yield from map(_value, self._changed_outputs)
        changes = content.get("resourceChanges") or {}
        self._counted = changes
        counts = [f"{changes[op]} {words[self._preview]}" for op, words in _COUNTS.items() if changes.get(op)]
        self.counts = f"{', '.join(counts) or 'none changed'} ({content['durationSeconds']} s)"
        if not (self.failed or self._cancelled):
            yield f"Resources: {self.counts}"

    def _note(self, kind: str, name: str, op: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        tag = {"tag": after["tag"]} if kind == "image" and "tag" in after else {}
        values = list(_changed_values(before, after)) if op in {"update", "replace"} else []
        self._changes.append({"kind": kind, "name": name, "operation": op, **tag, "values": values})


def _name(step: Mapping[str, Any]) -> str:
    return str(step["urn"].rpartition("::")[2])


def _title(step: Mapping[str, Any]) -> str:
    """Return a step's title; for a build only its name, which its status lines have too."""
    return _name(step) if step["type"] == _BUILD else f"{_kind(step['type'])} {_name(step)}"


def _kind(kind: str) -> str:
    """Return a resource's type, in words for one of ours that Pulumi's SDK runs: `verified parent`."""
    ours = kind.startswith("pulumi-python:dynamic/")
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.rpartition(":")[2]).lower() if ours else kind


def _parent(step: Mapping[str, Any]) -> str:
    return str((step.get("new") or step.get("old") or {}).get("parent", ""))


def _default(step: Mapping[str, Any]) -> str:
    """Return the operation on a parent without an event. An image's resources are deleted before the image."""
    of_image = any(f"::{kind}" in _parent(step) for kind in _IMAGES)
    return "delete" if of_image and step["op"] == "delete" else "same"


def _sides(step: Mapping[str, Any], part: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    before, after = (_masked((step.get(side) or {}).get(part) or {}) for side in ("old", "new"))
    return before, after


def _image(name: str, op: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield an image's changes; for a new one its tag, its parents in the stack and the packages that it adds."""
    mark = _MARKS[op]
    if op == "create":
        references = after.get("parents", {}).values()
        parents = dict.fromkeys(Reference.of(reference).name for reference in references)
        yield f"{mark} {name}: {after['tag']}" + (f", from {', '.join(parents)}" if parents else "")
        yield from _values({"packages": {}}, {"packages": after.get("packages", {})})
        return
    yield f"{mark} {name}"
    if op != "delete":
        yield from _values(before, after)


def _changed_files(op: str, before: Mapping[str, Any], after: Mapping[str, Any], root: Path) -> Iterator[str]:
    """Yield the changed lines of an updated image's files, as far as their texts are known here."""
    if op != "update":
        return
    files = [(way[1], old, new) for way, old, new in differences(before, after) if way[0] == "files" and old and new]
    texts = ((path, *file_texts.both(path, (old, before), (new, after), root)) for path, old, new in files)
    listed = [(path, lines) for path, old, new in islice(texts, _MOST_FILES) if (lines := changed_lines(old, new))]
    for path, lines in listed:
        yield f"    {path}"
        yield from (f"        {line}" for line in lines)


def _resource(name: str, step: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_MARKS[step['op']]} {_kind(step['type'])} {name}"
    if step["op"] in {"update", "replace"}:
        yield from _values(*_sides(step, "inputs"))


def _masked(value: Any) -> Any:
    """Return a value in which each secret is `[secret]`, instead of Pulumi's object for it."""
    if isinstance(value, dict):
        return "[secret]" if _SIGNATURE in value else {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _other_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in outputs.items() if key not in _BUILT}


def _values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each value that differs, old -> new."""
    return map(_value, _changed_values(before, after))


def _changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each value that differs. Pulumi's own keys, which begin with `__`, are left out."""
    for path, old, new in differences(before, after):
        if not any(key.startswith("__") for key in path) and new != _UNKNOWN:
            yield {"path": [*path], "old": old, "new": new}


def _value(changed: Mapping[str, Any]) -> str:
    old, new = changed["old"], changed["new"]
    mark = "+" if old is None else "-" if new is None else "~"
    texts = _texts(value for value in (old, new) if value is not None)
    return f"    {mark} {' '.join(changed['path'])}: {' -> '.join(texts)}"


def _texts(values: Iterable[Any]) -> list[str]:
    """Return values on one line each, shortened. Two long values begin shortly before their first difference."""
    texts = [" ".join((value if isinstance(value, str) else json.dumps(value)).split()) for value in values]
    long = len(texts) == 2 and max(map(len, texts)) > _LONGEST_VALUE
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))) if long else 0
    start = max(common - _LEAD, 0)
    return [_cut(text, start) for text in texts]


def _cut(text: str, start: int) -> str:
    end = start + _LONGEST_VALUE
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
