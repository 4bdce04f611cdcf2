"""``slipway lock``: digests of parents, commits of sources and hashes of Python packages, written to the lock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import filterfalse
from typing import Any, Final

from cli.locking import git_commits, python_packages, requirement_lists
from cli.locking.python_packages import NotLockable
from containers.errors import SlipwayError
from containers.image.registry_image import chosen
from containers.registry import client
from stacks import checks, graph, lock
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT, read_stack, stack_names
from stacks.config.values import is_commit
from stacks.graph import Graph
from stacks.identity import git_sources
from stacks.identity.content import CheckoutContents, contexts, of_stack
from stacks.spec import ImageSpec, Packages

_AT_ONCE: Final = 4
"""How many sets of Python packages are resolved at once; most of the time, uv waits for an index."""


class _Lookups:
    """What hosts are asked for: what the lock ``before`` lacks, or with ``upgrade`` everything.

    What a host does not say ends the lock, or with ``reachable`` is ``left`` as it was.
    """

    def __init__(self, before: Mapping[str, str], *, reachable: bool, upgrade: bool) -> None:
        self._before, self._reachable = before, reachable
        self.kept: Mapping[str, str] = {} if upgrade else before
        self.left: dict[str, str] = {}

    def ask(self, names: Sequence[str], look: Callable[[], str | Mapping[str, str | SlipwayError]]) -> dict[str, str]:
        """Return what is looked up of some entries of the lock: the value of one, or those of all in their order.

        One may be an error: the reason why its entry has no value. Entries that are kept are not asked for.

        Raises SlipwayError: it cannot be, and nothing may be left.
        """
        if self.kept.keys() >= set(names):
            return {name: self.kept[name] for name in names}
        values: Iterable[str | SlipwayError]
        try:
            result = look()
            values = [result] if isinstance(result, str) else result.values()
        except SlipwayError as error:
            values = [error] * len(names)
        known: dict[str, str] = {}
        for name, value in zip(names, values, strict=True):
            if isinstance(value, str):
                known[name] = value
                continue
            if not self._reachable:
                raise SlipwayError(f"{value}; `slipway lock --reachable` writes what can be had without it")
            self.left[name] = str(value)
            known |= {name: self._before[name]} if name in self._before else {}
        return known


def update(
    stacks: Sequence[str], *, upgrade: bool = False, refresh: bool = False, reachable: bool = False, added: bool = False
) -> Iterator[str]:
    """Write the lock for all stacks, or for those named; yield a line for each entry that was looked up.

    Locked entries stay: another stack's or image's needs move no tag. With ``upgrade`` or ``refresh``,
    all is looked up anew. With ``added``, it looks up only the Python packages that a stack adds to an image. The lock
    keeps all else: the parts of the image itself stay as they are, locked or not.

    Images whose Python packages cannot be locked are warned of on standard error, and all else is written. With
    ``reachable``, entries of a host that does not respond stay as they were, and are raised after the rest is written.

    Raises SlipwayError: a stack is wrong, or a git tag has moved since it was locked; then nothing is written. Or a
    registry, repository or index does not respond; then too, except with ``reachable``.
    """
    anew = upgrade or refresh
    graphs = [_graph(stack, added=added) for stack in stacks or stack_names()]
    references: set[str] = set()
    branches: set[tuple[str, str]] = set()
    for unlocked in graphs:
        for spec in unlocked.specs:
            references.update(lock.tagged_parents(spec, unlocked.config.mirrors).values())
            branches.update(lock.branches(spec, unlocked.config.mirrors).values())
    before = lock.read(ROOT)
    lookups = _Lookups(before, reachable=reachable, upgrade=anew)
    current: dict[str, str] = {}
    for name in sorted(references):
        current |= lookups.ask([name], partial(client.digest, name))
    for branch in sorted(branches):
        current |= lookups.ask([lock.branch_key(*branch)], partial(git_commits.of_branch, *branch))
    current |= {} if added else _source_commits(graphs, current, lookups)
    _check_moved(before, current)
    tables_before = lock.read_tables(ROOT)
    packages, warnings = _packages(graphs, current, tables_before.packages, reachable=reachable, upgrade=anew)
    tables = lock.Tables(packages, _platforms(graphs, current, lookups, tables_before.platforms))
    warnings += _newly_locked(graphs, references & current.keys() - before.keys())
    keeps = bool(stacks) or added
    date = datetime.now(UTC).date().isoformat() if refresh else lock.refresh_date(ROOT)
    merged = lock.Tables(*({**old, **new} for old, new in zip(tables_before, tables, strict=True)))
    lock.write(ROOT, {**(before if keeps else {}), **current}, date, merged if keeps else tables)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    changes = list(_changes(before, current, tables_before, tables, anew=anew))
    advice = "" if anew else "; `slipway lock --upgrade` takes what is newest now"
    yield from changes or [f"{lock.FILE}: nothing new to lock{advice}"]
    if lookups.left:
        lines = (f"{name} is left as it was: {reason}" for name, reason in lookups.left.items())
        raise SlipwayError("\n".join(lines))


def _newly_locked(graphs: Iterable[Graph], parents: Iterable[str]) -> Iterator[str]:
    """Yield a line for parents that are locked for the first time, if a stack adds packages."""
    names = ", ".join(sorted(parents))
    if names and any(spec.own for each in graphs for spec in each.specs):
        yield (
            f"{names}: locked for the first time: what stands on it is built anew, in all stacks; "
            "`slipway lock --packages` locks added packages alone"
        )


def _changes(
    before: Mapping[str, str],
    current: Mapping[str, str],
    tables_before: lock.Tables,
    tables: lock.Tables,
    *,
    anew: bool,
) -> Iterator[str]:
    """Yield a line for each entry that was looked up: with ``anew``, for all."""

    def told(entries: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in entries.items() if anew or kept.get(name) != value}

    for name, digest in told(current, before).items():
        old = before.get(name)
        yield f"{name}: {digest}" if old in {None, digest} else f"{name}: {old} -> {digest}"
    for name, files in told(tables.packages, tables_before.packages).items():
        new = len(files.keys() - tables_before.packages.get(name, files).keys())
        asked = name.partition(" onto ")[0]  # without what is below it, which has a line of its own
        count = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
        yield f"{asked}: {count}{f', {new} of them new' if new else ''}"
    for name, digests in told(tables.platforms, tables_before.platforms).items():
        yield from (f"{name}: {platform}: {digest}" for platform, digest in digests.items())


def _platforms(
    graphs: Iterable[Graph], locked: Mapping[str, str], lookups: _Lookups, before: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Return the digests of the parents' images for each platform of the stacks for several, by index.

    Raises SlipwayError: a parent is no index, or has no image for a platform.
    """
    platforms: dict[str, set[str]] = {}
    for unlocked in graphs:
        for spec in unlocked.specs:
            for name in lock.platform_parents(spec, unlocked.config).values():
                platforms.setdefault(name, set()).add(spec.platform)
    digests: dict[str, Mapping[str, str]] = {}
    for name, of in sorted(platforms.items()):
        if name not in locked:  # its registry did not respond
            continue
        key = lock.index_key(name, locked[name])
        if name in lookups.left or (name in lookups.kept and before.get(key, {}).keys() >= of):
            digests |= {key: before[key]} if key in before else {}
            continue
        manifest = client.Repository(key).manifest()
        if manifest.media_type not in client.INDEXES:
            raise SlipwayError(
                f"{name}: one image for one platform, where the stack builds for {' and '.join(sorted(of))}; "
                "take a parent that has them, or make a stack for each platform"
            )
        digests[key] = {platform: chosen(key, manifest.content, platform) for platform in sorted(of)}
    return digests


def _packages(
    graphs: Iterable[Graph],
    locked: Mapping[str, str],
    before: Mapping[str, Mapping[str, str]],
    *,
    reachable: bool = False,
    upgrade: bool = False,
) -> tuple[dict[str, Mapping[str, str]], list[str]]:
    """Return the files that list the Python packages of all images, by their names in the lock.

    Those that the lock ``before`` has stay as they are. With ``upgrade``, those of a product do: with others, it would
    be compiled anew. So do those that cannot be locked now. With ``reachable``, so do those of an index or repository
    without a response. Without an entry there, they are left out. A line says so for each. ``locked`` has the commits
    of git tags.

    Raises SlipwayError: an index or a repository does not respond, or a list of requirements in a source is refused.
    """
    images, users = _installing(graphs)
    kept = {
        key: before[key] for key, (_, spec, _) in images.items() if before.get(key) and (spec.product or not upgrade)
    }
    sources = {  # images of one torch have one list
        (packages.listed, mirrors.git): mirrors for key, (packages, _, mirrors) in images.items() if key not in kept
    }

    def resolved(key: str) -> Mapping[str, str] | NotLockable:
        packages, spec, mirrors = images[key]
        if key in kept:
            return kept[key]
        listed = lists[packages.listed, mirrors.git]
        if isinstance(listed, NotLockable):
            return listed
        try:
            below = _below(packages, spec, mirrors, before, images.keys() - kept.keys())
            return python_packages.files(packages, spec.platform, mirrors, listed, below)
        except leaves as error:
            if packages.onto and isinstance(error, NotLockable):  # the user asks for it, and it never can be
                raise SlipwayError("\n".join(f"{user}: {error}" for user in dict.fromkeys(users[key]))) from None
            return NotLockable(error)

    def listed_in(source: tuple[str, str | None]) -> Mapping[str, bytes] | NotLockable:
        try:
            return requirement_lists.read(source[0], sources[source], locked)
        except leaves as error:
            return NotLockable(error)

    leaves = SlipwayError if reachable else NotLockable

    entries: dict[str, Mapping[str, str]] = {}
    warnings = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        lists = dict(zip(sources, pool.map(listed_in, sources), strict=True))
        try:
            resolutions = [*pool.map(resolved, sorted(images))]
        except KeyboardInterrupt:
            python_packages.end_programs()  # a slow index may keep them for hours
            raise
        for key, files in zip(sorted(images), resolutions, strict=True):
            if not isinstance(files, NotLockable):
                entries[key] = files
                continue
            former = before.get(key)
            entries |= {key: former} if former else {}
            effect = (
                "the lock keeps the Python packages that it had"
                if former
                else "no Python packages in the lock, so built as without one, and `slipway check --locked` refuses it"
            )
            warnings.append(f"{', '.join(dict.fromkeys(users[key]))}: {effect}: {files}")
    return entries, warnings


def _below(
    packages: Packages,
    spec: ImageSpec,
    mirrors: MirrorsConfig,
    before: Mapping[str, Mapping[str, str]],
    anew: Collection[str],
) -> Iterator[str]:
    """Yield the files in the lock ``before`` of the images below one, but of those that are resolved ``anew``."""
    while packages.onto:
        packages = packages.onto
        key = lock.packages_key(packages, spec.platform, mirrors)
        yield from before.get(key, ()) if key not in anew else ()


def _installing(
    graphs: Iterable[Graph],
) -> tuple[dict[str, tuple[Packages, ImageSpec, MirrorsConfig]], dict[str, list[str]]]:
    """Return an image for each list of Python packages, by its name in the lock, and where each list is used."""
    images: dict[str, tuple[Packages, ImageSpec, MirrorsConfig]] = {}
    users: dict[str, list[str]] = {}
    for unlocked in graphs:
        mirrors = unlocked.config.mirrors
        for spec in unlocked.specs:
            if spec.packages and spec.packages.requirements:
                key = lock.packages_key(spec.packages, spec.platform, mirrors)
                images[key] = spec.packages, spec, mirrors
                users.setdefault(key, []).append(f"{unlocked.where}: {spec.name}")
    return images, users


def _graph(stack: str, *, added: bool = False) -> Graph:
    """Return what a stack builds; with ``added``, the images alone that no flavor has."""
    unlocked = graph.unlocked(read_stack(stack), f"stack {stack}")
    checks.run(checks.GRAPH_RULES, unlocked, unlocked.where)
    return replace(unlocked, specs=tuple(spec for spec in unlocked.specs if spec.own or not added))


def _source_commits(graphs: Iterable[Graph], locked: Mapping[str, str], lookups: _Lookups) -> dict[str, str]:
    """Return the commit of each git tag and short commit that images are built from, by its name in the lock.

    ``locked`` has the commits of branches, which are built in place of a tag.
    """
    contents = CheckoutContents(contexts(ROOT))
    tags: dict[str, set[str]] = {}
    commits: dict[str, str] = {}
    for unlocked in graphs:
        mirrors = unlocked.config.mirrors
        if any(
            lock.branch_key(*branch) not in locked
            for spec in unlocked.specs
            for branch in lock.branches(spec, mirrors).values()
        ):
            continue  # its host did not respond
        for content in of_stack(lock.pinned(unlocked.specs, unlocked.config, locked), contents).values():
            for source in filterfalse(git_sources.own_commit, content.sources):
                key = lock.source_key(source, mirrors)
                repository, _, ref = source.partition(" ")
                if not is_commit(ref):
                    address, _, name = key.partition("#")
                    tags.setdefault(address, set()).add(name)
                elif key not in commits:
                    commits |= lookups.ask([key], partial(git_commits.of_short, repository, ref, mirrors))
    of_tags: dict[str, str] = {}
    for address, refs in sorted(tags.items()):
        of_tags |= _tag_commits(address, sorted(refs), lookups)
    return of_tags | commits


def _tag_commits(address: str, refs: Iterable[str], lookups: _Lookups) -> dict[str, str]:
    """Return the commits of tags by their names in the lock. The repository is asked for new ones alone."""
    names = {f"{address}#{ref}": ref for ref in refs}
    new = {name: ref for name, ref in names.items() if name not in lookups.kept}
    asked = lookups.ask([*new], partial(git_commits.of_tags, address, [*new.values()]))
    return {name: lookups.kept[name] for name in names.keys() - new.keys()} | asked


def _check_moved(before: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Refuse git tags and short commits that name another commit than the lock: neither moves.

    Raises SlipwayError: one line for each.
    """
    moved = [
        f"{name} was moved from {before[name]}, which the lock has, to {commit}: find out why; "
        f"to take the new commit, delete its line in stacks/lock.toml and run `slipway lock`"
        for name, commit in current.items()
        if lock.is_fixed(name) and before.get(name, commit) != commit
    ]
    if moved:
        raise SlipwayError("\n".join(moved))
