"""A stack for interactive work: ``docker-compose.yaml`` and ``.env`` for a project's folder (Compose specification).

The build arguments are all of the plan's, so that ``docker compose build`` gives the same image as ``pulumi up``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml

from cli.export.output import replacing
from cli.plain_yaml import PlainDumper
from containers.errors import SlipwayError, one_line
from stacks import flavors
from stacks.config.stack_file import ROOT
from stacks.jobs.requirements import Workspace
from stacks.plan import Plan, PlannedImage
from stacks.platforms import OF_MACHINES
from stacks.spec import context_path
from stacks.versions.efa_ngc import ngc_versions

_MARK: Final = "# Written by `slipway compose"
"""First words of the files that this may replace."""

_SHARED_MEMORY: Final = "8gb"
"""What data loaders and NCCL may share; Docker's own limit is 64 MB."""

_HEAD: Final = """\
{mark} {stack}`: `docker compose up -d train`, then `docker compose exec train bash`.
# Another stack or another version of it: run that again, with --force. What differs by user and machine is in .env.
"""
_ENV: Final = """\
{mark} {stack}`: what docker-compose.yaml takes from here.
# User and group that own the files which containers write to this folder: id -u, id -g.
UID={uid}
GID={gid}
# What images are built from, on the machine whose client builds them.
DOCKERFILES={dockerfiles}
# Where programs keep their caches, as that user has no home in the image.
HOME_FOLDER=/tmp
# Memory that processes of a container share.
SHM_SIZE={shm}
"""


def own_platform(plan: Plan) -> str | None:
    """Return the machine's platform where a stack for several has it, else None."""
    machine = OF_MACHINES.get(os.uname().machine)
    return machine if plan.indexes and machine in plan.config.platforms else None


def of_user(plan: Plan, uid: int, platform: str | None = None) -> PlannedImage:
    """Return which of a stack's images a user works in: the one made for that user id, else the last.

    Raises SlipwayError: the stack has no image to run, or not for that platform.
    """
    last = plan.image(platform=platform)
    images = [image for image in plan.images if not image.spec.product and image.spec.platform == last.spec.platform]
    images = [*(image for image in reversed(images) if image.spec.own), *(it for it in images if not it.spec.own)]
    return next((image for image in images if _workspace(plan, image).uid == uid), last)


def _workspace(plan: Plan, image: PlannedImage) -> Workspace:
    recipe = plan.recipe(image).spec.published_name
    return flavors.requirements(plan.config).workspaces.get(recipe, Workspace())


def write(folder: Path, files: Mapping[str, str], *, force: bool) -> list[Path]:
    """Write the files to a folder, all or none; return their paths.

    Raises SlipwayError: a file exists and ``force`` is not given, or this did not write it; or it cannot be written.
    """
    paths = [folder / name for name in files]
    for path in paths:
        if os.path.lexists(path) and not _is_ours(path):
            raise SlipwayError(
                f"{one_line(str(path))}: is the project's own, and is never replaced; move what it says to another "
                "file, or name another folder with --project"
            )
    with ExitStack() as all_or_none:
        targets = [all_or_none.enter_context(replacing(path, force=force, replaceable=_is_ours)) for path in paths]
        for target, text in zip(targets, files.values(), strict=True):
            target.write_text(text, encoding="utf-8", newline="\n")
    return paths


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        return path.read_text(encoding="utf-8", errors="replace").startswith(_MARK)
    except PermissionError:
        return False


def files(
    plan: Plan, image: PlannedImage, *, owner: tuple[int, int], gpus: bool = True, host: bool = False
) -> dict[str, str]:
    """Return the files by name; the service ``train`` runs ``image``.

    ``owner`` are the user id and group id that the containers run as. With ``gpus``, all of the machine's are reserved.
    With ``host``, they share the machine's network, in place of one of their own.

    Raises SlipwayError: ``host`` is given in WSL, where the engine has another network than this machine.
    """
    if host and _is_wsl():
        raise SlipwayError("--host-network: in WSL the engine's network is not this machine's; publish ports instead")
    uid, gid = owner
    workspace = _workspace(plan, image)
    personal = workspace.uid == uid
    # In somebody else's image, that user has no home.
    homeless = {"HOME": "${HOME_FOLDER}"}
    ngc = f"nvcr.io/nvidia/pytorch:{ngc_versions()[-1]}-py3"
    variables = {name: value.replace("$", "$$") for name, value in image.spec.environment.items()}
    services = {
        "train": {
            "image": image.index_reference or image.reference,
            "platform": image.spec.platform,
            "build": _build(image),
            # An image may have an entry point of its own, such as a server.
            "entrypoint": [],
            "environment": {**variables, **({} if personal else homeless)},
            **({"group_add": list(workspace.groups)} if personal and workspace.groups else {}),
            **_common(workspace.folder, gpus, host),
        },
        "ngc": {
            "profiles": ["ngc"],  # 20 GB that `up` without a name does not pull
            "image": plan.config.mirrors.image(ngc),
            "environment": homeless,
            **_common(Workspace().folder, gpus, host),
        },
    }
    fields = {"mark": _MARK, "stack": plan.stack}
    return {
        "docker-compose.yaml": _HEAD.format(**fields)
        + yaml.dump({"services": services}, Dumper=PlainDumper, sort_keys=False),
        ".env": _ENV.format(
            **fields, uid=uid, gid=gid, dockerfiles=_quoted(context_path(image.spec.context, ROOT)), shm=_SHARED_MEMORY
        ),
    }


def _quoted(path: Path) -> str:
    """Return a path as a value in ``.env`` that both Composes read unchanged, with ``$`` and blanks."""
    text = path.as_posix().replace("'", r"\'")
    return f"'{text}'"


def _common(folder: str, gpus: bool, host: bool) -> dict[str, Any]:
    """Return what every service has; ``folder`` is where it has the project."""
    devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    return {
        "user": "${UID}:${GID}",
        "volumes": [f".:{folder}"],
        "working_dir": folder,
        "command": ["sleep", "infinity"],
        "init": True,
        "shm_size": "${SHM_SIZE}",
        **({"network_mode": "host"} if host else {}),
        **({"deploy": {"resources": {"reservations": {"devices": devices}}}} if gpus else {}),
    }


def _build(image: PlannedImage) -> dict[str, Any]:
    args = {**image.args, **image.content.label_args, **image.parents}
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
