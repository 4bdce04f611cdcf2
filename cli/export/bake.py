"""``slipway export bake``: a stack as a bake file with its contexts, which builds without Slipway.

The format is that of docker buildx (https://docs.docker.com/build/bake/reference/), in JSON. Each image is a target. A
parent of the same stack is a named context ``target:<parent>``, so that the builder chains them in one run.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cli.export import written_folder
from cli.export.output import replacing
from stacks.identity import staged_context
from stacks.identity.content import Content
from stacks.plan import Plan, PlannedImage

FILE: Final = "docker-bake.json"
"""The bake file's name, which buildx looks for in the folder that it runs in. Contexts are relative to that folder."""
CONTEXTS: Final = "contexts"
"""The folder of the contexts beside it."""


def write(planned: Plan, output: Path, root: Path, *, force: bool) -> list[str]:
    """Write a stack's bake file and contexts to a folder; return the commands that build with them.

    Raises SlipwayError: the folder exists and is not an earlier export, was edited since, or cannot be written.
    """
    with replacing(output, force=force, replaceable=written_folder.is_as_written) as new:
        new.mkdir()
        copy_contexts(_contents(planned), new / CONTEXTS, root)
        (new / FILE).write_text(json.dumps(document(planned), indent=2) + "\n", encoding="utf-8")
        written_folder.record(new)
    build = [f"(cd {shlex.quote(str(output))} && docker buildx bake --push)"]
    return build + [
        " ".join(["docker buildx imagetools create --tag", part[0].index_reference or "", *(p.reference for p in part)])
        for part in planned.indexes.values()
    ]


def copy_contexts(contents: Mapping[str, Content], folder: Path, root: Path) -> None:
    """Copy what each build reads to a folder of its own, by name, with the Dockerfile of the reached stages."""
    staged_context.write(contents.values(), root)
    folder.mkdir()
    for name, content in contents.items():
        shutil.copytree(root / content.folder, folder / name, symlinks=True)


def document(planned: Plan) -> dict[str, Any]:
    """Return the bake file of a stack. Images that are run are built by default; ``checks`` is a group of its own."""
    targets: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    for image in planned.images:
        own = {} if image.spec.product else {"tags": [image.reference, *_extra_tags(image)]}
        targets[target(image.spec.name)] = {**_target(image, image.content, image.args), **own}
        if image.content.checks:
            checks[_checks_target(image.spec.name)] = {
                **_target(image, image.content.checks, image.checks_args),
                "output": ["type=cacheonly"],
            }
    default = [target(image.spec.name) for image in planned.images if not image.spec.product]
    groups = {"default": {"targets": default}, **({"checks": {"targets": list(checks)}} if checks else {})}
    return {"group": groups, "target": {**targets, **checks}}


def target(name: str) -> str:
    """Return the name of an image's target."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _checks_target(name: str) -> str:
    """Return the name of the target of an image's checks, which no image has: theirs are joined by ``-``."""
    return f"{target(name)}_checks"


def _contents(planned: Plan) -> dict[str, Content]:
    contents = {target(image.spec.name): image.content for image in planned.images}
    checks = {_checks_target(image.spec.name): image.content.checks for image in planned.images}
    return contents | {name: content for name, content in checks.items() if content}


def _extra_tags(image: PlannedImage) -> list[str]:
    return [] if image.spec.is_part else [f"{image.repository}:{tag}" for tag in image.extra_tags]


def _target(image: PlannedImage, content: Content, args: Mapping[str, str]) -> dict[str, Any]:
    is_checks = content is image.content.checks
    siblings = {argument: target(name) for argument, name in content.siblings.items()}
    # No stage of a Dockerfile of ours has such a name, which would win over the context.
    contexts = {argument: f"slipway.{name.lower()}" for argument, name in siblings.items()}
    given = {**args, **contexts, **content.label_args}
    name = _checks_target(image.spec.name) if is_checks else target(image.spec.name)
    stage = content.spec.target
    return {
        "context": f"{CONTEXTS}/{name}",
        "dockerfile": staged_context.DOCKERFILE,
        **({"target": stage} if stage else {}),
        "args": {key: _literal(value) for key, value in given.items()},
        "contexts": {contexts[argument]: f"target:{name}" for argument, name in siblings.items()},
        "platforms": [image.spec.platform],
    }


def _literal(text: str) -> str:
    """Return a text of which bake replaces nothing: ``${`` and ``%{`` begin its templates."""
    return text.replace("${", "$${").replace("%{", "%%{")
