"""Caches that the script leaves in a job with the image as its ``container:``. No Docker engine is needed.

GitHub's hook for Kubernetes runs a job's steps in a pod of that image, by its ``sh``, as its user and with its
environment (runner-container-hooks v0.8.1, packages/k8s/src: hooks/run-script-step.ts:75-82, k8s/utils.ts:57-82). The
folder of a checkout belongs to the runner's user 1001 (k8s/index.ts:105-126), so another user's job cannot check out.
So the job gets the whole program as a variable. It leaves an archive and a record, which a job elsewhere reads.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final

from cli.warm import warm_container
from cli.warm.warm_run import HOOK, PROGRAM, Result, WarmMachine, WarmScript
from containers import regular_file
from containers.blob import BlobUnreadable
from containers.errors import MALFORMED, SlipwayError, one_line
from containers.registry.reference import Reference

_LONGEST: Final = 120_000
"""Bytes of the program: a variable of a process has at most 128 KiB (Linux, MAX_ARG_STRLEN, execve(2))."""
_LARGEST_RECORD: Final = 1 << 18


def program(reference: str, script: WarmScript, seconds: float) -> str:
    """Return what ``python3 -c`` runs in a container of the image, as one line: see ``warm_container.leave``.

    Raises SlipwayError: the script is too long.
    """
    content = script.content.decode("latin-1")
    words = [PROGRAM, HOOK, Reference.of(reference).digest, script.path.name, content, str(seconds)]
    packed = base64.b64encode(zlib.compress(json.dumps(words).encode(), 9)).decode()
    unpacked = f"json.loads(zlib.decompress(base64.b64decode('{packed}')))"
    line = f"import base64,json,sys,zlib;words={unpacked};sys.argv[1:]=words[1:];exec(words[0])"
    if len(line) > _LONGEST:
        raise SlipwayError(
            f"slipway:warm.script: {script.path}: {len(script.content):,} bytes are too many for a job's pod, which "
            f"gets it compressed in {_LONGEST:,} bytes: have it import the most from the image"
        )
    return line


@dataclass(frozen=True)
class PodCaches:
    """What a job left in a folder. Only files of caches count, and all else of it is that job's claim."""

    folder: Path

    place = "in a job's pod"

    @cached_property
    def _claims(self) -> dict[str, Any]:
        try:
            with regular_file.opened(self.folder, warm_container.RECORD) as file:
                return {**json.loads(file.read(_LARGEST_RECORD))}
        except OSError as error:
            reason = error.strerror
        except MALFORMED as error:
            reason = str(error)
        raise SlipwayError(f"{warm_container.RECORD} of the job with the GPUs: {one_line(reason)}")

    @property
    def host(self) -> str:
        """The pod, as it calls itself."""
        return one_line(str(self._claims.get("host")))

    def machine(self, reference: str, script: WarmScript) -> WarmMachine:
        """Return the machine that the job claims.

        Raises SlipwayError: it has no GPU, or the job claims another image or another script.
        """
        where = f"{warm_container.RECORD} of the job with the GPUs"
        for name, now in (("image", Reference.of(reference).digest), ("sha256", script.sha256)):
            if (then := self._claims.get(name)) != now:
                raise SlipwayError(f"{where}: {name} is {one_line(then)}, and {now} is to be warmed: start `warm` anew")
        try:
            machine = WarmMachine.of(self._claims)
        except MALFORMED:
            raise SlipwayError(f"{where}: no description of a machine: '{one_line(self._claims)}'") from None
        if not any(line.startswith("gpu ") for line in machine.lines):
            raise SlipwayError(f"{where}: it had no GPU, and a warm layer is for those that it is made on")
        return machine

    def read(self, *_run: object, read: Callable[[IO[bytes]], Result]) -> tuple[Result, list[str]]:
        """Return the result of ``read`` on the archive. The job's own log has what was left out.

        Raises SlipwayError: there is no archive, or ``read`` refuses it.
        """
        try:
            with regular_file.opened(self.folder, warm_container.CACHES) as file:
                return read(file), []
        except (OSError, BlobUnreadable) as error:
            raise SlipwayError(
                f"{warm_container.CACHES} of the job with the GPUs: {getattr(error, 'strerror', None) or error}"
            ) from None
