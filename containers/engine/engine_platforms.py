"""The platforms that a Docker engine builds for: its machine's own, and those that it emulates.

The standard library alone is imported: `make doctor` uses this before any package is installed.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal

from containers.engine.connection import Address, EngineUnreachable
from containers.engine.engine import Engine, EngineError, image_archive, load
from containers.errors import SlipwayError, engine_advice, one_line
from containers.platform_name import architecture, system

Way = Literal["native", "emulated"]
"""How an engine runs the programs of a platform."""

PLATFORMS: Final = ("linux/amd64", "linux/arm64")
"""The platforms that images are built for."""

_SECONDS: Final = 60
"""How long one request may take: an engine behind ssh answers slowly."""

_MACHINES: Final[Mapping[str, tuple[int, bytes]]] = {
    "linux/amd64": (62, bytes.fromhex("b83c000000 31ff 0f05")),  # mov eax, 60; xor edi, edi; syscall
    "linux/arm64": (183, bytes.fromhex("000080d2 a80b80d2 010000d4")),  # mov x0, #0; mov x8, #93; svc #0
}
"""By platform: the machine's number in ELF files (elf.h, EM_X86_64 and EM_AARCH64), and code that exits with 0."""

_LOADED: Final = re.compile(r"\w[\w.:/@-]*", re.ASCII)
"""An image as the engine names it. It becomes a part of a path."""

_LOGGED: Final = re.compile(r'^time="[^"]*" level=error msg="(.*)"$')
"""A line that the client logs, as where the engine ends while a container runs (docker/cli v26.1.5)."""

_CANNOT_RUN: Final = ("exec format error", "no such file or directory")
"""What an engine says of a program that the kernel cannot run; the second where a handler's interpreter is missing."""


class CannotRun(SlipwayError):
    """An engine answers, and cannot run the programs of a platform."""


def runnable_platforms(host: str = "", *, among: Iterable[str] = PLATFORMS) -> dict[str, Way]:
    """Return the platforms of ``among`` that an engine builds for, and how it runs their programs.

    The engine's own platform takes one request. For another one a program of 132 bytes is run: the engine may be on
    another machine, or in a virtual one, whose emulation this machine knows nothing of. Nothing of it remains. ``host``
    is its address, such as ``ssh://builder-arm``; by default that of the environment.

    Raises SlipwayError: no engine answers there.
    """
    engine = Engine.at(Address(host))
    try:
        version = engine.json("/version", timeout=_SECONDS)
        ways: dict[str, Way] = {}
        for platform in among:
            if platform == f"{version.get('Os')}/{version.get('Arch')}":
                ways[platform] = "native"
            elif _runs(platform, engine):
                ways[platform] = "emulated"
    except EngineUnreachable:
        raise
    except SlipwayError as error:
        raise SlipwayError(f"the Docker engine{at(host)}: {error}") from None
    return ways


def check_runnable(platforms: Collection[str], host: str = "", *, key: str = "slipway:platform") -> dict[str, Way]:
    """Return how an engine runs each of the platforms that it is to build for.

    ``host`` is as of :func:`runnable_platforms`, ``key`` the key to name in the error.

    Raises:
        CannotRun: it cannot run one of them.
        SlipwayError: it does not answer.
    """
    ways = runnable_platforms(host, among=platforms)
    for platform in platforms:
        if platform not in ways:
            runs = ", ".join(ways or runnable_platforms(host))
            raise CannotRun(
                f"{key}: '{one_line(platform)}': the Docker engine{at(host)} cannot run its programs; it runs {runs}: "
                "name an engine of that platform in slipway:engines, or let this one emulate it as "
                "docs/guides/emulation.md says"
            )
    return ways


def engine_failure(command: str, printed: str, status: int) -> SlipwayError:
    """Return the error of a command of the docker client: the last line that it ``printed``, or its status.

    For a connection by ssh that is the message of ssh, at the end of the client's (docker/cli at 0573ec2,
    cli/connhelper/commandconn/commandconn.go, ``onEOF``).
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    last = _LOGGED.sub(r"\1", lines[-1]) if lines else f"status {status}"
    reason = one_line(last.rpartition("stderr=")[2] or last, 300)
    broke = "; a connection broke: once the engine answers, run this again" if last.endswith("EOF") else ""
    return SlipwayError(f"the Docker engine: `docker {command}` failed: {reason}{broke}{engine_advice(last)}")


def at(host: str) -> str:
    """Return where an engine is, as words of an error; empty for the docker client's own."""
    return f" at {one_line(host)}" if host else ""


def _runs(platform: str, engine: Engine) -> bool:
    """Run a program of a platform in a container that has nothing else."""
    if platform not in _MACHINES:
        return False
    image = _load(_image(platform), engine)
    try:
        return _runs_image(image, platform, engine)
    finally:
        _delete(f"/images/{image}", engine)


def _load(archive: bytes, engine: Engine) -> str:
    """Give an engine an image, and return its name there."""
    messages = load(engine, archive, _SECONDS)
    image = "".join(str(message.get("stream", "")) for message in messages).strip().rpartition(" ")[2]
    if not _LOADED.fullmatch(image):
        raise SlipwayError(f"it names no image that was loaded: '{one_line(image)}'")
    return image


def _runs_image(image: str, platform: str, engine: Engine) -> bool:
    settings = {"Image": image, "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "json-file"}}}
    created = engine.json("/containers/create", settings, query={"platform": platform}, timeout=_SECONDS)
    container = f"/containers/{created.get('Id')}"
    try:
        with engine.request("POST", f"{container}/start", timeout=_SECONDS):
            pass
        if engine.json(f"{container}/wait", {}, timeout=_SECONDS).get("StatusCode") == 0:
            return True
        with engine.request("GET", f"{container}/logs", query={"stderr": "1"}, timeout=_SECONDS) as response:
            reason = response.text()
    except EngineError as error:
        reason = str(error)
    finally:
        _delete(container, engine)
    if any(phrase in reason for phrase in _CANNOT_RUN):
        return False
    raise SlipwayError(f"it does not run a program of {platform}: {one_line(reason.strip(), 300)}")


def _delete(path: str, engine: Engine) -> None:
    with engine.request("DELETE", path, query={"force": "1"}, timeout=_SECONDS):
        pass


def program(platform: str) -> bytes:
    """Return a static program that exits with 0: an ELF header, a segment, and a few instructions (elf(5))."""
    machine, code = _MACHINES[platform]
    start, headers = 0x400000, 64 + 56
    size = headers + len(code)
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, start + headers, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 0x1000)
    return identity + header + segment + code


def _image(platform: str) -> bytes:
    """Return an image with the program, for `docker load`: another each time, so that no run removes another's."""
    layer = image_archive({"probe": program(platform)}, mode=0o755)
    config = {
        "architecture": architecture(platform),
        "os": system(platform),
        "config": {"Entrypoint": ["/probe"], "Labels": {"slipway.probe": secrets.token_hex(8)}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    return image_archive({"config.json": _json(config), "layer.tar": layer, "manifest.json": _json(manifest)})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
