"""``slipway lock``: digests of parents, commits of sources and hashes of Python packages, written to the lock."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import filterfalse
from typing import Final

from cli.locking import git_commits, python_packages, requirement_lists
from cli.locking.python_packages import NotLockable
from oci import client
from oci.registry_image import chosen
from stacks import checks, graph, lock
from stacks.config.fetching.mirrors import Mirrors
from stacks.config.stack_file import ROOT, read_stack, stack_names
from stacks.errors import SlipwayError
from stacks.graph import Graph
from stacks.identity.content import Contents, of_stack
from stacks.identity.context import Folder
from stacks.identity.dockerfile import git_sources
from stacks.spec import CONTEXT, ImageSpec, Packages

_AT_ONCE: Final = 4
"""How many sets of Python packages are resolved at once; most of the time, uv waits for an index."""


def update(stacks: Sequence[str], *, refresh: bool) -> Iterator[str]:
    """Write the lock for all stacks, or for those named; yield a line for each entry that was looked up.

    Images whose Python packages cannot be locked are warned of on standard error, and all else is written.

    Raises:
        SlipwayError: a stack is wrong, a registry, repository or index does not respond, or a git tag has moved since
            it was locked; then nothing is written.
    """
    graphs = [_graph(stack) for stack in stacks or stack_names()]
    references: set[str] = set()
    branches: set[tuple[str, str]] = set()
    for unlocked in graphs:
        for spec in unlocked.specs:
            references.update(lock.tagged_parents(spec, unlocked.config.mirrors).values())
            branches.update(lock.branches(spec, unlocked.config.mirrors).values())
    before = lock.read(ROOT)
    current = {name: client.digest(name) for name in sorted(references)}
    current |= {lock.branch_key(*branch): git_commits.of_branch(*branch) for branch in sorted(branches)}
    current |= _source_commits(graphs, current)
    _check_moved(before, current)
    tables_before = lock.read_tables(ROOT)
    packages, warnings = _packages(graphs, current, tables_before.packages)
    tables = lock.Tables(packages, _platforms(graphs, current))
    unchanged = before if stacks else {}
    date = datetime.now(UTC).date().isoformat() if refresh else lock.refresh_date(ROOT)
    merged = lock.Tables(*({**old, **new} for old, new in zip(tables_before, tables, strict=True)))
    lock.write(ROOT, {**unchanged, **current}, date, merged if stacks else tables)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for name, digest in current.items():
        old = before.get(name)
        yield f"{name}: {digest}" if old in {None, digest} else f"{name}: {old} -> {digest}"
    for name, files in tables.packages.items():
        new = len(files.keys() - tables_before.packages.get(name, files).keys())
        yield f"{name}: {len(files)} files{f', {new} of them new' if new else ''}"
    for name, digests in tables.platforms.items():
        yield from (f"{name}: {platform}: {digest}" for platform, digest in digests.items())


def _platforms(graphs: Iterable[Graph], locked: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the digests of the parents' images for each platform of the stacks for several, by index.

    Raises:
        SlipwayError: a parent is no index, or has no image for a platform.
    """
    platforms: dict[str, set[str]] = {}
    for unlocked in graphs:
        for spec in unlocked.specs:
            for name in lock.platform_parents(spec, unlocked.config).values():
                platforms.setdefault(name, set()).add(spec.platform)
    digests = {}
    for name, of in sorted(platforms.items()):
        key = lock.index_key(name, locked[name])
        manifest = client.Repository(key).manifest()
        if manifest.media_type not in client.INDEXES:
            raise SlipwayError(
                f"{name}: one image for one platform, where the stack builds for {' and '.join(sorted(of))}; "
                "take a parent that has them, or make a stack for each platform"
            )
        digests[key] = {platform: chosen(key, manifest.content, platform) for platform in sorted(of)}
    return digests


def _packages(
    graphs: Iterable[Graph], locked: Mapping[str, str], before: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, Mapping[str, str]], list[str]]:
    """Return the files of the Python packages of all images that say what these are, by their names in the lock.

    Those of a product stay as they are in the lock ``before``: with others, it would be compiled anew. So do those
    that cannot be locked now; without an entry there, they are left out. A line says so for each. ``locked`` has the
    commits of git tags.

    Raises:
        SlipwayError: an index or a repository does not respond, or a list of requirements in a source is refused.
    """
    images: dict[str, tuple[Packages, ImageSpec, Mirrors]] = {}
    users: dict[str, list[str]] = {}
    for unlocked in graphs:
        mirrors = unlocked.config.mirrors
        for spec in unlocked.specs:
            if spec.packages:
                key = lock.packages_key(spec.packages, spec.platform, mirrors)
                images[key] = spec.packages, spec, mirrors
                users.setdefault(key, []).append(f"{unlocked.where}: {spec.name}")

    kept = {key: before[key] for key, (_, spec, _) in images.items() if spec.product and before.get(key)}
    sources = {  # images of one torch have one list
        (packages.listed, mirrors.git): mirrors for key, (packages, _, mirrors) in images.items() if key not in kept
    }

    def resolved(key: str) -> Mapping[str, str] | NotLockable:
        packages, spec, mirrors = images[key]
        if key in kept:
            return kept[key]
        try:
            return python_packages.files(packages, spec.platform, mirrors, lists[packages.listed, mirrors.git])
        except NotLockable as error:
            return error

    found: dict[str, Mapping[str, str]] = {}
    warnings = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = pool.map(lambda source: requirement_lists.read(source[0], sources[source], locked), sources)
        lists = dict(zip(sources, read, strict=True))
        for key, files in zip(sorted(images), pool.map(resolved, sorted(images)), strict=True):
            if not isinstance(files, NotLockable):
                found[key] = files
                continue
            former = before.get(key)
            found |= {key: former} if former else {}
            effect = (
                "the lock keeps the Python packages that it had"
                if former
                else "no Python packages in the lock, so built as without one, and `slipway check --locked` refuses it"
            )
            warnings.append(f"{', '.join(dict.fromkeys(users[key]))}: {effect}: {files}")
    return found, warnings


def _graph(stack: str) -> Graph:
    unlocked = graph.unlocked(read_stack(stack), f"stack {stack}")
    checks.run(checks.GRAPH_RULES, unlocked, unlocked.where)
    return unlocked


def _source_commits(graphs: Iterable[Graph], locked: Mapping[str, str]) -> dict[str, str]:
    """Return the commit of each git tag and short commit that images are built from, by its name in the lock.

    ``locked`` has the commits of branches, which are built in place of a tag.
    """
    contents = Contents(Folder(ROOT / CONTEXT))
    tags: dict[str, set[str]] = {}
    commits: dict[str, str] = {}
    for unlocked in graphs:
        mirrors = unlocked.config.mirrors
        for content in of_stack(lock.pinned(unlocked.specs, unlocked.config, locked), contents).values():
            for source in filterfalse(git_sources.own_commit, content.sources):
                key = lock.source_key(source, mirrors)
                repository, _, ref = source.partition(" ")
                if not lock.is_commit(ref):
                    address, _, name = key.partition("#")
                    tags.setdefault(address, set()).add(name)
                elif key not in commits:
                    commits[key] = git_commits.of_short(repository, ref, mirrors)
    of_tags = {
        f"{address}#{ref}": commit
        for address, refs in sorted(tags.items())
        for ref, commit in git_commits.of_tags(address, sorted(refs)).items()
    }
    return of_tags | commits


def _check_moved(before: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Refuse git tags and short commits that name another commit than the lock: neither moves.

    Raises:
        SlipwayError: one line for each.
    """
    moved = [
        f"{name} was moved from {before[name]}, which the lock has, to {commit}: find out why; "
        f"to take the new commit, delete its line in stacks/lock.toml and run `slipway lock`"
        for name, commit in current.items()
        if lock.is_fixed(name) and before.get(name, commit) != commit
    ]
    if moved:
        raise SlipwayError("\n".join(moved))
