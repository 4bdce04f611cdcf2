"""A stack for interactive work: ``docker-compose.yaml`` and ``.env`` for a project's folder (Compose specification).

The build arguments are the plan's, all of them, so that ``docker compose build`` gives the image that ``pulumi up``
does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml

from cli.export.output import beside
from cli.plain_yaml import PlainDumper
from stacks.config.stack_file import ROOT
from stacks.errors import SlipwayError, one_line
from stacks.plan import Plan, PlannedImage
from stacks.spec import CONTEXT
from stacks.versions.efa_ngc import ngc_versions

PROJECT: Final = "/workspace"
"""Where a container has the project's folder, unless its image has a place for one."""

_PLACE: Final = "PROJECT_ROOT"
"""Argument of images that have such a place, where Python looks for modules too."""

_OWNER: Final = "USER_ID"
"""Argument of images that are made for one person, whose user id it is."""

_GROUP: Final = "conda"
"""Group in such images to which their environment belongs (dockerfiles/universal/layers/conda); its id differs.

An engine reads an account's own groups from the image only where a user is named without a group, and looks names of
further ones up in the image's /etc/group (moby, daemon/oci_linux.go and github.com/moby/sys/user).
"""

_MARK: Final = "# Written by `python -m stacks compose"
_SHARED_MEMORY: Final = "8gb"
"""What data loaders and NCCL may share; Docker's own limit is 64 MB."""

_HEAD: Final = """\
{mark} {stack}`: `docker compose up -d train`, then `docker compose exec train bash`.
# Another stack or another version of it: run that again, with --force. What differs by user and machine is in .env.
"""
_ENV: Final = """\
{mark} {stack}`: what docker-compose.yaml takes from here.
# Whose the files are that containers write to this folder: id -u, id -g.
UID={uid}
GID={gid}
# What images are built from, on the machine whose client builds them.
DOCKERFILES={dockerfiles}
# Where programs keep their caches, as that user has no home in the image.
HOME_FOLDER=/tmp
# Memory that processes of a container share.
SHM_SIZE={shm}
"""


def of_user(plan: Plan, user: int) -> PlannedImage:
    """Return which of a stack's images a user works in: one that is made for them, else the last."""
    return next((image for image in plan.images if _is_of(image, user)), plan.image())


def _is_of(image: PlannedImage, user: int) -> bool:
    return not image.spec.product and image.spec.args.get(_OWNER) == str(user)


def write(folder: Path, files: Mapping[str, str], *, force: bool) -> list[Path]:
    """Write the files to a folder; return their paths.

    Raises:
        SlipwayError: one is there already, and is not to be replaced or was not written by this; or it cannot be
            written.
    """
    paths = [folder / name for name in files]
    for path in paths:
        if os.path.lexists(path) and not _ours(path):
            raise SlipwayError(
                f"{one_line(str(path))}: is the project's own, and is never replaced; move what it says to another "
                "file, or name another folder with --project"
            )
    with ExitStack() as all_or_none:
        places = [all_or_none.enter_context(beside(path, force=force, ours=_ours)) for path in paths]
        for place, text in zip(places, files.values(), strict=True):
            place.write_text(text, encoding="utf-8", newline="\n")
    return paths


def _ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        return path.read_text(encoding="utf-8", errors="replace").startswith(_MARK)
    except PermissionError:
        return False  # so somebody else's


def files(
    plan: Plan, image: PlannedImage, *, owner: tuple[int, int], gpus: bool = True, host: bool = False
) -> dict[str, str]:
    """Return the files by name.

    Args:
        plan: the stack.
        image: which of its images the service ``train`` runs.
        owner: user and group that the containers run as.
        gpus: reserve all of the machine's GPUs; without, services run on CPUs.
        host: share the machine's network, in place of one of the containers' own.

    Raises:
        SlipwayError: the host's network is asked for where there is none to share.
    """
    if host and _is_wsl():
        raise SlipwayError("--host-network: in WSL the engine's network is not this machine's; publish ports instead")
    uid, gid = owner
    own = _is_of(image, uid)
    # In an image that is not the caller's own, that user has no home and may not write bytecode.
    foreign = {"HOME": "${HOME_FOLDER}", "PYTHONPYCACHEPREFIX": "${HOME_FOLDER}/pycache"}
    ngc = f"nvcr.io/nvidia/pytorch:{ngc_versions()[-1]}-py3"
    services = {
        "train": {
            "image": image.reference,
            "platform": image.spec.platform,
            "build": _build(image),
            "environment": {} if own else foreign,
            **({"group_add": [_GROUP]} if own else {}),
            **_common(image.spec.args.get(_PLACE, PROJECT), gpus, host),
        },
        "ngc": {"image": plan.config.mirrors.image(ngc), "environment": foreign, **_common(PROJECT, gpus, host)},
    }
    said = {"mark": _MARK, "stack": plan.stack}
    return {
        "docker-compose.yaml": _HEAD.format(**said)
        + yaml.dump({"services": services}, Dumper=PlainDumper, sort_keys=False),
        ".env": _ENV.format(**said, uid=uid, gid=gid, dockerfiles=_quoted(ROOT / CONTEXT), shm=_SHARED_MEMORY),
    }


def _quoted(path: Path) -> str:
    """Return a path as a value in ``.env`` that both Composes take as it is, with ``$`` and blanks."""
    text = path.as_posix().replace("'", r"\'")
    return f"'{text}'"


def _common(place: str, gpus: bool, host: bool) -> dict[str, Any]:
    """Return what every service has; ``place`` is where it has the project."""
    devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    return {
        "user": "${UID}:${GID}",
        "volumes": [f".:{place}"],
        "working_dir": place,
        "command": ["sleep", "infinity"],
        "init": True,
        "shm_size": "${SHM_SIZE}",
        **({"network_mode": "host"} if host else {}),
        **({"deploy": {"resources": {"reservations": {"devices": devices}}}} if gpus else {}),
    }


def _build(image: PlannedImage) -> dict[str, Any]:
    args = {**image.args, **image.spec.label_args, **image.parents}
    return {
        "context": "${DOCKERFILES}",
        "dockerfile": image.spec.dockerfile,
        **({"target": image.spec.target} if image.spec.target else {}),
        "args": {name: value.replace("$", "$$") for name, value in args.items()},
    }


def _is_wsl() -> bool:
    try:
        return "microsoft" in Path("/proc/version").read_text(encoding="utf-8").lower()
    except OSError:
        return False
