"""A stack resolved: every image with its full name, tag, arguments and files, ready to show, compare or build."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks import differences, flavors, lock, tags
from stacks.checks import ec2_site
from stacks.checks.secrets import check_clear_text
from stacks.config import ec2
from stacks.config.kubernetes import ARC_CHARTS, KubernetesRunners
from stacks.config.mirrors import Mirrors
from stacks.config.signing import Signer, trusted
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT, read_stack
from stacks.errors import SlipwayError, one_line, suggest
from stacks.identity import context, dockerfile
from stacks.identity import history as revision
from stacks.identity.fingerprint import fingerprints
from stacks.references import covering, qualified, split
from stacks.spec import CONTEXT, ImageSpec, Outside, in_order

MIRROR_ARGS = {
    "APT_MIRROR": "apt",
    "PYTHON_INDEX_URL": "python_index",
    "TORCH_INDEX_URL": "torch_index",
    "GIT_MIRROR": "git",
    "CA_CERTIFICATE": "ca_certificate",
}
"""Build arguments by which any Dockerfile takes mirrors, and the field of ``Mirrors`` that each is."""

GPU_CHECKS = "checks/gpu.py"
"""What an image's folder has that is run on GPUs, where it has it: a script for the image's Python."""


@dataclass(frozen=True)
class PlannedImage:
    """One image of a plan.

    ``repository`` is the full name without tag. ``args`` are all build arguments but the labels' and those of
    ``siblings``, whose values exist only once the parents are built. ``files`` maps each file of the context,
    relative to it, to a SHA-256, in hexadecimal; the Dockerfile's comments stand apart from what it does.
    ``extra_tags`` follow the image once it is pushed.
    """

    spec: ImageSpec
    repository: str
    tag: str
    args: Mapping[str, str]
    siblings: Mapping[str, str]
    files: Mapping[str, str]
    extra_tags: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The name under which the image is built and pushed."""
        return f"{self.repository}:{self.tag}"

    def shown(self, references: Mapping[str, str]) -> dict[str, Any]:
        """Return what the image is made of, as a preview compares it; ``references`` are its siblings' by name."""
        return differences.shown(
            args=self.args,
            files=self.files,
            labels=self.spec.label_args,
            parents={argument: references[parent] for argument, parent in self.siblings.items()},
            platform=self.spec.platform,
            tag=self.tag,
            target=self.spec.target,
        )


@dataclass(frozen=True)
class Plan:
    """A stack's configuration and its images, parents before children.

    ``gpu_checks`` is the script that the runners' cluster is to run in one of them, if it is the image's own.
    """

    stack: str
    config: StackConfig
    images: tuple[PlannedImage, ...]
    gpu_checks: str | None = None

    @property
    def signers(self) -> dict[str, Signer]:
        """Whose signature each outside parent must have, by the reference that it is built on."""
        return {
            image.args[argument]: signer
            for image in self.images
            for argument, parent in image.spec.parents.items()
            if isinstance(parent, Outside) and (signer := trusted(self.config.trust, parent.reference))
        }

    @property
    def references(self) -> dict[str, str]:
        """The images' full names with tags, by their names in the stack."""
        return {image.spec.name: image.reference for image in self.images}

    def image(self, name: str | None = None) -> PlannedImage:
        """Return one of the images; without a name the last that is to run, which stands on the others.

        Raises:
            SlipwayError: the stack builds no such image.
        """
        by_name = {image.spec.name: image for image in self.images}
        if name is None:
            last = next((image for image in reversed(self.images) if not image.spec.product), None)
            if last is None:
                raise SlipwayError(f"stack {self.stack} builds no image that is to run; take a stack that does")
            return last
        if name not in by_name:
            raise SlipwayError(f"stack {self.stack} {_builds_no(name, by_name)}")
        return by_name[name]

    def as_json(self) -> dict[str, Any]:
        """Return what ``python -m stacks show STACK --json`` prints."""
        references = self.references
        return {
            "stack": self.stack,
            "images": [
                {
                    "name": image.spec.name,
                    "tag": image.tag,
                    "context": CONTEXT,
                    "dockerfile": f"{CONTEXT}/{image.spec.dockerfile}",
                    "target": image.spec.target,
                    "product": image.spec.product,
                    "platform": image.spec.platform,
                    "args": {key: value for key, value in image.args.items() if key not in image.spec.parents},
                    "parents": {
                        key: references[image.siblings[key]] if key in image.siblings else image.args[key]
                        for key in image.spec.parents
                    },
                    "labels": image.spec.labels,
                }
                for image in self.images
            ],
        }


def specs(values: Mapping[str, Any], where: str, root: Path = ROOT) -> tuple[StackConfig, list[ImageSpec]]:
    """Return a stack's configuration and its specs, parents before children and locked to their digests.

    Raises:
        SlipwayError: the configuration is wrong; one line for each mistake, starting with ``where``.
    """
    config, images = wanted(values, where)
    _check_runners(config, [image.name for image in images if not image.product], where, root)
    try:
        ordered = in_order(lock.pinned(images, config.mirrors, lock.read(root)))
    except SlipwayError as error:
        raise SlipwayError(f"{where}: {error}") from None
    return config, lock.dated(ordered, lock.refreshed(root))


def wanted(values: Mapping[str, Any], where: str) -> tuple[StackConfig, list[ImageSpec]]:
    """Return a stack's configuration and its specs as they are before the lock, in any order.

    Raises:
        SlipwayError: see :func:`specs`.
    """
    config = flavors.load(values, where)
    images = flavors.flavor(config.flavor).images(config)
    _check_budgets(config, [image.name for image in images if not image.product], where)
    _check_trust(config, images, where)
    return config, images


def _builds_no(name: str, names: Collection[str]) -> str:
    return f"builds no image '{one_line(name)}'{suggest(name, names)}; it builds: {', '.join(names) or 'none'}"


def _check_budgets(config: StackConfig, names: Sequence[str], where: str) -> None:
    for name in config.budgets:
        if name not in names:
            raise SlipwayError(f"{where}: slipway:budgets: the stack {_builds_no(name, names)}")


def _check_trust(config: StackConfig, specs: Sequence[ImageSpec], where: str) -> None:
    """Refuse to trust what no image stands on: a mistake in its name would leave what is meant unverified."""
    parents = {p.reference for spec in specs for p in spec.parents.values() if isinstance(p, Outside)}
    for key in config.trust:
        if not any(covering([key], parent) for parent in parents):
            names = sorted({split(qualified(parent))[0] for parent in parents})
            raise SlipwayError(
                f"{where}: slipway:trust: '{one_line(key)}': no image of the stack stands on one from there"
                f"{suggest(key, names)}; they stand on: {', '.join(names) or 'none'}"
            )


def _check_locked(config: StackConfig, specs: Sequence[ImageSpec], where: str) -> None:
    """Refuse to trust what may be another image by the time that it is built on: only a digest is signed."""
    for spec in specs:
        for parent in spec.parents.values():
            if not isinstance(parent, Outside) or parent.digest or "@" in parent.reference:
                continue
            if trusted(config.trust, parent.reference):
                raise SlipwayError(
                    f"{where}: slipway:trust: {one_line(parent.reference)}: its tag may move after it is verified; "
                    "run python -m stacks lock, so that it is built on by digest"
                )


def _check_runners(config: StackConfig, names: Sequence[str], where: str, root: Path) -> None:
    """Refuse charts that are not where they are said to be, and GPU checks of an image that the cluster cannot have."""
    runners = config.runners
    if not isinstance(runners, KubernetesRunners):
        return
    folder = runners.arc.charts
    for chart in ARC_CHARTS if folder else ():
        if not (root / str(folder) / chart / "Chart.yaml").is_file():
            raise SlipwayError(
                f"{where}: slipway:runners.arc.charts: '{one_line(folder)}': there is no {folder}/{chart}/Chart.yaml "
                "in the checkout: unpack both charts there, or leave it out"
            )
    checked = runners.validation
    if checked and checked.own and checked.image not in names:
        raise SlipwayError(
            f"{where}: slipway:runners.validation.image: the stack {_builds_no(checked.image, names)}; "
            "or give a reference with a tag or a digest"
        )
    if checked and checked.own and not config.publish:
        raise SlipwayError(
            f"{where}: slipway:runners.validation.image: '{checked.image}' is not pushed, as slipway:publish says, and "
            "no cluster can pull it: leave out validation or publish: false, or give a reference with a tag or a digest"
        )
    if checked and checked.own and (why := runners.cannot_run(config.platform)):
        raise SlipwayError(f"{where}: slipway:runners.validation.image: '{checked.image}': {why}: leave out validation")
    if checked and checked.own and config.registry.own:
        host = config.registry.repository.partition("/")[0]
        raise SlipwayError(
            f"{where}: slipway:runners.validation.image: '{checked.image}' is pushed to {host}, this "
            "machine's own registry, which no cluster reaches: give slipway:registry another, or leave out validation"
        )


def resolve(stack: str, root: Path = ROOT) -> tuple[StackConfig, list[ImageSpec]]:
    """Return the configuration and the specs of a stack that has a file; see :func:`specs`.

    Raises:
        SlipwayError: there is no such stack, or its configuration is wrong.
    """
    return specs(_written(stack, root), f"stack {stack}", root)


def describe(stack: str, root: Path = ROOT) -> list[dict[str, Any]]:
    """Return a stack's specs and labels as JSON has them: what a later tree asks this one.

    Defaults are written out, as the other tree may have others.

    Raises:
        SlipwayError: see :func:`resolve`.
    """
    _, ordered = resolve(stack, root)
    return [{**spec.model_dump(mode="json"), "labels": spec.labels} for spec in ordered]


def make(stack: str, values: Mapping[str, Any] | None = None, root: Path = ROOT) -> Plan:
    """Resolve a stack from its file, or from the ``values`` that Pulumi read from it.

    The file's text is read in either case: only there can a value be seen that YAML changes.

    Raises:
        SlipwayError: the stack does not exist, its configuration is wrong, a Dockerfile is missing, or a tag or the
            stack's own name is too long.
    """
    written = _written(stack, root)
    config, ordered = specs(written if values is None else values, f"stack {stack}", root)
    _check_locked(
        config, ordered, f"stack {stack}"
    )  # only here: the lock, which may lack one, is written from the specs
    if isinstance(config.runners, ec2.Ec2Runners):
        ec2_site.check_stack(stack)
    dockerfiles = dict.fromkeys(spec.dockerfile for spec in ordered)
    declared = {name: dockerfile.arguments(root / CONTEXT / name) for name in dockerfiles}
    files = {name: context.files(root / CONTEXT, name) for name in dockerfiles}
    shown = {name: dockerfile.told_apart(files[name], name, root / CONTEXT / name) for name in dockerfiles}
    prints = fingerprints(ordered, files)
    revisions = revision.find(
        stack,
        {s.name: prints[s.name] for s in ordered if not s.product},
        files={s.name: files[s.dockerfile] for s in ordered},
        root=root,
    )
    # A product is known by its content alone, so that whoever needs the same one, in whatever stack or branch, has it.
    revisions |= {s.name: tags.Revision(mark=prints[s.name][:8]) for s in ordered if s.product}
    extra = extra_tags(stack, config, root)
    made = Plan(
        stack,
        config,
        tuple(
            PlannedImage(
                spec=spec,
                repository=f"{config.registry.repository}/{spec.name}",
                tag=_tag(stack, spec, revisions[spec.name]),
                args={
                    **spec.args,
                    **spec.tuning,
                    **_outside(spec, config),
                    **_mirror_args(config.mirrors, {**declared[spec.dockerfile], **spec.args}),
                },
                siblings={key: p.image for key, p in spec.parents.items() if not isinstance(p, Outside)},
                files=shown[spec.dockerfile],
                # A product's only name is its content.
                extra_tags=() if spec.product else extra,
            )
            for spec in ordered
        ),
        _gpu_checks(config, ordered, f"stack {stack}", root),
    )
    _check_movable(made)
    return made


def extra_tags(stack: str, config: StackConfig, root: Path = ROOT) -> tuple[str, ...]:
    """Return the tags that images get beside their own, as they are on this branch.

    Raises:
        SlipwayError: one of them is too long with the branch before it.
    """
    branch = revision.prefix(root) if config.extra_tags else None
    if branch is None:
        return config.extra_tags
    try:
        return tuple(tags.check_extra(f"{branch}-{tag}") for tag in config.extra_tags)
    except ValueError as error:
        raise SlipwayError(f"stack {stack}: slipway:extraTags: on the branch '{one_line(branch)}': {error}") from None


def _check_movable(plan: Plan) -> None:
    """Refuse extra tags by which an image's own tags could move: ECR lets tags move by how they end, on any branch."""
    for image in plan.images if plan.config.registry.kind == "ecr" else ():
        for tag in plan.config.extra_tags:
            if image.extra_tags and image.tag.endswith(tag):
                raise SlipwayError(
                    f"stack {plan.stack}: slipway:extraTags: '{tag}': {image.spec.name}'s own tag, {image.tag}, ends "
                    "so, and could move in ECR; choose another word, such as latest"
                )


def _gpu_checks(config: StackConfig, specs: Sequence[ImageSpec], where: str, root: Path) -> str | None:
    checked = config.runners.validation if isinstance(config.runners, KubernetesRunners) else None
    if checked is None or checked.command:
        return None
    (name,) = {spec.dockerfile for spec in specs if spec.name == checked.image}
    path = root / CONTEXT / Path(name).parent / GPU_CHECKS
    # Those with files beside them are started by torchrun on several GPUs; one script alone gets to the cluster.
    if not path.is_file() or any(other != path for other in path.parent.glob("*.py")):
        raise SlipwayError(
            f"{where}: slipway:runners.validation.command: '{checked.image}' has no checks of its own that run alone "
            f"({path.relative_to(root)}): give a command"
        )
    return path.read_text(encoding="utf-8")


def _written(stack: str, root: Path) -> dict[str, Any]:
    values = read_stack(stack, root)
    check_clear_text(values, f"stack {stack}")
    return values


def _tag(stack: str, spec: ImageSpec, revision: tags.Revision) -> str:
    try:
        return tags.render(revision, spec.suffix)
    except SlipwayError as error:
        raise SlipwayError(f"stack {stack}: {spec.name}: {error}") from None


def _outside(spec: ImageSpec, config: StackConfig) -> dict[str, str]:
    return {
        argument: config.pulled(parent.reference) + (f"@{parent.digest}" if parent.digest else "")
        for argument, parent in spec.parents.items()
        if isinstance(parent, Outside)
    }


def _mirror_args(mirrors: Mirrors, declared: Mapping[str, str | None]) -> dict[str, str]:
    """Return the arguments by which a Dockerfile takes its mirrors; what is not set keeps the public address.

    ``declared`` maps the arguments that the Dockerfile takes to the values that they would have, None for none.
    """
    args = {name: getattr(mirrors, field) for name, field in MIRROR_ARGS.items()}
    given = {name: value for name, value in args.items() if value and name in declared}
    return {**dockerfile.mirrored(declared, mirrors.downloads), **given}
