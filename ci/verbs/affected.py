"""``python -m ci affected``: the matrix of the stacks to build or publish, from ``slipway affected``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from ci import actions, public_state, published_branch, repository
from ci.repository import ROOT
from containers.errors import SlipwayError
from containers.platform_name import architecture
from containers.registry.reference import Reference
from stacks import impact, plan
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import stack_names
from stacks.identity.git import git
from stacks.spec import Elsewhere
from toolchain.needs import local

HOSTED = {"linux/amd64": "ubuntu-24.04", "linux/arm64": "ubuntu-24.04-arm"}
"""GitHub's own runners by platform."""

_JOBS = 256
"""The most jobs of a matrix (GitHub's documentation, "Running variations of jobs in a workflow")."""

_NOTHING = "0" * 40
"""The commit before the first, as GitHub writes it."""


def run(options: argparse.Namespace) -> int:
    """Set the outputs ``matrix``, ``parallel`` and ``previews``, and print why each stack is in them.

    The first has a job for each stack, the last one for each platform of it, which GitHub's own runner builds.
    ``parallel`` says how many jobs of the first may run at a time: one, where a stack stands on another of them. That
    one comes first.

    Raises SlipwayError: the clone is shallow, or the history cannot be compared.
    """
    if (git(ROOT, "rev-parse", "--is-shallow-repository") or "").strip() != "false":
        raise SlipwayError(f"{ROOT}: the clone is shallow: set `fetch-depth: 0` of actions/checkout")
    base = options.since or _last(ROOT)
    changes = impact.since(base, ROOT)
    reasons = [*impact.unresolved(changes), *impact.lines(changes)]
    reduced = (stack for stack, removed in changes.removed.items() if removed and plan.resolve(stack)[1])
    stacks: dict[str, Sequence[str]] = {stack: [] for stack in reduced}
    stacks |= {stack: list(changes.images.get(stack, ())) for stack in changes.stacks}
    if not options.since:
        stacks = dict(_to_publish(stacks, base, reasons))
    print("\n".join(reasons))
    actions.summary("\n".join(["```text", *reasons, "```", ""]))
    ordered, chained = parents_first(stacks)
    jobs = [_job(stack, stacks[stack]) for stack in ordered]
    actions.output("matrix", json.dumps({"include": jobs}))
    actions.output("parallel", "1" if chained else str(_JOBS))
    actions.output("previews", json.dumps({"include": [preview for job in jobs for preview in _previews(job)]}))
    return 0


def parents_first(stacks: Iterable[str]) -> tuple[list[str], bool]:
    """Return the stacks, parents first, and whether one stands on another.

    Raises SlipwayError: a stack's configuration is wrong, or stacks stand on each other.
    """
    names = [*stacks]
    parents = {stack: [each for spec in plan.resolve(stack)[1] for each in spec.parents.values()] for stack in names}
    others = {stack: {each.stack for each in of if isinstance(each, Elsewhere)} for stack, of in parents.items()}
    on = {stack: of & {*names} for stack, of in others.items()}
    return [*TopologicalSorter(on).static_order()], any(on.values())


def runner(config: StackConfig) -> list[str]:
    """Return the labels of the runners that publish a stack: configured ones, else GitHub's for its platform."""
    return list(config.runs_on) or [HOSTED[config.platform]]


def natives(config: StackConfig) -> list[dict[str, Any]]:
    """Return the jobs that build a stack's platforms, each on GitHub's own runner of it, before the index is pushed.

    There are none for one platform, and none if the stack names the machines or engines for its builds.
    """
    if len(config.platforms) <= 1 or config.runs_on or config.engines or config.build_on == "runners":
        return []
    # In this order, because sources, which are the same for all platforms, are built on amd64.
    return [_hosted(platform) for platform in sorted(config.platforms)]


def _hosted(platform: str) -> dict[str, Any]:
    return {"platform": platform, "runner": [HOSTED[platform]]}


def _last(root: Path) -> str:
    """Return the commit up to which everything is published, or the first one if the history was rewritten."""
    commit = published_branch.commit(root) or _NOTHING
    return commit if git(root, "cat-file", "-e", f"{commit}^{{commit}}") is not None else _NOTHING


def _to_publish(
    stacks: Mapping[str, Sequence[str]], base: str, reasons: list[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the stacks to publish with their images, and append the reasons that are not a change since ``base``.

    Left out are stacks that are not pushed, or only to a local registry. Added are stacks never published at their
    registry, or without the signatures or tags that their configuration now requires. Added too are stacks published
    from a commit after ``base`` with a change reverted since, which is possible after another stack failed.
    """
    for stack in stack_names():
        config, specs = plan.resolve(stack)
        published = published_branch.stack(ROOT, stack)
        refs = [image["ref"] for image in public_state.images(published).values()] if published else []
        if not specs:
            reasons.append(f"{stack}: has no image to publish")
        elif not config.publish or local(config):
            reasons.append(f"{stack}: not published, because of slipway:registry or slipway:publish")
        elif stack in stacks:
            yield stack, stacks[stack]
        elif not refs or not all(ref.startswith(f"{config.registry.repository}/") for ref in refs):
            reasons.append(f"{stack}: not published at {config.registry.repository} yet")
            yield stack, [spec.name for spec in specs]
        elif missing := lacking(config, (published or {})["outputs"], plan.extra_tags_of(stack, config)):
            reasons.append(f"{stack}: {missing}")
            yield stack, [spec.name for spec in specs]
        elif (
            published
            and not repository.follows(ROOT, base, published["commit"])
            and (differing := _differing(stack, published))
        ):
            reasons.append(f"{stack}: published with other tags: {', '.join(differing)}")
            yield stack, [spec.name for spec in specs if spec.name in differing]


def _differing(stack: str, published: Mapping[str, Any]) -> list[str]:
    """Return the images that are published under another tag than their present one, or no longer exist."""
    now = {image.spec.name: image.tag for image in plan.make(stack).images}
    then = {name: image["tag"] for name, image in public_state.images(published).items()}
    return [name for name in {**now, **then} if now.get(name) != then.get(name)]


def lacking(config: StackConfig, outputs: Mapping[str, Any], extra_tags: Collection[str]) -> str:
    """Return the signatures or extra tags that published images of a stack lack, in words; empty if none."""
    signing, products = config.signing, outputs.get("products", {})
    # A product has a signature alone, and so has the index of several platforms' images.
    bare = {*products, *(name for name, image in outputs.get("images", {}).items() if "platforms" in image)}
    signed: dict[str, Mapping[str, Any]] = {**{name: {} for name in products}, **outputs.get("signed", {})}
    if signing:
        attested = {key for key in ("sbom", "provenance") if getattr(signing, key)}
        required = {name: {"signature"} if name in bare else {"signature", *attested} for name in signed}
        if not signed or any(
            outputs.get("by") != signing.who or not required[name] <= outputs.keys() for name, outputs in signed.items()
        ):
            return "not signed as slipway:signing requires"
    tags = {Reference.of(name).tag for names in outputs.get("extraTags", {}).values() for name in names}
    return "" if tags >= set(extra_tags) else "not tagged as slipway:extraTags requires"


def _job(stack: str, images: Sequence[str]) -> dict[str, Any]:
    config, _ = plan.resolve(stack)
    return {
        "stack": stack,
        "images": list(images),
        "platforms": list(config.every_platform),
        "runner": runner(config),
        "natives": natives(config),
    }


def _previews(job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for platform in job["platforms"]:
        name = f"{job['stack']}-{architecture(platform)}" if len(job["platforms"]) > 1 else job["stack"]
        yield {"name": name, "stack": job["stack"], "images": job["images"], **_hosted(platform)}
