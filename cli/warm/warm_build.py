"""``slipway warm``: the published image of a stack with a layer of what a script left in its caches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from cli.diff import stack_diff
from cli.warm import warm_evidence, warm_image, warm_layer, warm_pod, warm_run
from cli.warm.warm_image import WarmLayer
from cli.warm.warm_pod import PodCaches
from cli.warm.warm_record import WarmRecord, combined_key
from cli.warm.warm_run import EngineCaches, WarmLimits, WarmScript
from containers.errors import SlipwayError, one_line
from containers.evidence import cosign, shape
from containers.image.node_pull import NodePull, size
from containers.image.registry_image import Image, fetch
from containers.registry.client import PUSH_REASONS, Repository
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from containers.registry.reference import Reference
from stacks import plan
from stacks.config.publishing.warm import WarmConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.differences import platform_parts
from stacks.platforms import OF_MACHINES
from stacks.tags import KEEP

_RUN: Final = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
"""Of a job of GitHub (docs.github.com, "Variables reference")."""


@dataclass(frozen=True)
class WarmTarget:
    """The published image that a script runs in, and the stack's own settings."""

    name: str
    tag: str
    image: Image
    config: StackConfig
    settings: WarmConfig
    login: Login | None

    @property
    def repository(self) -> str:
        """The image's repository."""
        return Reference.of(self.image.reference).repository


def warm(
    stack: str,
    image: str | None,
    root: Path,
    platform: str | None,
    onto: str | None,
    caches: EngineCaches | PodCaches,
    before: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Push a stack's published image with the caches that its script leaves in it; yield a line for each step.

    ``onto`` is such an image by its digest, made on machines with other GPUs: its layers are kept.
    ``before`` are the stack's outputs as somebody may have written them, so the image must be the stack's; by default
    they come from Pulumi's state.

    Raises SlipwayError: the stack has no script or no such image; the engine, the script, the registry or cosign fails.
    """
    target = _target(stack, image, root, platform, before)
    if target.config.signing:
        cosign.check(target.config.signing)
    script = WarmScript.read(root / target.settings.script)
    others = _others(target, onto) if onto else []
    machine = caches.machine(target.image.reference, script)
    if OF_MACHINES.get(machine.architecture) != target.image.platform:
        raise SlipwayError(
            f"{target.name} is for {target.image.platform}, and the machine is {machine.architecture}: an "
            "emulated one leaves no caches for a real one"
        )
    record = WarmRecord(
        target.image.digest, target.settings.script, script.sha256, machine.torch, machine.triton, machine.lines
    )
    kept = [each for each in others if each.record.machine != record.machine]
    if len(kept) < len(others) and record.key in {each.record.key for each in others}:
        yield f"{target.name}: {onto} has the layer of this script, image and machine ({record.where}) already"
        return
    tag = f"{target.tag}-warm-{combined_key([*(each.record for each in kept), record])}"
    destination = Repository(f"{target.repository}:{tag}", target.login, reasons=PUSH_REASONS)
    if existing := _existing(target, destination, tag):
        yield from _already(target, stack, existing, tag, record)
        return
    yield f"{target.name}: {target.settings.script} in {target.image.reference} {caches.place}: {record.where}"
    with ExitStack() as files:
        contents, archive, blob = (cast("IO[bytes]", files.enter_context(tempfile.TemporaryFile())) for _ in range(3))
        limits = WarmLimits(target.settings.seconds, int(target.settings.size))
        read = partial(warm_layer.read, contents=contents, limit=limits.size)
        began = datetime.now(UTC)
        cached, left_out = caches.read(target.image.reference, script, record.key, machine.owner, limits, read=read)
        if left_out:
            yield f"{target.name}: {warm_run.left_out(left_out)}"
        if not cached:
            raise SlipwayError(
                f"{script.path}: it left nothing in a cache: it must compile, and not clear its variables"
            )
        warm_layer.write(cached, contents, archive, record.key, record.machine, machine.owner)
        archive.seek(0)
        layer = warm_image.compressed(archive, blob, record, target.image)
        layers = [*kept, layer]
        # Another machine of the kind may have been faster, and its tag is not moved.
        if existing := _existing(target, destination, tag):
            yield from _already(target, stack, existing, tag, record)
            return
        digest = warm_image.push(target.image, layers, {layer.descriptor["digest"]: blob}, destination, tag)
        bytes_left = sum(file.size for file in cached)
    ref = f"{target.repository}@{digest}"
    pull = NodePull(1, int(layer.descriptor["size"]))
    yield f"{target.name}: {len(cached)} files, {size(bytes_left)}, for {record.where}: {pull} where the image is"
    yield from _evidence(target, ref, tag, layers, _made(layer, onto, caches.host, began))
    _keep(target, stack, ref)
    yield f"{target.name}: {target.repository}:{tag}@{digest}"


def _existing(target: WarmTarget, destination: Repository, tag: str) -> str | None:
    """Return the digest of the stack's own image under the tag, if there is one."""
    digest = destination.visible_digest()
    return digest if digest and _counts(target, f"{target.repository}@{digest}", tag) else None


def _already(target: WarmTarget, stack: str, digest: str, tag: str, record: WarmRecord) -> Iterator[str]:
    _keep(target, stack, f"{target.repository}@{digest}")
    yield f"{target.name}: {target.repository}:{tag}@{digest} is there already, for {record.where}"


def _keep(target: WarmTarget, stack: str, ref: str) -> None:
    """Have ECR's lifecycle policy keep a warm image as long as its exported image.

    The tag moves: it is of the image's newest warm one.
    """
    if isinstance(target.config.registry, EcrRegistryConfig):
        Repository(ref, target.login, reasons=PUSH_REASONS).tag(f"{KEEP}{stack}-{target.name}-warm")


def _target(
    stack: str, image: str | None, root: Path, platform: str | None, before: Mapping[str, Any] | None
) -> WarmTarget:
    planned = plan.make(stack, root=root)
    settings, name, built = _built(planned, image, platform, before, root)
    login = stack_login.configured(planned.config.registry)
    if before is not None and planned.config.signing:
        cosign.verify(built["ref"], planned.config.signing, login, {"tag": built["tag"]})
    return WarmTarget(name, built["tag"], fetch(built["ref"], login), planned.config, settings, login)


def _built(
    planned: plan.Plan, image: str | None, platform: str | None, before: Mapping[str, Any] | None, root: Path
) -> tuple[WarmConfig, str, dict[str, str]]:
    """Return what a stack runs in a published image, the image's name, and its reference and tag."""
    stack = planned.stack
    if planned.config.warm is None:
        raise SlipwayError(f"stack {stack}: slipway:warm is not set: {{script: warm/steps.py}} names what to run")
    wanted = planned.image(image, platform or planned.config.every_platform[0])
    name = wanted.spec.name
    outputs = stack_diff.outputs(stack, root) if before is None else before
    with shape.expected(f"stack {stack}: outputs: {name}", "record"):
        pushed = stack_diff.pushed(stack, platform_parts(outputs.get("images", {})), name)[name]
        built = {key: str(pushed[key]) for key in ("ref", "tag")}
    if before is not None and Reference.of(built["ref"]).repository != wanted.repository:
        # Its layer would be pushed and signed as one of the stack.
        raise SlipwayError(
            f"{one_line(built['ref'])}: not an image of {wanted.repository}, where the stack publishes it; publish it "
            "again"
        )
    return planned.config.warm, name, built


def in_pod(stack: str, image: str | None, root: Path, before: Mapping[str, Any]) -> tuple[str, str]:
    """Return a stack's published image, and the program for ``python3 -c`` in a job with that image as its container.

    Raises SlipwayError: the stack has no script or no such image, or the script cannot be read or is too long.
    """
    settings, _, built = _built(plan.make(stack, root=root), image, None, before, root)
    return built["ref"], warm_pod.program(built["ref"], WarmScript.read(root / settings.script), settings.seconds)


def _others(target: WarmTarget, onto: str) -> list[WarmLayer]:
    """Return the warm layers of an image that are kept.

    Whoever may push can push a layer of their own with a history of ours. So a stack that signs keeps its
    attested layers.

    Raises SlipwayError: it is not such an image, or has a layer that the stack did not attest.
    """
    reference = Reference.of(onto)
    if not reference.digest or reference.repository != target.repository:
        raise SlipwayError(
            f"--onto: '{one_line(onto)}': expected an image by its digest, {target.repository}@sha256:..."
        )
    ref = f"{reference.repository}@{reference.digest}"
    warm = fetch(ref, target.login)
    signing = target.config.signing
    try:
        if signing is None:
            return warm_image.warm_layers(target.image, warm)
        verified = warm_evidence.attested_layers(target.image, warm, signing, target.login)
    except SlipwayError as error:
        raise SlipwayError(f"--onto: {error}; leave --onto out, and start anew") from None
    return [each.layer for each in verified]


def _counts(target: WarmTarget, ref: str, tag: str) -> bool:
    """Return whether an image under the tag is the stack's: whoever may push can move a tag."""
    if target.config.signing is None:
        return True
    try:
        cosign.verify(ref, target.config.signing, target.login, {"tag": tag})
    except cosign.Unsigned:
        return False
    return True


def _made(layer: WarmLayer, onto: str | None, host: str, began: datetime) -> dict[str, Any]:
    """Return the facts of the evidence alone: the layer made here, its time, and its machine or job."""
    server, repository, run = (os.environ.get(name) for name in _RUN)
    job = f"{server}/{repository}/actions/runs/{run}" if server and repository and run else ""
    times = {"began": began.isoformat(), "finished": datetime.now(UTC).isoformat()}
    return {"layer": layer.diff_id, "onto": onto or "", "host": host, "job": job, **times}


def _evidence(
    target: WarmTarget, ref: str, tag: str, layers: Sequence[WarmLayer], made: Mapping[str, Any]
) -> Iterator[str]:
    """Sign the image and attest its layers, if the stack signs."""
    signing = target.config.signing
    if signing is None:
        yield f"{target.name}: not signed, and no evidence of where it was made: slipway:signing is not set"
        return
    predicate = {"image": target.image.digest, "layers": [each.attested() for each in layers], "made": dict(made)}
    cosign.sign(ref, signing, target.login, {"tag": tag})
    yield f"{target.name}: signed, and attested in {cosign.attest(ref, 'warm', predicate, signing, target.login)}"
