"""The phases of an image's start, timed in containers of the docker client's engine."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cli.startup.docker_client import Pull, pulled, python_output
from containers.errors import MALFORMED, SlipwayError, one_line, out_of_time
from containers.image.registry_image import Image
from containers.registry.reference import Reference

PHASES: Final = ("container", "interpreter", "import", "import_cpu", "context", "kernel", "compiled", "script")
"""In the order in which a container has them; ``import_cpu`` is the processor's time of ``import``."""
_SCRIPT: Final = Path(__file__).with_name("in_container.py")
_LONGEST_SCRIPT: Final = 100_000
"""Bytes: it is an argument of a program, of which Linux takes 131,071 (execve(2), MAX_ARG_STRLEN)."""
_FAILURES: Final = (SlipwayError, subprocess.TimeoutExpired)
"""Why an image is not got, pulled or run: a limit of seconds is over, too."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_GPU: Final = Path("/dev/nvidiactl")


@dataclass
class Start:
    """What was measured of an image.

    ``pull`` is None if the engine had the image. ``runs`` has each container's seconds by phase. ``failed`` says which
    phase failed, and why; ``skipped`` which one the image cannot have.
    """

    reference: str
    size: int
    layers: int
    pull: Pull | None = None
    runs: list[dict[str, float]] = field(default_factory=list)
    python: str = ""
    version: str = ""
    device: str = ""
    failed: str = ""
    skipped: str = ""

    @classmethod
    def of(cls, name: str, fetched: Callable[[], Image]) -> Start:
        """Return an image of a registry before anything is measured, by its digest; by ``name`` if it is not got."""
        try:
            image = fetched()
        except _FAILURES as error:
            return cls(name, 0, 0, failed=_reason(error, name))
        reference = replace(Reference.of(image.reference), digest=image.digest)
        return cls(str(reference), image.size, len(image.layers))

    def first(self, phase: str) -> float | None:
        """Return a phase's seconds in the first container, with the files as the pull left them."""
        return self.runs[0].get(phase) if self.runs else None

    def again(self, phase: str) -> float | None:
        """Return the median of a phase's seconds in the later containers, or None if there were none."""
        seconds = [run[phase] for run in self.runs[1:] if phase in run]
        return statistics.median(seconds) if seconds else None

    def as_json(self) -> dict[str, Any]:
        """Return all of it for ``--json``, in seconds and bytes."""
        pull = self.pull and {"download": self.pull.download, "unpack": self.pull.unpack}
        about = {"python": self.python, "version": self.version, "device": self.device}
        image = {"reference": self.reference, "bytes": self.size, "layers": self.layers}
        ends = {"failed": self.failed, "skipped": self.skipped}
        return {**image, "pull": pull, "runs": self.runs, **about, **ends}


@dataclass(frozen=True)
class Settings:
    """How to measure: the module to import, empty for none; whether to use GPUs; seconds that a container may take.

    ``script`` is the name and the text of the user's own first step, both empty for torch's.
    """

    module: str
    gpu: bool
    seconds: float
    script: tuple[str, str] = ("", "")


def read_script(path: Path) -> tuple[str, str]:
    """Return the name and the text of a script.

    Raises SlipwayError: it cannot be read, is no text, or is longer than one argument of a program may be.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_SCRIPT + 1)
        text = content.decode() if len(content) <= _LONGEST_SCRIPT else ""
    except OSError as error:
        raise SlipwayError(f"--script {path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise SlipwayError(f"--script {path}: it is no text in UTF-8; give a Python script") from None
    if len(content) > _LONGEST_SCRIPT or "\0" in text:
        raise SlipwayError(f"--script {path}: at most {_LONGEST_SCRIPT:,} bytes are run, none of them zero")
    return path.name, text


def has_gpu() -> bool:
    """Return whether this machine has the driver of NVIDIA's GPUs."""
    return _GPU.exists()


def measure(images: Sequence[Start], count: int, settings: Settings) -> None:
    """Pull each image, then run ``count`` containers of each, by turns. One that fails is left out from then on."""
    steps: list[Callable[[Start], None]] = [_pull, *[partial(_add_run, settings=settings)] * count]
    for step in steps:
        for image in images:
            try:
                if not image.failed:
                    step(image)
            except _FAILURES as error:
                image.failed = _reason(error, image.reference)


def _reason(error: SlipwayError | subprocess.TimeoutExpired, name: str) -> str:
    """Return why something failed for an image, whose name the reader knows."""
    if isinstance(error, subprocess.TimeoutExpired):
        return out_of_time(error.cmd, error.timeout)
    return str(error).removeprefix(f"{name}: ")


def _pull(image: Start) -> None:
    image.pull = pulled(image.reference)


def _add_run(image: Start, settings: Settings) -> None:
    script = _SCRIPT.read_text(encoding="utf-8")
    words = ["-c", script, str(settings.seconds), settings.module, str(int(settings.gpu)), *settings.script]
    began = time.time()
    try:
        printed = python_output("start", image.reference, words, settings.seconds, gpu=settings.gpu)
    except subprocess.TimeoutExpired:
        image.failed = f"it was not done in {settings.seconds:g} s; --seconds gives it more"
        return
    _add(image, _report(image.reference, printed), began, settings.module)


def _report(reference: str, printed: str) -> Mapping[str, Any]:
    """Return the report that the container printed.

    Raises SlipwayError: what it printed is none. The image decides what its python3 is.
    """
    try:
        report = json.loads(printed.strip().rpartition("\n")[2])
        seconds = {name: float(report["seconds"][name]) for name in PHASES[1:] if name in report["seconds"]}
        words = {name: one_line(report.get(name, "")) for name in ("boot", "python", "version", "device", "skipped")}
        reason = report.get("reason")
        failed = f"{one_line(report.get('phase', ''))}: {one_line(reason, 300)}" if reason else ""
        if failed.startswith("import: ModuleNotFoundError: "):
            failed += "; --import names what the image has"
        started = float(report["started"])
        valid = all(map(math.isfinite, (started, *seconds.values())))
    except MALFORMED:
        valid = False
    if not valid:
        raise SlipwayError(f"{reference}: its python3 printed no report: '{one_line(printed)}'")
    return {**words, "started": started, "seconds": seconds, "failed": failed}


def _add(image: Start, report: Mapping[str, Any], began: float, module: str) -> None:
    seconds = report["seconds"]
    # An engine on another machine has another clock.
    if report["boot"] and _BOOT.exists() and report["boot"] == _BOOT.read_text(encoding="ascii").strip():
        seconds = {"container": report["started"] - began, **seconds}
    image.runs.append(seconds)
    image.python, image.device, image.skipped = report["python"], report["device"], report["skipped"]
    image.failed = report["failed"]
    image.version = f"{module} {report['version']}".strip() if report["version"] else ""
