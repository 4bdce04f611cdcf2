"""``python -m ci affected``: the matrix of the stacks that a change touches, from ``slipway affected``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci import actions, public_state, published_branch, repository
from ci.repository import ROOT
from stacks import impact, plan
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import stack_names
from stacks.errors import SlipwayError
from stacks.identity.git import git
from toolchain.needs import local

HOSTED = {"linux/amd64": "ubuntu-24.04", "linux/arm64": "ubuntu-24.04-arm"}
"""GitHub's own runners by platform."""

_NOTHING = "0" * 40
"""The commit before all others, as GitHub writes it."""


def run(options: argparse.Namespace) -> int:
    """Set the output ``matrix``, and say why each stack is in it.

    Raises:
        SlipwayError: the clone is shallow, or ``affected`` refuses.
    """
    if (git(ROOT, "rev-parse", "--is-shallow-repository") or "").strip() != "false":
        raise SlipwayError(f"{ROOT}: its history is not all here: give actions/checkout `fetch-depth: 0`")
    base = options.since or _last(ROOT)
    found = impact.since(base, ROOT)
    said = [*impact.unknown(found), *impact.lines(found)]
    lessened = (stack for stack, removed in found.removed.items() if removed and plan.resolve(stack)[1])
    stacks: dict[str, Sequence[str]] = {stack: [] for stack in lessened}
    stacks |= {stack: list(images) for stack, images in found.images.items()}
    if not options.since:
        stacks = dict(_published(stacks, base, said))
    print("\n".join(said))
    actions.summary("\n".join(["```text", *said, "```", ""]))
    actions.output("matrix", json.dumps({"include": [_job(stack, images) for stack, images in stacks.items()]}))
    return 0


def runner(config: StackConfig) -> list[str]:
    """Return the labels of the runners that publish a stack: its own, else GitHub's for its platform."""
    return list(config.runs_on) or [HOSTED[config.platform]]


def _last(root: Path) -> str:
    """Return the commit up to which everything is published, unless it is of a history that has been rewritten."""
    commit = published_branch.commit(root) or _NOTHING
    return commit if git(root, "cat-file", "-e", f"{commit}^{{commit}}") is not None else _NOTHING


def _published(stacks: Mapping[str, Sequence[str]], base: str, said: list[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the stacks to publish and their images, and say why where it is not that they are affected.

    Some are never pushed, or to the machine that builds them only; others are not affected and were never published, or
    elsewhere, or without the signatures and tags that are asked for by now, as neither is a part of an image. And some
    are published from a commit after the one compared with, as where another stack has failed, and taken back since.
    """
    for stack in stack_names():
        config, specs = plan.resolve(stack)
        told = published_branch.stack(ROOT, stack)
        refs = [built["ref"] for built in public_state.images(told).values()] if told else []
        if not specs:
            said.append(f"{stack}: has no image to publish")
        elif not config.publish or local(config):
            said.append(f"{stack}: not published, as slipway:registry or slipway:publish says")
        elif stack in stacks:
            yield stack, stacks[stack]
        elif not refs or not all(ref.startswith(f"{config.registry.repository}/") for ref in refs):
            said.append(f"{stack}: not published at {config.registry.repository} yet")
            yield stack, [spec.name for spec in specs]
        elif why := lacking(config, (told or {})["outputs"], plan.extra_tags_of(stack, config)):
            said.append(f"{stack}: {why}")
            yield stack, [spec.name for spec in specs]
        elif told and not repository.follows(ROOT, base, told["commit"]) and (others := _others(stack, told)):
            said.append(f"{stack}: published otherwise: {', '.join(others)}")
            yield stack, [spec.name for spec in specs if spec.name in others]


def _others(stack: str, told: Mapping[str, Any]) -> list[str]:
    """Return the names of the images that are published under another tag than they have now, or are no more."""
    now = {image.spec.name: image.tag for image in plan.make(stack).images}
    then = {name: built["tag"] for name, built in public_state.images(told).items()}
    return [name for name in {**now, **then} if now.get(name) != then.get(name)]


def lacking(config: StackConfig, outputs: Mapping[str, Any], extra_tags: Collection[str]) -> str:
    """Say what published images lack of the signatures that their stack asks for, or of the further tags."""
    signing, products = config.signing, outputs.get("products", {})
    signed: dict[str, Mapping[str, Any]] = {**{name: {} for name in products}, **outputs.get("signed", {})}
    if signing:
        attested = {key for key in ("sbom", "provenance") if getattr(signing, key)}
        wanted = {name: {"signature"} if name in products else {"signature", *attested} for name in signed}
        if not signed or any(
            one.get("by") != signing.who or not wanted[name] <= one.keys() for name, one in signed.items()
        ):
            return "not signed as slipway:signing says"
    there = {name.rpartition(":")[2] for names in outputs.get("extraTags", {}).values() for name in names}
    return "" if there >= set(extra_tags) else "not tagged as slipway:extraTags says"


def _job(stack: str, images: Sequence[str]) -> dict[str, Any]:
    config, _ = plan.resolve(stack)
    return {"stack": stack, "images": list(images), "platform": config.platform, "runner": runner(config)}
