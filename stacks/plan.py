"""A stack resolved: every image with its full name, tag, arguments and files, ready to show, compare or build.

Each stage runs once: :mod:`stacks.config` and :mod:`stacks.flavors` give the configuration and the specs,
:mod:`stacks.lock` pins them (both in :mod:`stacks.graph`), :mod:`stacks.checks` refuses mistakes,
:mod:`stacks.identity` says what each image is made of, and this module names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from containers.dockerfile.declarations import mirrored
from containers.errors import SlipwayError, builds_no, one_line
from stacks import checks, graph, lock, platforms, tags
from stacks.checks import clusters, provider_settings
from stacks.checks.secrets import check_clear_text
from stacks.config.additions import requirement_name
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.signing import SignerConfig, trusted
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT, other_settings, read_stack
from stacks.config.values import is_commit
from stacks.flavors import own_images
from stacks.graph import Graph
from stacks.identity import content, history, pip_packages
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.identity.fingerprint import fingerprints, index_fingerprint, published_fingerprints
from stacks.spec import CONTEXT, Elsewhere, ImageSpec, Outside

MIRROR_ARGS = {
    "APT_MIRROR": "apt",
    "PYTHON_INDEX_URL": "python_index",
    "TORCH_INDEX_URL": "torch_index",
    "GIT_MIRROR": "git",
    "CA_CERTIFICATE": "ca_certificate",
}
"""The build arguments that carry mirrors to Dockerfiles, and the field of ``MirrorsConfig`` for each."""

_SHOWN_DIGITS = 12
"""Hexadecimal digits of a file's hash in an image's contents."""


@dataclass(frozen=True)
class PlannedImage:
    """One image of a plan: what it is made of, its name, and all inputs of its build.

    ``repository`` is the full name without the tag. ``args`` are the build arguments, without those of labels and of
    sibling parents. A sibling's digest is known only after its build; ``parents`` maps its argument to its
    ``name:tag``. ``fingerprint`` is the SHA-256 of what the image is made of. ``extra_tags`` are set after the push.
    ``checks_args`` are the build arguments of the checks.

    An image that is one platform's part of an index is known by its content alone. So a change of another platform
    leaves it as it is; ``index_tag`` names them all.
    """

    content: Content
    repository: str
    tag: str
    args: Mapping[str, str]
    parents: Mapping[str, str]
    fingerprint: str
    extra_tags: tuple[str, ...] = ()
    checks_args: Mapping[str, str] = field(default_factory=dict)
    index_tag: str | None = None

    @property
    def spec(self) -> ImageSpec:
        """The image as data."""
        return self.content.spec

    @property
    def reference(self) -> str:
        """The name under which the image is published."""
        return f"{self.repository}:{self.tag}"

    @property
    def index_reference(self) -> str | None:
        """The name of the index that names the image beside those of other platforms; None without an index."""
        return self.index_tag and f"{self.repository}:{self.index_tag}"

    @property
    def unchecked_reference(self) -> str:
        """The name under which an image with checks is pushed before these run. Nothing pulls it."""
        return f"{self.repository}:{f'{tags.UNCHECKED}{self.tag}'[: tags.LIMIT]}"

    @property
    def annotations(self) -> dict[str, str]:
        """What the image's signature states besides its digest: an image counts under this name only."""
        return {"tag": self.tag, "fingerprint": self.fingerprint}

    @property
    def siblings(self) -> dict[str, str]:
        """The names of the parents that the same stack builds, by argument."""
        return self.content.siblings

    @property
    def contents(self) -> dict[str, Any]:
        """The inputs of the image, all known before a build. Previews and ``slipway diff`` compare them.

        ``sources`` has the commits of the lock, by ``owner/name tag``, ``packages`` the versions of added packages, and
        ``environment`` the variables that the stack adds; each is left out without any.
        """
        return {
            "args": dict(self.args),
            "files": {path: digest[:_SHOWN_DIGITS] for path, digest in self.content.listing.items()},
            "labels": self.content.label_args,
            "parents": dict(self.parents),
            "platform": self.spec.platform,
            "tag": self.tag,
            "target": self.spec.target,
            **({"sources": locked} if (locked := self.content.locked_sources) else {}),
            **({"packages": added} if (added := self._added_packages) else {}),
            **({"environment": dict(self.spec.environment)} if self.spec.environment else {}),
        }

    @property
    def _added_packages(self) -> dict[str, str]:
        """The packages that a stack adds to the parent's, with their versions; as they are asked for without a lock."""
        packages = self.spec.packages
        if not (self.spec.own and packages):
            return {}
        return pip_packages.versions(packages.files) or {requirement_name(each): each for each in packages.requirements}

    @property
    def checks_contents(self) -> dict[str, Any]:
        """The inputs of the checks' build that the image's own build does not have; empty without checks.

        A changed image is checked again too, whether these changed or not.
        """
        if self.content.checks is None:
            return {}
        files, own = self.content.checks.listing, self.content.listing
        return {
            "args": {name: value for name, value in self.checks_args.items() if self.args.get(name) != value},
            "files": {path: digest[:_SHOWN_DIGITS] for path, digest in files.items() if own.get(path) != digest},
        }


@dataclass(frozen=True)
class Plan:
    """A stack's configuration and its images, parents before children.

    ``gpu_checks`` are the scripts, by name, of the cluster's check of an image, if it has some. ``warnings`` say of the
    configuration, for each platform, what no table confirms.
    """

    stack: str
    config: StackConfig
    images: tuple[PlannedImage, ...]
    gpu_checks: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def signers(self) -> dict[str, SignerConfig]:
        """The signer of each parent from outside or of another stack that needs a signature, by its reference.

        It is the reference to pull, or the name that the other stack publishes. Its signer is the other stack's if
        both stacks sign, unless ``slipway:trust`` names one.
        """
        outside = {
            image.args[argument]: signer
            for image in self.images
            for argument, parent in image.content.parents.items()
            if isinstance(parent, Outside) and (signer := trusted(self.config.trust, parent.reference))
        }
        others = {
            name: signer
            for name, parent in self.others.items()
            if (signer := trusted(self.config.trust, name) or (_signer(parent) if self.config.signing else None))
        }
        return {**outside, **others}

    @property
    def others(self) -> dict[str, Elsewhere]:
        """The parents that other stacks publish, by their published names."""
        return {
            parent.published: parent
            for image in self.images
            for parent in image.content.parents.values()
            if isinstance(parent, Elsewhere)
        }

    def parent_annotations(self, name: str) -> Mapping[str, str]:
        """Return what the signature of another stack's parent must state, by the parent's published name.

        Another signer than that stack states nothing of ours; neither does one of an image from outside.
        """
        parent, signer = self.others.get(name), self.signers.get(name)
        publisher = _signer(parent) if parent else None
        return parent.annotations if parent and signer and publisher and signer.is_same(publisher) else {}

    @property
    def references(self) -> dict[str, str]:
        """The images' full names with tags, by the names under which they are published."""
        return {image.spec.published_name: image.index_reference or image.reference for image in self.images}

    @property
    def indexes(self) -> dict[str, list[PlannedImage]]:
        """The images of each index, one for each platform, by the name under which the index is published."""
        indexes: dict[str, list[PlannedImage]] = {}
        for image in self.images:
            if image.spec.is_part:
                indexes.setdefault(image.spec.published_name, []).append(image)
        return indexes

    def sources(self, image: PlannedImage) -> dict[str, str]:
        """Return the git sources of an image and of its products: each one's commit, by its URI as SLSA has them.

        The commit is empty where neither the lock nor the stack has all of it. What only the build knows is left out. A
        parent that is no product has a provenance of its own.
        """
        images = {each.spec.name: each for each in self.images}
        known = {name: commit for name, commit in image.content.sources.items() if "$" not in name}
        sources = {_uri(name, self.config.mirrors): commit or "" for name, commit in known.items()}
        for parent in (images[name] for name in image.siblings.values()):
            sources |= self.sources(parent) if parent.spec.product else {}
        return sources

    def recipe(self, image: PlannedImage) -> PlannedImage:
        """Return the flavor's image that one of the user's own stands on; another one as it is.

        On another stack's image, it is the user's own image above it.
        """
        images = {each.spec.name: each for each in self.images}
        while image.spec.own and "BASE_IMAGE" in image.siblings:
            image = images[image.siblings["BASE_IMAGE"]]
        return image

    def names_for(self, platform: str) -> list[str]:
        """Return the names under which the images for a platform are published."""
        return [image.spec.published_name for image in self.images if image.spec.platform == platform]

    def index_annotations(self, name: str) -> dict[str, str]:
        """Return what an index's signature states besides its digest."""
        images = self.indexes[name]
        parts = {image.spec.platform: image.fingerprint for image in images}
        return {"tag": images[0].index_tag or "", "fingerprint": index_fingerprint(parts)}

    def image(self, name: str | None = None, platform: str | None = None) -> PlannedImage:
        """Return an image by its name, or by that of its index and a platform.

        Without a name: the last image that is run, on top of the others.

        Raises SlipwayError: the stack builds no such image, not for that platform, or for several and none is given.
        """
        if name is None:
            last = next((image for image in reversed(self.images) if not image.spec.product), None)
            if last is None:
                raise SlipwayError(f"stack {self.stack} builds no image to run; choose a stack that does")
            name = last.spec.published_name
        images = self.select(name, platform)
        if len(images) > 1:
            platforms = " and ".join(image.spec.platform for image in images)
            raise SlipwayError(f"stack {self.stack}: {name} is for {platforms}: choose one with --platform")
        return images[0]

    def select(self, name: str | None = None, platform: str | None = None) -> list[PlannedImage]:
        """Return all images, or those of a name, which an index may have, and of a platform.

        Raises SlipwayError: there is none.
        """
        named = [image for image in self.images if name in {None, image.spec.name}] or self.indexes.get(name or "", [])
        if not named:
            raise SlipwayError(f"stack {self.stack} {builds_no(name or '', self._names)}")
        fitting = [image for image in named if platform in {None, image.spec.platform}]
        if not fitting:
            platforms = " and ".join(dict.fromkeys(image.spec.platform for image in named))
            raise SlipwayError(
                f"stack {self.stack}: {name or 'all of it'} is for {platforms}, not for {one_line(platform or '')}"
            )
        return fitting

    @property
    def _names(self) -> list[str]:
        """The names of all images and indexes."""
        return [*self.indexes, *(image.spec.name for image in self.images)]

    @property
    def _published(self) -> dict[str, dict[str, Any]]:
        """What is published under each name: its fingerprint, its tag's suffix, its repository, and the commit.

        The commit is the one in its tag, if it alone names it.
        """
        published = {}
        for image in (each for each in self.images if not each.spec.product):
            name, revision = image.spec.published_name, tags.parse(image.index_tag or image.tag)[0]
            fingerprint = self.index_annotations(name)["fingerprint"] if image.spec.is_part else image.fingerprint
            published[name] = {
                "fingerprint": fingerprint,
                "suffix": image.spec.suffix.render(),
                "repository": image.repository,
                "commit": None if revision.mark else revision.commit,
            }
        return published

    def contents_as_json(self) -> dict[str, Any]:
        """Return what ``slipway list --contents`` prints of the stack."""
        return {
            image.spec.name: {
                "fingerprint": image.fingerprint,
                "published": image.spec.published_name,
                "siblings": list(image.siblings.values()),
                "facts": image.content.facts,
            }
            for image in self.images
        }

    def as_json(self) -> dict[str, Any]:
        """Return what ``slipway show STACK --json`` prints."""
        return {
            "stack": self.stack,
            "published": self._published,
            "images": [
                {
                    "name": image.spec.name,
                    "tag": image.tag,
                    "context": image.spec.context,
                    "dockerfile": image.spec.path,
                    "target": image.spec.target,
                    "product": image.spec.product,
                    "platform": image.spec.platform,
                    "args": {key: value for key, value in image.args.items() if key not in image.spec.parents},
                    "parents": {key: {**image.args, **image.parents}[key] for key in image.content.parents},
                    "labels": dict(image.content.labels),
                    **({"index": image.index_reference} if image.index_reference else {}),
                }
                for image in self.images
            ],
        }


def _signer(parent: Elsewhere) -> SignerConfig | None:
    return SignerConfig.model_validate(parent.signer) if parent.signer else None


def _uri(source: str, mirrors: MirrorsConfig) -> str:
    """Return the URI of a git source: ``git+https://github.com/pytorch/vision@refs/tags/v0.15.2``."""
    repository, _, ref = source.partition(" ")
    return f"git+{lock.address(repository, mirrors)}@{ref if is_commit(ref) else f'refs/tags/{ref}'}"


def resolve(stack: str, root: Path = ROOT) -> tuple[StackConfig, list[ImageSpec]]:
    """Return the configuration and the specs of a stack that has a file, parents before children and locked.

    Raises SlipwayError: there is no such stack, or its configuration is wrong; one line for each mistake.
    """
    resolved = _graph(_file_values(stack, root), f"stack {stack}", root)
    return resolved.config, list(resolved.specs)


def specs(values: Mapping[str, Any], where: str, root: Path = ROOT) -> tuple[StackConfig, list[ImageSpec]]:
    """Return the configuration and the locked specs of a stack's values; ``where`` names the stack in errors.

    Raises SlipwayError: the configuration is wrong; one line for each mistake.
    """
    resolved = _graph(values, where, root)
    return resolved.config, list(resolved.specs)


def make(
    stack: str,
    values: Mapping[str, Any] | None = None,
    root: Path = ROOT,
    *,
    settings: Mapping[str, Any] | None = None,
    contents: CheckoutContents | None = None,
    search: bool = True,
) -> Plan:
    """Resolve a stack from its file, or from the ``values`` that Pulumi read from it.

    ``settings`` are the values of other namespaces that Pulumi read, by full key.

    The file is read in either case, because only its text shows a value that YAML would change. A caller with many
    plans passes ``contents``, which read each file of the checkout's context once. Without ``search``, no older tree is
    read: tags name the last commit, whichever commit the images come from.

    Raises SlipwayError: the stack does not exist, its configuration is wrong, a Dockerfile is missing, or a tag or the
    stack's own name is too long; one line for each mistake.
    """
    written = _file_values(stack, root)
    resolved = _graph(written if values is None else values, f"stack {stack}", root)
    settings = other_settings(stack, provider_settings.NAMESPACES, root) if settings is None else settings
    checks.run((partial(provider_settings.refusals, resolved.config),), settings, resolved.where)
    checks.run(checks.BUILD_RULES, resolved, resolved.where)
    contents = CheckoutContents(contexts(root)) if contents is None else contents
    images = _images(stack, resolved, contents, search=search)
    plan = Plan(stack, resolved.config, images, clusters.gpu_checks(resolved), resolved.warnings)
    checks.run((_movable,), plan, resolved.where)
    return plan


def _movable(plan: Plan) -> Iterator[str]:
    """Yield a message for each additional tag that would let an image's own tag move.

    ECR lets tags move by how they end, on any branch.
    """
    for image in plan.images if plan.config.registry.kind == "ecr" else ():
        for tag in plan.config.extra_tags:
            if image.extra_tags and image.tag.endswith(tag):
                yield (
                    f"slipway:extraTags: '{tag}': {image.spec.name}'s own tag, {image.tag}, ends the same, and could "
                    "move in ECR; choose another word, such as latest"
                )


def _file_values(stack: str, root: Path) -> dict[str, Any]:
    values = read_stack(stack, root)
    check_clear_text(values, f"stack {stack}")
    platforms.check_keys(values, f"stack {stack}")
    return values


def _graph(values: Mapping[str, Any], where: str, root: Path) -> Graph:
    resolved = graph.locked(values, where, root)
    checks.run(checks.GRAPH_RULES, resolved, where)
    return resolved


def _images(stack: str, resolved: Graph, contents: CheckoutContents, *, search: bool) -> tuple[PlannedImage, ...]:
    config, root = resolved.config, resolved.root
    others = _other_plans(resolved, contents, search=search)
    ordered = [_with_published(spec, others) for spec in resolved.specs]
    content_of = content.of_stack(ordered, contents)
    prints = fingerprints(content_of.values())
    run = published_fingerprints(content_of.values())
    files: dict[str, dict[str, str]] = {}
    suffixes: dict[str, str] = {}
    for each in content_of.values():
        suffixes[each.spec.published_name] = each.spec.suffix.render()
        files.setdefault(each.spec.published_name, {}).update(
            {f"{each.spec.context}/{path}": digest for path, digest in each.listing.items()}
        )
    specs = [*ordered, *(image.spec for other in others.values() for image in other.images)]
    contexts_of_own = (spec.context for spec in specs if spec.context != CONTEXT)  # of own images and own flavors
    listed = (own_images.lists(each) for each in (config, *(other.config for other in others.values())))
    own = tuple(dict.fromkeys((*contexts_of_own, *chain.from_iterable(listed))))
    repository = config.registry.repository
    revisions = (
        history.find(stack, run, suffixes, files, root, own, repository) if search else history.newest(run, root)
    )
    # A product is known by its content alone, so that stacks and branches with the same one share it. So is one
    # platform's part of an index, so that it stays if another platform changes.
    of_content = {spec.name: tags.Revision(mark=prints[spec.name][:8]) for spec in ordered}
    additional = extra_tags_of(stack, config, root)
    images: dict[str, PlannedImage] = {}
    for spec in ordered:
        image_content = content_of[spec.name]
        images[spec.name] = PlannedImage(
            content=image_content,
            repository=f"{repository}/{spec.published_name}",
            tag=_tag(stack, spec, (of_content if spec.product or spec.is_part else revisions)[spec.name]),
            index_tag=_tag(stack, spec, revisions[spec.published_name], index=True) if spec.is_part else None,
            args=_args(image_content, config),
            parents={argument: images[parent].reference for argument, parent in image_content.siblings.items()},
            fingerprint=prints[spec.name],
            # A product's only name is its content.
            extra_tags=() if spec.product else additional,
            checks_args=_args(image_content.checks, config) if image_content.checks else {},
        )
    return tuple(images.values())


def _other_plans(resolved: Graph, contents: CheckoutContents, *, search: bool) -> dict[str, Plan]:
    """Return the plans of the other stacks that a stack stands on, by name."""
    parents = (parent for spec in resolved.specs for parent in spec.parents.values())
    names = dict.fromkeys(parent.stack for parent in parents if isinstance(parent, Elsewhere))
    return {name: make(name, root=resolved.root, contents=contents, search=search) for name in names}


def _with_published(spec: ImageSpec, others: Mapping[str, Plan]) -> ImageSpec:
    """Return a spec with the names of its parents in the registries of other stacks."""
    published = {
        argument: (parent, others[parent.stack].image(parent.image))
        for argument, parent in spec.parents.items()
        if isinstance(parent, Elsewhere)
    }
    names = {
        argument: parent.model_copy(update={"published": image.reference, "annotations": image.annotations})
        for argument, (parent, image) in published.items()
    }
    return spec.model_copy(update={"parents": {**spec.parents, **names}}) if names else spec


def extra_tags_of(stack: str, config: StackConfig, root: Path = ROOT) -> tuple[str, ...]:
    """Return the additional tags of a stack's images. On a branch other than main they start with its name.

    Raises SlipwayError: a tag is too long with the branch's name.
    """
    branch = history.prefix(root) if config.extra_tags else None
    if branch is None:
        return config.extra_tags
    try:
        return tuple(tags.check_extra(f"{branch}-{tag}") for tag in config.extra_tags)
    except ValueError as error:
        raise SlipwayError(f"stack {stack}: slipway:extraTags: on the branch '{one_line(branch)}': {error}") from None


def _tag(stack: str, spec: ImageSpec, revision: tags.Revision, *, index: bool = False) -> str:
    """Return an image's own tag, or that of its index."""
    try:
        tag = tags.render(revision, spec.suffix)
        return tags.of_part(spec.platform, tag) if spec.is_part and not index else tag
    except SlipwayError as error:
        raise SlipwayError(f"stack {stack}: {spec.name}: {error}") from None


def _args(of: Content, config: StackConfig) -> dict[str, str]:
    """Return a build's arguments, without those of labels and of sibling parents."""
    mirrors = _mirror_args(config.mirrors, {**of.arguments, **of.args})
    return {**of.args, **of.read(of.spec.tuning), **_outside(of, config), **mirrors}


def _outside(of: Content, config: StackConfig) -> dict[str, str]:
    stated = config.mirrors.image_digests
    parents = {argument: parent for argument, parent in of.parents.items() if isinstance(parent, Outside)}
    others = {name: parent.published for name, parent in of.parents.items() if isinstance(parent, Elsewhere)}
    digests = {name: it.digest or stated.get(config.mirrors.image(it.reference)) for name, it in parents.items()}
    return others | {
        argument: "@".join(filter(None, (config.pulled(parent.reference), digests[argument])))
        for argument, parent in parents.items()
    }


def _mirror_args(mirrors: MirrorsConfig, declared: Mapping[str, str | None]) -> dict[str, str]:
    """Return a Dockerfile's arguments for mirrors. An address without a mirror stays public.

    ``declared`` maps the Dockerfile's arguments to their values without mirrors, None for no value.
    """
    args = {name: getattr(mirrors, field) for name, field in MIRROR_ARGS.items()}
    given = {name: value for name, value in args.items() if value and name in declared}
    return {**mirrored(declared, mirrors.downloads), **given}
