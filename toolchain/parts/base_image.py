"""The base image: `debian:bookworm-slim` where it can be pulled, else bookworm bootstrapped from Debian's packages.

A bootstrapped one is for this machine's platform. For another platform it is bootstrapped under emulation, and the
tag in the registry becomes an index of both.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from containers import user_cache
from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.machine.network import apt_mirrors, trust_store
from toolchain.machine.steps import command, last_line, output, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine, docker_registry
from toolchain.parts.part import Kind, Part, recall, remember

NAME: Final = "base image"
IMAGE: Final = "debian:bookworm-slim"
QUALIFIED: Final = f"{apt_mirrors.REPOSITORY}:{apt_mirrors.TAG}"
SUITE: Final = "bookworm"
FIRST_WORD_SECONDS: Final = 10.0
"""How long the registry may take to answer a pull: the engine itself would wait for minutes."""
PULL_SECONDS: Final = 300.0
EPOCH: Final = 1686355200
"""2023-06-10, the day of bookworm's release: no file is dated later, so the same packages give the same image."""
_WEEK_SECONDS: Final = 7 * 24 * 3600
"""How long a bootstrapped one is kept that nothing takes: it has a new key each week, and tens of megabytes."""
DPKG_OPTIONS: Final = (
    "force-unsafe-io",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)
"""dpkg's options in Debian's own slim image: no `sync` for each file, as a build that breaks off starts anew, and no
documentation (debuerreotype/debuerreotype at 027b65ff: scripts/debuerreotype-minimizing-config, .slimify-excludes)."""


def _environment(checkout: Checkout) -> dict[str, str]:
    """Return the client's environment: `docker manifest` is an experimental command before Docker 23."""
    parts = [recall(checkout, name) for name in (docker_engine.NAME, docker_registry.NAME)]
    changes = {name: value for part in parts if part for name, value in part.env.items()}
    path = os.pathsep.join([str(checkout.bin), os.environ["PATH"]])  # to the credential helper
    return child_environment("docker", **{**changes, "DOCKER_CLI_EXPERIMENTAL": "enabled", "PATH": path})


def _registry(checkout: Checkout) -> str:
    used = recall(checkout, docker_registry.NAME)
    return used.env[docker_registry.VARIABLE] if used else ""


def _works(words: list[str], environment: Mapping[str, str]) -> bool:
    try:
        output(words, env=environment)
    except ToolchainError:
        return False
    return True


def _in_registry(address: str) -> str:
    return f"{address}/{QUALIFIED}"


def _by_digest(part: Part) -> str:
    """Return a bootstrapped image by the digest that was pushed: any user of this machine may move its tag."""
    return f"{_repository(part.used)}@{apt_mirrors.stated_digest(part.env[apt_mirrors.VARIABLE])}"


def _repository(name: str) -> str:
    return name.removesuffix(f":{apt_mirrors.TAG}")


def find(checkout: Checkout) -> Part | None:
    """Return the base image where the user has it mirrored, else as it was pulled or bootstrapped, if still there."""
    if apt_mirrors.cover(apt_mirrors.configured(os.environ), QUALIFIED):
        return Part(NAME, f"{IMAGE} by {apt_mirrors.VARIABLE}", "configured")
    part = recall(checkout, NAME)
    if part is None:
        return None
    if not part.env:
        words = ["docker", "image", "inspect", IMAGE]
    elif part.used == _in_registry(_registry(checkout)) and apt_mirrors.stated_digest(part.env[apt_mirrors.VARIABLE]):
        words = ["docker", "manifest", "inspect", "--insecure", _by_digest(part)]
    else:
        return None
    return part if _works(words, _environment(checkout)) else None


def _pull(environment: Mapping[str, str]) -> str:
    """Pull the image. Returns the reason of a failure, empty after success.

    The client prints its first line once the registry has answered: when it does not, there is no registry to wait for.
    """
    process = subprocess.Popen(
        ["docker", "pull", IMAGE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None  # noqa: S101
    reader = threading.Thread(target=process.stdout.readline, daemon=True)
    reader.start()
    reader.join(FIRST_WORD_SECONDS)
    if reader.is_alive():
        process.kill()
        process.wait()
        return f"no registry answered within {FIRST_WORD_SECONDS:.0f} s"
    try:
        _, errors = process.communicate(timeout=PULL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"not pulled within {PULL_SECONDS:.0f} s"
    return last_line(errors) if process.returncode else ""


def _bootstrap(checkout: Checkout, tarball: Path, machine: str) -> None:
    """Write a root file system: Debian's essential packages and root certificates, and nothing else of this machine.

    ``machine`` is ``amd64`` or ``arm64``. Where it is not this one, its packages' scripts are run under emulation.
    """
    command(
        [*_bootstrap_words(machine, f"{shlex.quote(sys.executable)} {shlex.quote(trust_store.__file__)}"), tarball],
        checkout.logs / "mmdebstrap.log",
        env=child_environment("mmdebstrap", SOURCE_DATE_EPOCH=str(EPOCH), TMPDIR=str(tarball.parent)),
    )


def _bootstrap_words(machine: str, trust: str) -> list[str]:
    """Return mmdebstrap's command but for the target; ``trust`` is the program that adds root certificates."""
    hooks = [
        f'{trust} "$1"',
        'rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/cache/ldconfig/aux-cache; : > "$1"/etc/machine-id',
    ]
    return [
        *("mmdebstrap", f"--architectures={machine}", "--variant=minbase", "--include=ca-certificates"),
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        *(f"--customize-hook={hook}" for hook in hooks),
        SUITE,
    ]


def _archive(tarball: Path, name: str, target: Path, machine: str) -> None:
    """Write an image of one layer for `docker load`, which unlike `docker import` leaves the date to us."""
    with tarball.open("rb") as content:
        layer = hashlib.file_digest(content, "sha256").hexdigest()
    config = json.dumps({
        "architecture": machine, "os": "linux", "created": "2023-06-10T00:00:00Z",
        "config": {"Cmd": ["bash"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "history": [{"created": "2023-06-10T00:00:00Z", "created_by": f"mmdebstrap --variant=minbase {SUITE}"}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    })  # fmt: skip
    folder = target.parent
    (folder / "config.json").write_text(config)
    (folder / "manifest.json").write_text(
        json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": [tarball.name]}])
    )
    with tarfile.open(target, "w") as archive:
        for file in (tarball, folder / "config.json", folder / "manifest.json"):
            archive.add(file, file.name)


def _key(machine: str) -> str:
    """Return what a user's checkouts may share a root file system by: what it is made of, and for how long.

    Debian's archive mends packages. So one of another week is made anew.
    """
    trusted = Path("/", trust_store.BUNDLE)
    made_of = [
        _bootstrap_words(machine, Path(trust_store.__file__).read_text()),  # checkouts have it at other paths
        EPOCH,
        trusted.read_text() if trusted.exists() else "",
        os.environ.get("APT_CONFIG"),
    ]
    return hashlib.sha256(json.dumps([made_of, datetime.now(UTC).isocalendar()[:2]]).encode()).hexdigest()


def _publish(checkout: Checkout, name: str, machine: str) -> str:
    """Bootstrap the image for a machine, push it to the registry, and return the digest that the engine computed."""
    # mmdebstrap wants arch-test to know whether it can run another machine's programs.
    programs = ["mmdebstrap", *([] if machine == apt.machine() else ["arch-test"])]
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        apt.install(checkout, *missing)
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkout.cache, prefix="base-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # apt unpacks as its own user
        layer, key = folder / "layer.tar", _key(machine)
        if not user_cache.take_file("debian", key, layer):
            with step(f"Bootstrapping Debian {SUITE}{'' if machine == apt.machine() else f' for {machine}, emulated'}"):
                _bootstrap(checkout, layer, machine)
            user_cache.keep_file("debian", key, layer, _WEEK_SECONDS)
        with step(f"Pushing {name}"):
            _archive(layer, name, folder / "image.tar", machine)
            command(
                ["docker", "load", "--input", folder / "image.tar"],
                checkout.logs / "load.log",
                env=_environment(checkout),
            )
            log = checkout.logs / "push.log"
            command(["docker", "push", name], log, env=_environment(checkout))
    return _pushed_digest(log)


def _pushed_digest(log: Path) -> str:
    digests = re.findall(r"sha256:[0-9a-f]{64}", log.read_text(errors="replace"))
    if not digests:
        raise ToolchainError(f"the Docker client names no digest of what it pushed; all output is in {log}")
    return str(digests[-1])


def get(checkout: Checkout) -> Part:
    """Get the base image for the running engine; a bootstrapped one is in the registry."""
    if part := find(checkout):
        return part
    why = _pull(_environment(checkout))
    if not why:
        return remember(checkout, Part(NAME, IMAGE, "pulled"))
    address = docker_registry.get(checkout).env[docker_registry.VARIABLE]
    name = _in_registry(address)
    _check_login(checkout, address)
    part = Part(NAME, name, f"Debian {SUITE}, bootstrapped", f"{IMAGE}: {why}")
    return remember(checkout, _at(part, address, _publish(checkout, name, apt.machine())))


def _check_login(checkout: Checkout, address: str) -> None:
    """Refuse a registry whose login the client lacks: the push would fail, after minutes. Raises ToolchainError: so."""
    try:
        # Of a wrong password, `docker manifest inspect` says that there is no such manifest. No image has this digest.
        words = ["docker", "pull", f"{address}/{apt_mirrors.REPOSITORY}@sha256:{'0' * 64}"]
        output(words, env=_environment(checkout), timeout=60)
    except ToolchainError as error:
        if re.search("(?i)no basic auth credentials|unauthorized|authentication|authorization", str(error)):
            raise ToolchainError(
                f"{docker_registry.VARIABLE}={address}: the registry wants a login, and Docker has none that it takes: "
                f"`docker login {address}` ({error})"
            ) from None


def _at(part: Part, address: str, digest: str) -> Part:
    return replace(part, env={apt_mirrors.VARIABLE: apt_mirrors.base_image_mirror(address, digest)})


def name(platform: str) -> str:
    """Return the name of the part that is the base image for another platform than this machine's."""
    return f"{NAME} for {platform}"


def find_for(checkout: Checkout, platform: str) -> Part | None:
    """Return the base image for another platform, if the registry has it or can be had it from."""
    part = find(checkout)
    if part is None or (part.env and platform not in _entries(checkout, _by_digest(part))):
        return None
    return Part(name(platform), part.used, part.version)


def get_for(checkout: Checkout, platform: str) -> Part:
    """Get the base image for another platform than this machine's; the engine must run that platform.

    A bootstrapped one gets a tag of its own, and joins those of other platforms at the tag that builds use.
    """
    base = get(checkout)
    if part := find_for(checkout, platform):
        return part
    used, repository = base.used, _repository(base.used)
    machine = platform.removeprefix("linux/")
    added = _publish(checkout, f"{used}-{machine}", machine)
    digests = {**_entries(checkout, _by_digest(base)), platform: added}
    members = [f"{repository}@{digest}" for digest in digests.values()]
    log, environment = checkout.logs / "manifest.log", _environment(checkout)
    _works(["docker", "manifest", "rm", used], environment)  # of a run that was interrupted here
    command(["docker", "manifest", "create", "--insecure", used, *members], log, env=environment)
    command(["docker", "manifest", "push", "--insecure", "--purge", used], log, env=environment)
    base = remember(checkout, _at(base, _registry(checkout), _pushed_digest(log)))
    return Part(name(platform), used, f"Debian {SUITE}, bootstrapped under emulation", env=base.env)


def _entries(checkout: Checkout, reference: str) -> dict[str, str]:
    """Return the digest of each platform's image at a tag of the registry, which may be an index or one image."""
    words = ["docker", "manifest", "inspect", "--insecure", "--verbose", reference]
    entries: Any = json.loads(output(words, env=_environment(checkout), timeout=60))
    descriptors = [entry["Descriptor"] for entry in (entries if isinstance(entries, list) else [entries])]
    return {
        f"{each['platform']['os']}/{each['platform']['architecture']}": each["digest"]
        for each in descriptors
        if each["platform"]["os"] != "unknown"  # attestations
    }


KIND: Final = Kind(NAME, find, get, missing="its engine or registry is not running, or has lost it")
