"""``slipway warm``: the published image of a stack with a layer of what a script left in its caches."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from cli.diff import stack_diff
from cli.startup.docker_client import pulled
from cli.warm import warm_evidence, warm_image, warm_layer, warm_run
from cli.warm.warm_image import WarmLayer
from cli.warm.warm_record import WarmRecord, combined_key
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

    def login_of(self, ref: str) -> Login | None:
        """Return the login for an image, if it is for its registry."""
        return self.login if self.login and self.login.applies_to(ref) else None


def warm(
    stack: str,
    image: str | None,
    root: Path,
    platform: str | None,
    onto: str | None,
    *,
    gpu: bool,
    before: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Run a stack's script in its published image, and push the image with its caches; yield a line for each step.

    ``onto`` is such an image by its digest, made on machines with other GPUs: its layers are kept.
    ``before`` are the stack's outputs as somebody may have written them, so the image must be the stack's; by default
    they come from Pulumi's state.

    Raises:
        SlipwayError: the stack has no script or no such image; the engine, the script, the registry or cosign fails.
    """
    target = _target(stack, image, root, platform, before)
    if target.config.signing:
        cosign.check(target.config.signing)
    script = warm_run.WarmScript.read(root / target.settings.script)
    others = _others(target, onto) if onto else []
    pulled(target.image.reference)
    machine = warm_run.probe(target.image.reference, gpu=gpu)
    if OF_MACHINES.get(machine.architecture) != target.image.platform:
        raise SlipwayError(
            f"{target.name} is for {target.image.platform}, and the engine's machine is {machine.architecture}: an "
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
    existing = destination.visible_digest()
    if existing and _counts(target, f"{target.repository}@{existing}", tag):
        _keep(target, stack, f"{target.repository}@{existing}")
        yield f"{target.name}: {target.repository}:{tag}@{existing} is there already, for {record.where}"
        return
    yield f"{target.name}: {target.settings.script} runs in {target.image.reference} on this machine: {record.where}"
    with ExitStack() as files:
        contents, archive, blob = (cast("IO[bytes]", files.enter_context(tempfile.TemporaryFile())) for _ in range(3))
        limits = warm_run.WarmLimits(target.settings.seconds, target.settings.size, gpu)
        read = partial(warm_layer.read, contents=contents, limit=limits.size)
        began = datetime.now(UTC)
        cached, left_out = warm_run.run(target.image.reference, script, record.key, machine.owner, limits, read)
        if not cached:
            raise SlipwayError(
                f"{script.path}: it left nothing in a cache: it must compile, and not clear its variables"
            )
        if left_out:
            yield f"{target.name}: {warm_run.left_out(left_out)}"
        warm_layer.write(cached, contents, archive, record.key, record.machine, machine.owner)
        archive.seek(0)
        layer = warm_image.compressed(archive, blob, record, target.image)
        layers = [*kept, layer]
        digest = warm_image.push(target.image, layers, {layer.descriptor["digest"]: blob}, destination, tag)
        bytes_left = sum(file.size for file in cached)
    ref = f"{target.repository}@{digest}"
    pull = NodePull(1, int(layer.descriptor["size"]))
    yield f"{target.name}: {len(cached)} files, {size(bytes_left)}, for {record.where}: {pull} where the image is"
    yield from _evidence(target, ref, tag, layers, _made(layer, onto, began))
    _keep(target, stack, ref)
    yield f"{target.name}: {target.repository}:{tag}@{digest}"


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
    if planned.config.warm is None:
        raise SlipwayError(f"stack {stack}: slipway:warm is not set: {{script: warm/steps.py}} names what to run")
    wanted = planned.image(image, platform or planned.config.every_platform[0])
    name = wanted.spec.name
    outputs = stack_diff.outputs(stack, root) if before is None else before
    with shape.expected(f"stack {stack}: outputs: {name}", "record"):
        pushed = stack_diff.pushed(stack, platform_parts(outputs.get("images", {})), name)[name]
        built = {key: str(pushed[key]) for key in ("ref", "tag")}
    login = stack_login.configured(planned.config.registry)
    if before is not None:
        _owned(built, wanted.repository, planned.config, login)
    return WarmTarget(name, built["tag"], fetch(built["ref"], login), planned.config, planned.config.warm, login)


def _owned(built: Mapping[str, Any], repository: str, config: StackConfig, login: Login | None) -> None:
    """Refuse an image that is not the stack's: its layer would be pushed and signed as one of the stack."""
    ref = built["ref"]
    if Reference.of(ref).repository != repository:
        raise SlipwayError(
            f"{one_line(ref)}: not an image of {repository}, where the stack publishes it; publish it again"
        )
    if config.signing:
        signing_login = login if login and login.applies_to(ref) else None
        cosign.verify(ref, config.signing, signing_login, {"tag": built["tag"]})


def _named(target: WarmTarget, onto: str) -> str:
    reference = Reference.of(onto)
    if not reference.digest or reference.repository != target.repository:
        raise SlipwayError(
            f"--onto: '{one_line(onto)}': expected an image by its digest, {target.repository}@sha256:..."
        )
    return f"{reference.repository}@{reference.digest}"


def _others(target: WarmTarget, onto: str) -> list[WarmLayer]:
    """Return the warm layers of an image that are kept.

    Whoever may push can push a layer of their own with a history of ours. So a stack that signs keeps what it attested.

    Raises:
        SlipwayError: it is not such an image, or has a layer that the stack did not attest.
    """
    ref = _named(target, onto)
    warm = fetch(ref, target.login)
    signing = target.config.signing
    try:
        if signing is None:
            return warm_image.warm_layers(target.image, warm)
        verified = warm_evidence.attested_layers(target.image, warm, signing, target.login_of(ref))
    except SlipwayError as error:
        raise SlipwayError(f"--onto: {error}; leave --onto out, and start anew") from None
    return [each.layer for each in verified]


def _counts(target: WarmTarget, ref: str, tag: str) -> bool:
    """Return whether an image under the tag is the stack's: whoever may push can move a tag."""
    if target.config.signing is None:
        return True
    try:
        cosign.verify(ref, target.config.signing, target.login_of(ref), {"tag": tag})
    except cosign.Unsigned:
        return False
    return True


def _made(layer: WarmLayer, onto: str | None, began: datetime) -> dict[str, Any]:
    """Return what only the evidence says: which layer was made here, when, and on which machine or in which job."""
    job = "/".join(os.environ[name] for name in _RUN[:2]) + f"/actions/runs/{os.environ[_RUN[2]]}" if _in_job() else ""
    times = {"began": began.isoformat(), "finished": datetime.now(UTC).isoformat()}
    return {"layer": layer.diff_id, "onto": onto or "", "host": socket.gethostname(), "job": job, **times}


def _in_job() -> bool:
    return all(os.environ.get(name) for name in _RUN)


def _evidence(
    target: WarmTarget, ref: str, tag: str, layers: Sequence[WarmLayer], made: Mapping[str, Any]
) -> Iterator[str]:
    """Sign the image and attest its layers, if the stack signs."""
    signing = target.config.signing
    if signing is None:
        yield f"{target.name}: not signed, and no evidence of where it was made: slipway:signing is not set"
        return
    login = target.login_of(ref)
    predicate = {
        "image": target.image.digest,
        "layers": [each.attested() for each in layers],
        "made": dict(made),
    }
    cosign.sign(ref, signing, login, {"tag": tag})
    yield f"{target.name}: signed, and attested in {cosign.attest(ref, 'warm', predicate, signing, login)}"
