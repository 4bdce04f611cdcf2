"""Rules over all stacks: two must not give one tag to different images, own one repository, or have the same runners.

A tag names the choices of an image's users, not all of its content: versions of extras, compute capabilities, Python,
the origin of torch and added variables are not in it. Within a stack the revision tells such images apart; two stacks
that one commit changes have the same revision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, product, starmap
from typing import NamedTuple

from containers.errors import abridged, one_line, quoted
from containers.registry.reference import Reference
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_config import Runners, StackConfig
from stacks.spec import ImageSpec, Outside, Sibling

_MOST = 3
"""Differences in a line; one is enough to see why."""
_DIGITS = 12
"""Hexadecimal digits that stand for locked files in a line."""


class StackImages(NamedTuple):
    """A stack's images: its name, the prefix of its images' names, and its specs."""

    stack: str
    repository: str
    specs: Sequence[ImageSpec]


def collisions(stacks: Iterable[StackImages]) -> list[str]:
    """Return one line for each pair of stacks whose images could have equal names and tags but different contents.

    Products do not count, as their tags identify their content.
    """
    lines = []
    for (first, ours), (second, theirs) in combinations([(stack, _contents(stack)) for stack in stacks], 2):
        keys = [key for key in ours if key in theirs and ours[key] != theirs[key]]
        if keys:
            names = ", ".join(name for _, name, _ in keys)
            lines.append(
                f"stacks {first.stack} and {second.stack}: {names} would have equal tags in {first.repository} but "
                f"differ in {_differences([(ours[key], theirs[key]) for key in keys])}; set slipway:tagSuffix in one "
                f"of them{_one_stack(first, second)}"
            )
    return lines


def shared_tags(stacks: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one line for each pair of stacks that move the same tag; ``stacks`` maps each to its full references."""
    return [
        f"stacks {first} and {second}: both move the tag {min(ours & theirs)}; take it out of slipway:extraTags in one "
        "of them, or give that another repository"
        for (first, ours), (second, theirs) in combinations(stacks.items(), 2)
        if ours & theirs
    ]


def shared_repositories(stacks: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one line for each pair of stacks that create the same repository; ``stacks`` has those of each."""
    lines = []
    for (first, ours), (second, theirs) in combinations(stacks.items(), 2):
        if shared := sorted(ours & theirs):
            lines.append(
                f"stacks {first} and {second}: both create the repository {abridged(shared)}; say "
                "slipway:registry.create: false in one of them, or give it another repository"
            )
    return lines


def shared_runners(stacks: Mapping[str, StackConfig]) -> list[str]:
    """Return one line for each pair of stacks with the same runners at GitHub, or in one cluster."""
    pairs = combinations(((name, config) for name, config in stacks.items() if config.runners), 2)
    return [
        f"stacks {first} and {second}: {conflict}"
        for (first, ours), (second, theirs) in pairs
        if (conflict := _conflict((first, ours), (second, theirs)))
    ]


def _conflict(first: tuple[str, StackConfig], second: tuple[str, StackConfig]) -> str | None:
    """Return why the runners of two stacks cannot both be; None where they can. GitHub ignores case in all names."""
    (stack, ours), (its_stack, theirs) = first, second
    one, other = ours.runners, theirs.runners
    # A cluster names a runner group, and EC2 has its id.
    by_group = type(one) is type(other)
    if names := sorted(_scale_sets(stack, one, by_group=by_group) & _scale_sets(its_stack, other, by_group=by_group)):
        url, _, name = names[0]
        key = "sets" if one and other and one.sets and other.sets else "namespace"
        return (
            f"both have the runner scale set {name} of {url}, which has one listener; set slipway:runners.{key} in "
            "one of them"
        )
    if taken := _label_of_a_set(first, second) or _label_of_a_set(second, first):
        return taken
    if isinstance(one, KubernetesRunnersConfig) and isinstance(other, KubernetesRunnersConfig):
        return _one_namespace(one, other)
    if isinstance(one, Ec2RunnersConfig) and isinstance(other, Ec2RunnersConfig):
        return next(filter(None, starmap(_one_job, product(_served(ours), _served(theirs)))), None)
    return None


def _label_of_a_set(first: tuple[str, StackConfig], second: tuple[str, StackConfig]) -> str | None:
    """Return why the second stack takes jobs that name a scale set of the first; None where it does not."""
    (stack, ours), (its_stack, theirs) = first, second
    names = _scale_sets(stack, ours.runners, by_group=False)
    for own in theirs.runners.all_sets if theirs.runners else ():
        for url, _, name in sorted(names):
            if name in set(map(str.lower, own.labels)) and _overlap(url, own.github.url):
                return (
                    f"jobs that choose the scale set {name} of {stack} by its name may get runners of {its_stack}, "
                    f"which have it as a label: set other slipway:runners.{own.key('labels')} there, or, if both "
                    "are to take them, have jobs choose a label that both have"
                )
    return None


def _overlap(one: str, other: str) -> bool:
    """Return whether two addresses have jobs in common: an organization's runners take those of its repositories."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return f"{long}/".startswith(f"{short}/")


def _one_namespace(one: KubernetesRunnersConfig, other: KubernetesRunnersConfig) -> str | None:
    """Return why two stacks would have one namespace; None where it differs, or the clusters do.

    A stack without a context is in any cluster, for all that is known.
    """
    known = ((one.context, other.context), (one.kubeconfig, other.kubeconfig))
    if one.namespace != other.namespace or any(ours and theirs and ours != theirs for ours, theirs in known):
        return None
    if one.context and other.context:
        return (
            f"both create the namespace {one.namespace} in the cluster of the context '{one_line(one.context)}'; "
            "set slipway:runners.namespace in one of them"
        )
    return (
        f"both create the namespace {one.namespace}, and may be in one cluster; set slipway:runners.namespace in one "
        "of them, or slipway:runners.context in both"
    )


_Served = tuple[Ec2RunnersConfig, AbstractSet[str], str]


def _served(config: StackConfig) -> list[_Served]:
    """Return the sets of runners on EC2: each with its labels, and its platform if that keeps sets apart."""
    runners = config.runners
    sets = runners.all_sets if isinstance(runners, Ec2RunnersConfig) else ()
    return [
        (own, {own.scale_set, *map(str.lower, own.labels)}, config.platform if own.github.webhook_secret else "")
        for own in sets
    ]


def _one_job(ours: _Served, theirs: _Served) -> str | None:
    """Return why two sets of runners would both serve one job; None where they do not."""
    (one, labels, platform), (other, others, its_platform) = ours, theirs
    apart = platform and its_platform and platform != its_platform
    if labels == others and not apart and _overlap(one.github.url, other.github.url):
        named = ", ".join([one.scale_set, *one.labels] if one.scale_set else one.labels)
        return (
            f"both serve each job of {one.github.url} with the labels {named}; set "
            f"other slipway:runners.{'sets' if one.scale_set else 'labels'} in one of them, or, if both are to serve "
            "them, add a label to one"
        )
    return None


def _scale_sets(stack: str, runners: Runners | None, *, by_group: bool) -> set[tuple[str, str, str]]:
    """Return the scale sets of runners: the address at GitHub, the group if asked for, and the name of each."""
    if isinstance(runners, Ec2RunnersConfig) and not runners.listens:
        return set()
    return {
        (own.github.url.lower(), str(own.group).lower() * by_group, own.scale_set or f"slipway-{stack}".lower())
        for own in (runners.all_sets if runners else ())
    }


def _contents(built: StackImages) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return what decides each image's content, by repository, name and suffix: its reference without the revision.

    A repository may be spelled in several ways.
    """
    repository = Reference(built.repository).normal.repository
    by_name = {spec.name: spec for spec in built.specs}
    contents: dict[tuple[str, str, str], dict[str, str]] = {}
    for spec in built.specs:
        if not spec.product:
            content = contents.setdefault((repository, spec.published_name, spec.suffix.render()), {})
            for key, value in _content(spec, by_name).items():
                # One tag names the images of all platforms.
                values = dict.fromkeys([*filter(None, [content.get(key)]), value])
                content[key] = ", ".join(values)
    return contents


def _content(spec: ImageSpec, by_name: Mapping[str, ImageSpec]) -> dict[str, str]:
    name = spec.published_name
    inputs = {"platform": spec.platform, "dockerfile": spec.path, "target": spec.target or "", **spec.args}
    inputs |= {f"environment.{variable}": value for variable, value in spec.environment.items()}
    if spec.packages and (files := spec.packages.files):  # another index may have other files
        inputs["packages"] = hashlib.sha256(" ".join(sorted(set(files.values()))).encode()).hexdigest()[:_DIGITS]
    content = {f"{name} {key}": value for key, value in inputs.items()}
    for argument, parent in spec.parents.items():
        if isinstance(parent, Sibling):
            sibling = by_name[parent.image]
            content |= {f"{name} {argument}": sibling.published_name, **_content(sibling, by_name)}
        else:
            digest = parent.digest if isinstance(parent, Outside) else None
            content[f"{name} {argument}"] = "@".join(filter(None, (parent.reference, digest)))
    return content | {f"{name} {label}": value for label, value in spec.labels.items()}


def _one_stack(first: StackImages, second: StackImages) -> str:
    """Return advice for two stacks of different platforms: one stack can have both."""
    platforms = [sorted({spec.platform for spec in built.specs if not spec.product}) for built in (first, second)]
    both = ", ".join(dict.fromkeys([*platforms[0], *platforms[1]]))
    return f", or make one stack with slipway:platforms: [{both}]" if platforms[0] != platforms[1] else ""


def _differences(pairs: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]) -> str:
    """Return the first places where contents differ; an argument that goes to many images counts once."""
    differing: dict[tuple[str, str], str] = {}
    for first, second in pairs:
        for key in {**first, **second}:
            if first.get(key) != second.get(key):
                values = f"{quoted(first.get(key))} and {quoted(second.get(key))}"
                differing.setdefault((key.rpartition(" ")[2], values), f"{key} ({values})")
    return ", ".join(list(differing.values())[:_MOST])
