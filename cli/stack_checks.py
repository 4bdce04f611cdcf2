"""``slipway check``: each stack, and conflicts between stacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from containers.errors import SlipwayError, one_line
from stacks import flavors, lock, plan
from stacks.checks.collisions import StackImages, collisions, shared_repositories, shared_runners, shared_tags
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT, misnamed, stack_names
from stacks.config.values import is_commit
from stacks.identity import pip_packages
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.spec import Outside, Sibling

_WHEELS: Final = "the hash of each wheel that pip installs"


def report(planned: plan.Plan) -> None:
    """Print the line of a valid stack, and its warnings on standard error."""
    for warning in planned.warnings:
        print(f"warning: {planned.stack}: {warning}", file=sys.stderr)
    print(_summary(planned))


def check(locked: Collection[str] = (), each: Callable[[plan.Plan], None] = report) -> list[str]:
    """Call ``each`` with every valid stack; return the mistakes, each once.

    A misnamed file is a mistake, and a flavor that cannot be loaded.
    So is a parent, or a build product, that an image's Dockerfile does not read.
    In the ``locked`` stacks, what the lock does not pin is a mistake too.
    """
    built, mistakes = [], [*misnamed(), *flavors.broken()]
    owned: dict[str, frozenset[str]] = {}
    tagged: dict[str, frozenset[str]] = {}
    configs: dict[str, StackConfig] = {}
    contents = CheckoutContents(contexts(ROOT))
    for name in stack_names():
        try:
            # The history of an image decides its tag's commit, and no mistake.
            planned = plan.make(name, contents=contents, search=False)
        except SlipwayError as error:
            mistakes.append(str(error))
            continue
        mistakes += (f"stack {name}: {line}" for image in planned.images for line in _unread(image.content))
        if name in locked:
            mistakes += _unpinned(planned)
        specs = [image.spec for image in planned.images]
        configs[name] = planned.config
        built.append(StackImages(name, planned.config.registry.repository, specs))
        if planned.config.publish:
            owned[name] = planned.config.registry.created_repositories(spec.published_name for spec in specs)
            tagged[name] = frozenset(
                f"{image.repository}:{tag}" for image in planned.images for tag in image.extra_tags
            )
        each(planned)
    mistakes += collisions(built) + shared_repositories(owned) + shared_tags(tagged) + shared_runners(configs)
    return _once(mistakes)


def _once(mistakes: Iterable[str]) -> list[str]:
    """Return mistakes without those that another one says.

    One of the branch is one of every stack, and one of a stack is one of each stack on top. That of a broken flavor is
    the selecting stack's.
    """
    lines = list(dict.fromkeys(mistakes))
    roots = [line for line in lines if line.startswith("stack ")]
    lines = [line for line in lines if not any(line != root and line.endswith(root) for root in roots)]
    return [line for line in lines if not any(line != other and other.endswith(line) for other in lines)]


def as_json(planned: plan.Plan) -> dict[str, Any]:
    """Return what is said of a valid stack as JSON; ``runnersPerNode`` has what a node has room for, by scale set."""
    runners = planned.config.cluster_runners
    sets = runners.all_sets if runners else ()
    products, images = _counts(planned)
    return {
        "stack": planned.stack,
        "images": images,
        "products": products,
        "platforms": [*planned.config.every_platform],
        "runnersPerNode": {own.scale_set: own.per_node for own in sets if own.per_node},
        "warnings": [*planned.warnings],
    }


def _counts(planned: plan.Plan) -> tuple[int, int]:
    """Return how many build products and images a stack has."""
    products = [image.spec for image in planned.images if image.spec.product]
    return len(products), len(planned.references) - len({spec.published_name for spec in products})


def _summary(planned: plan.Plan) -> str:
    """Return the line of a valid stack: its images, their platforms and products, and the runners of a node."""
    products, images = _counts(planned)
    platforms = f" for {len(planned.config.platforms)} platforms" if planned.indexes else ""
    source = f" from {products} build products" if products else ""
    room = _room(planned.config.cluster_runners) if planned.config.cluster_runners else ""
    return f"{planned.stack}: {images} image{'' if images == 1 else 's'}{platforms}{source}{room}, ok"


def _room(runners: KubernetesRunnersConfig) -> str:
    """Return how many runners, of each set, a node has room for; nothing of nodes that differ."""
    if runners.sets:
        rooms = [f"{own.per_node} of {own.scale_set}" for own in runners.all_sets if own.per_node]
        return f", runners a node: {', '.join(rooms)}" if rooms else ""
    most = runners.per_node
    return f", {most} runner{'' if most == 1 else 's'} a node" if most else ""


def _unread(content: Content) -> Iterator[str]:
    """Yield a line for each parent of an image that its build would leave out."""
    for argument, parent in content.spec.parents.items():
        if argument not in content.parents:
            what = parent.image if isinstance(parent, Sibling) else one_line(parent.reference)
            yield (
                f"{content.spec.name}: {content.spec.path} does not read {argument}, which names "
                f"{what}; declare the argument, and take a stage from it"
            )


def unlocked(planned: plan.Plan) -> dict[str, list[str]]:
    """Return the images by each thing that they fetch and the lock lacks."""
    users: dict[str, list[str]] = {}
    for content in (image.content for image in planned.images):
        things = (*_parents(content), *_sources(content), *_packages(content), *_platforms(content, planned.config))
        for thing in things:
            users.setdefault(thing, []).append(content.spec.name)
    return users


def _unpinned(planned: plan.Plan) -> list[str]:
    """Return a line for each thing that a stack's images fetch and the lock does not pin."""
    stack, everything = planned.stack, [image.content for image in planned.images]
    added = {content.spec.name for content in everything if content.spec.own}
    lines = [
        f"stack {stack}: {thing} is not in stacks/lock.toml ({', '.join(names)}): "
        f"run `slipway lock {'--packages ' if thing == _WHEELS and added.issuperset(names) else ''}{stack}`"
        for thing, names in unlocked(planned).items()
    ]
    lines += [
        f"stack {stack}: {line}, which the lock cannot have: "
        "make an image a parent, by an argument, or write a digest or checksum"
        for content in everything
        for line in _outside(content)
    ]
    if unknown := [content.spec.name for content in everything if _installs(content) and not content.spec.packages]:
        lines.append(
            f"stack {stack}: what pip installs ({', '.join(unknown)}) is not known before the build, and the lock "
            "cannot have it; docs/guides/parents-and-mirrors.md says what it can have; of an extra, [<extra>.packages] "
            "in stacks/versions/extras.toml says it"
        )
    return lines


def _outside(content: Content) -> Iterator[str]:
    for each in (content, content.checks):
        for name in sorted(each.outside) if each else ():
            yield f"{content.spec.path} fetches '{one_line(name)}' itself ({content.spec.name})"


def _parents(content: Content) -> Iterator[str]:
    for parent in content.parents.values():
        if isinstance(parent, Outside) and not parent.digest and "@" not in parent.reference:
            yield f"the digest of the parent {one_line(parent.reference)}"


def _platforms(content: Content, config: StackConfig) -> Iterator[str]:
    indexes = lock.read(ROOT)
    for argument, name in lock.platform_parents(content.spec, config).items():
        parent = content.parents.get(argument)
        if isinstance(parent, Outside) and parent.digest and parent.digest == indexes.get(name):
            yield f"the digest of the parent {one_line(parent.reference)} for {content.spec.platform}"


def _sources(content: Content) -> Iterator[str]:
    for source, commit in content.sources.items():
        repository, _, tag = source.partition(" ")
        if commit is None:
            what = "all of the commit" if is_commit(tag) else "the commit of the tag"
            yield f"{what} '{one_line(tag)}' of {one_line(repository)}"


def _packages(content: Content) -> Iterator[str]:
    if (
        content.spec.packages
        and content.spec.packages.requirements
        and _installs(content)
        and pip_packages.SCRIPT not in content.prologues
    ):
        yield _WHEELS


def _installs(content: Content) -> bool:
    """Return whether a build has a pip step that reaches an index."""
    return pip_packages.INDEX_ARG in content.arguments
