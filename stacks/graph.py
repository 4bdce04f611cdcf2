"""A stack's configuration and the specs of its images: the first half of the way to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks import flavors, lock, platforms
from stacks.config.publishing.compression import ZstdConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT, read_stack
from stacks.flavors import own_images
from stacks.flavors.own_images import OtherStack, StackCycle
from stacks.spec import Elsewhere, ImageSpec, Outside, parents_first


@dataclass(frozen=True)
class Graph:
    """A stack's configuration and specs, parents before children.

    ``where`` names the stack in errors, and ``root`` is the checkout. ``warnings`` are those of all its platforms.
    """

    where: str
    config: StackConfig
    specs: tuple[ImageSpec, ...]
    root: Path
    warnings: tuple[str, ...]

    @property
    def images(self) -> list[str]:
        """The published names of the images that are run, without build products."""
        return list(dict.fromkeys(spec.published_name for spec in self.specs if not spec.product))

    @property
    def flavors(self) -> set[str]:
        """The flavors that make its images: the stack's, and those of the stacks that these stand on."""
        others = [parent for spec in self.specs for parent in spec.parents.values() if isinstance(parent, Elsewhere)]
        for parent in others:  # grows: a stack may stand on one that stands on another
            others += [each for spec in parent.specs for each in spec.parents.values() if isinstance(each, Elsewhere)]
        return {self.config.flavor, *(str(read_stack(parent.stack, self.root)["flavor"]) for parent in others)}

    @property
    def outside_parents(self) -> list[Outside]:
        """The parents that others publish."""
        return [parent for spec in self.specs for parent in spec.parents.values() if isinstance(parent, Outside)]


def unlocked(values: Mapping[str, Any], where: str, root: Path = ROOT, above: tuple[str, ...] = ()) -> Graph:
    """Return the graph of a stack's values, without the lock.

    ``above`` are the stacks whose images stand on this one's, the nearest last.

    Raises SlipwayError: the configuration is wrong; one line for each mistake, starting with ``where``.
    """
    if values.get("platforms"):  # a program gets the default of the other key from Pulumi
        values = {key: value for key, value in values.items() if key != "platform"}
    config = flavors.load(values, where)
    configs: dict[str, StackConfig] = {config.platform: config}
    configs |= {
        platform: flavors.load({**values, "platform": platform}, f"{where}: {platform}")
        for platform in config.platforms
        if platform != config.platform
    }
    warnings = dict.fromkeys(line for own in configs.values() for line in own.warnings)
    return Graph(where, config, tuple(_specs(configs, where, root, above)), root, tuple(warnings))


def _other(stack: str, root: Path, above: tuple[str, ...]) -> OtherStack:
    """Return another stack, which images of this one stand on."""
    if stack in above:
        names = " on ".join([*above[above.index(stack) :], stack])
        raise StackCycle(f"slipway:images: {names}: a stack cannot stand on itself: change one `on`")
    other = unlocked(read_stack(stack, root), f"stack {stack}", root, (*above, stack))
    return OtherStack(other.config, other.specs)


def _specs(configs: Mapping[str, StackConfig], where: str, root: Path, above: tuple[str, ...]) -> list[ImageSpec]:
    """Return a stack's specs by its configuration for each platform; the flavor says what it builds for one."""
    first, *others = configs.values()

    def images(config: StackConfig) -> list[ImageSpec]:
        specs = own_images.extended(config, flavors.images(config), root, partial(_other, root=root, above=above))
        return [_compressed(spec, config) for spec in specs]

    try:
        if not others:
            return images(first)
        return platforms.merged({platform: images(own) for platform, own in configs.items()})
    except SlipwayError as error:
        if above and isinstance(error, StackCycle):
            raise  # it names all of its stacks
        raise SlipwayError("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from None


def _compressed(spec: ImageSpec, config: StackConfig) -> ImageSpec:
    """Return a spec with the compression of its layers in its tag, unless that is every engine's own."""
    if spec.product or not isinstance(config.compression, ZstdConfig):
        return spec
    suffix = spec.suffix.model_copy(update={"zstd": str(config.compression.level)})
    return spec.model_copy(update={"suffix": suffix})


def locked(values: Mapping[str, Any], where: str, root: Path = ROOT) -> Graph:
    """Return the graph of a stack's values, with the digests, commits and the date of the lock.

    Raises SlipwayError: see :func:`unlocked`; or the lock lacks the commit of a branch.
    """
    graph = unlocked(values, where, root)
    try:
        tables = lock.read_tables(root)
        other = cache(lambda stack: locked(read_stack(stack, root), f"stack {stack}", root).specs)
        specs = [_with_others(spec, other) for spec in graph.specs]
        digests = {**lock.read(root), **_stated(values)}
        ordered = parents_first(lock.pinned(specs, graph.config, digests, tables))
        return replace(graph, specs=tuple(lock.with_refresh_date(ordered, lock.refresh_date(root))))
    except SlipwayError as error:
        raise SlipwayError(f"{where}: {error}") from None


def _stated(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests that a stack states for images on its mirrors, by qualified reference.

    They count before the lock, which has a tag's digest. The environment's are the machine's, as its mirrors are: they
    decide what is pulled there, and no identity.
    """
    digests = (values.get("mirrors") or {}).get("imageDigests") or {}
    return {str(Reference.of(name).in_full): digest for name, digest in digests.items()}


def _with_others(spec: ImageSpec, other: Callable[[str], tuple[ImageSpec, ...]]) -> ImageSpec:
    """Return a spec with the locked images of the other stacks that it stands on; ``other`` returns those of one."""
    others = {argument: parent for argument, parent in spec.parents.items() if isinstance(parent, Elsewhere)}
    if not others:
        return spec
    known = {argument: parent.model_copy(update={"specs": other(parent.stack)}) for argument, parent in others.items()}
    return spec.model_copy(update={"parents": {**spec.parents, **known}})
