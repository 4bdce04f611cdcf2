"""``stacks/lock.toml``: the digests of outside parents and the commits of git sources, by what builds fetch.

Builds use what is locked. A tag that moves upstream changes nothing until somebody runs ``slipway lock`` and commits
the result. A preview then shows the change. A mirror's images and repositories are locked under the mirror's name,
because a mirror may hold other builds of them. A branch is locked to a commit. A stack with an unlocked branch is
refused. What the lock has no entry for is built as without a lock.

The lock also holds the date of the last refresh, if there was one. A distribution's security updates do not change a
parent's digest. A new date makes the builds upgrade the packages.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from containers.errors import SlipwayError, one_line
from containers.registry.reference import Reference
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.signing import trusted
from stacks.config.stack_config import StackConfig
from stacks.config.values import is_commit
from stacks.spec import ImageSpec, Outside, Packages, Sibling

FILE = "stacks/lock.toml"
_HEADER = "# What builds fetch from others, by digest or commit. Written by `slipway lock`; do not edit.\n"
_REFRESH = "refresh"
"""The key of the date. No reference is equal to it, because references have a ``/``."""

_TAGS = "refs/tags/"
_PEELED = "^{commit}"
"""The end of a short commit's name in the lock."""
_PACKAGES = "packages"
"""The table of Python packages: for each set of requirements, the SHA-256 of files by their addresses."""
_PLATFORMS = "platforms"
"""The table of parents in stacks for several platforms: for each index, its images' digests by platform."""
_ADDRESS = re.compile(r"https?://[\w.~:\[\]-]+/[\w.~:/?@!$&()*+,;=%\[\]-]*", re.ASCII)
_PLATFORM = re.compile(r"\w+/\w+(/\w+)?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST_FORM = "a digest such as sha256:<64 hexadecimal digits>"
_FORMS = {
    "a date such as 2026-01-31": re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    "a commit of 40 hexadecimal digits": re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?"),
    _DIGEST_FORM: re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"),
}
"""The forms of an entry: that of the date, of a commit, and of a digest."""
_TABLE_FORMS = {
    _PACKAGES: (_ADDRESS, _SHA256, "the SHA-256 of a file with an address"),
    _PLATFORMS: (_PLATFORM, _FORMS[_DIGEST_FORM], "a platform's digest"),
}
"""The forms of the names and values in each table, and what they are."""

REFRESH_ARG = "REFRESH"
"""The build argument that carries the date to the Dockerfiles."""


def path(root: Path) -> Path:
    """Return the path of a checkout's lock, which may not exist."""
    return root / FILE


def read(root: Path) -> Mapping[str, str]:
    """Return the locked digests by qualified reference, such as ``docker.io/nvidia/cuda:12.1.1-base-ubuntu20.04``.

    Raises SlipwayError: the file is not what ``lock`` writes.
    """
    return {name: digest for name, digest in _read(root).items() if name not in {_REFRESH, *_TABLE_FORMS}}


class Tables(NamedTuple):
    """What the lock has besides single entries.

    ``packages`` has the SHA-256 of each file of Python packages, by its address, for each :func:`packages_key`.
    ``platforms`` has the digest of each platform's image, for each index as :func:`index_key` names it.
    """

    packages: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    platforms: Mapping[str, Mapping[str, str]] = MappingProxyType({})


_NO_TABLES = Tables()


def read_tables(root: Path) -> Tables:
    """Return the tables of the lock. Raises SlipwayError: see :func:`read`."""
    locked = _read(root)
    return Tables(*(locked.get(name, {}) for name in _TABLE_FORMS))


def refresh_date(root: Path) -> str | None:
    """Return the date of the last refresh; None where there was none. Raises SlipwayError: see :func:`read`."""
    return _read(root).get(_REFRESH)


def refresh_date_in(text: str) -> str | None:
    """Return the date of the last refresh in a lock's text; None where there was none.

    Raises SlipwayError: see :func:`read`.
    """
    return _parsed(text).get(_REFRESH)


def _read(root: Path) -> Mapping[str, Any]:
    try:
        text = path(root).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(error.strerror) from None
    except UnicodeDecodeError as error:
        raise _unreadable(f"byte {error.start + 1} is not UTF-8") from None
    return _parsed(text)


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Mapping[str, Any]:
    try:
        locked = tomllib.loads(text)
    except RecursionError:
        raise _unreadable("nested too deep") from None
    except ValueError as error:  # tomllib's, or that of a number with too many digits
        raise _unreadable(error) from None
    for mistake in _mistakes(locked):
        raise SlipwayError(
            f"{FILE}: {mistake}; take the file from git, or delete the line or table and run `slipway lock`"
        )
    return locked


def _unreadable(reason: object) -> SlipwayError:
    return SlipwayError(f"{FILE}: {reason}; take the file from git, or delete it and run `slipway lock`")


def _mistakes(locked: Mapping[str, Any]) -> Iterator[str]:
    """Yield each entry whose value is not of its form."""
    date, commit, digest = _FORMS
    for name, value in locked.items():
        if name in _TABLE_FORMS:
            yield from _table_mistakes(name, value)
            continue
        form = date if name == _REFRESH else commit if "#" in name else digest
        if not isinstance(value, str) or not _FORMS[form].fullmatch(value):
            yield f"{one_line(name)}: {_shown(value)} is not {form}"
        elif name.endswith(_PEELED) and not value.startswith(short := name.partition("#")[2].removesuffix(_PEELED)):
            yield f"{one_line(name)}: {_shown(value)} is not a commit that begins with {one_line(short)}"


def _table_mistakes(table: str, entries: object) -> Iterator[str]:
    names, values, form = _TABLE_FORMS[table]
    for key, inner in entries.items() if isinstance(entries, Mapping) else [("", entries)]:
        for name, value in inner.items() if isinstance(inner, Mapping) else [("", inner)]:
            if not (names.fullmatch(name) and isinstance(value, str) and values.fullmatch(value)):
                yield f"{table}: {one_line(key)}: '{one_line(name)}': {_shown(value)} is not {form}"


def _shown(value: object) -> str:
    """Show a value; of one that is no text, the type: a number may have too many digits."""
    return f"'{one_line(value)}'" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def is_address(text: str) -> bool:
    """Return whether a file's address can be in the lock: http or https, without a login or a fragment."""
    return _ADDRESS.fullmatch(text) is not None


def write(root: Path, locked: Mapping[str, str], refresh: str | None = None, tables: Tables = _NO_TABLES) -> None:
    """Write the lock, sorted, in one step: see :func:`read` and :func:`read_tables`.

    ``refresh`` is the date of the last refresh, if there was one.

    Raises SlipwayError: something is not of its form, as a host may have sent it, or the file cannot be written; then
    it stays.
    """
    for mistake in _mistakes({**locked, **dict(zip(_TABLE_FORMS, tables, strict=True))}):
        raise SlipwayError(f"{FILE}: what was received cannot be locked: {mistake}; nothing is written")
    date = f"{_REFRESH} = {json.dumps(refresh)}\n" if refresh else ""
    lines = (f"{json.dumps(name)} = {json.dumps(digest)}\n" for name, digest in sorted(locked.items()))
    fresh = path(root).with_suffix(".new")
    blocks = (
        f"\n[{table}.{json.dumps(key)}]\n"
        + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in sorted(values.items()))
        for table, entries in zip(_TABLE_FORMS, tables, strict=True)
        for key, values in sorted(entries.items())
    )
    try:
        fresh.write_text(_HEADER + date + "".join(lines) + "".join(blocks), encoding="utf-8")
        fresh.replace(path(root))
    except OSError as error:
        raise SlipwayError(f"{FILE} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def tagged_parents(spec: ImageSpec, mirrors: MirrorsConfig) -> dict[str, str]:
    """Return the qualified references of a spec's outside parents that have a tag and no digest, by argument."""
    return {
        argument: str(Reference.of(mirrors.image(parent.reference)).in_full)
        for argument, parent in spec.parents.items()
        if isinstance(parent, Outside) and re.fullmatch(r"[^@]*:[^/@]+", parent.reference)
    }


def platform_parents(spec: ImageSpec, config: StackConfig) -> dict[str, str]:
    """Return the :func:`tagged_parents` that are locked by the digest of an image's platform, not the index's.

    They are for an image of one platform of several; a source is for all. A parent that must be signed has the signed
    digest, the index's.
    """
    if spec.repository is None:
        return {}
    return {
        argument: name
        for argument, name in tagged_parents(spec, config.mirrors).items()
        if isinstance(parent := spec.parents[argument], Outside) and not trusted(config.trust, parent.reference)
    }


def index_key(name: str, digest: str) -> str:
    """Return the name of a parent's platforms in the lock: the reference with the index's digest.

    So an index with another digest, which Renovate may write, has none of an older one's platforms.
    """
    return f"{name}@{digest}"


def branches(spec: ImageSpec, mirrors: MirrorsConfig) -> dict[str, tuple[str, str]]:
    """Return the repository's address and the name of each branch that a spec is built from, by argument."""
    return {argument: (address(branch.repository, mirrors), branch.name) for argument, branch in spec.branches.items()}


def address(repository: str, mirrors: MirrorsConfig) -> str:
    """Return where builds fetch a repository, owner/name on GitHub."""
    return f"{_host(mirrors)}/{repository}"


def _host(mirrors: MirrorsConfig) -> str:
    return (mirrors.git or "https://github.com").rstrip("/")


def branch_key(address: str, branch: str) -> str:
    """Return the name of a branch in the lock: ``https://github.com/pytorch/vision#main``."""
    return f"{address}#{branch}"


def source_key(source: str, mirrors: MirrorsConfig) -> str:
    """Return the name in the lock of a git tag or a short commit, given as ``owner/name ref``.

    It is ``https://github.com/pytorch/vision#refs/tags/v0.15.2``, or ``https://github.com/NVIDIA/apex#38a1269^{commit}``,
    as git names it (gitrevisions(7)); no branch and no tag can have that name.
    """
    repository, _, ref = source.partition(" ")
    return f"{address(repository, mirrors)}#{f'{ref}{_PEELED}' if is_commit(ref) else f'{_TAGS}{ref}'}"


def is_fixed(name: str) -> bool:
    """Return whether an entry of the lock is a git tag's or a short commit's, which do not move."""
    return f"#{_TAGS}" in name or name.endswith(_PEELED)


def _source_commits(mirrors: MirrorsConfig, locked: Mapping[str, str]) -> dict[str, str]:
    """Return the locked commits of tags and short commits of the host that builds fetch from, by ``owner/name ref``."""
    host = f"{_host(mirrors)}/"
    sources = {
        name.removeprefix(host).replace(f"#{_TAGS}", " ", 1).replace("#", " ", 1).removesuffix(_PEELED): name
        for name in locked
        if is_fixed(name) and name.startswith(host)
    }
    return {source: locked[name] for source, name in sources.items() if source_key(source, mirrors) == name}


def _at_commits(spec: ImageSpec, mirrors: MirrorsConfig, locked: Mapping[str, str]) -> ImageSpec:
    """Return a spec with the commits of its branches as arguments. Raises SlipwayError: the lock lacks one of them."""
    commits = {}
    for argument, (address, branch) in branches(spec, mirrors).items():
        if branch_key(address, branch) not in locked:
            raise SlipwayError(
                f"{spec.name}: the branch '{one_line(branch)}' of {address} is not locked to a commit: run "
                "`slipway lock STACK`, and with `--upgrade` for a newer commit"
            )
        commits[argument] = locked[branch_key(address, branch)]
    return spec.model_copy(update={"args": {**spec.args, **commits}, "branches": {}}) if commits else spec


def python_indexes(packages: Packages, mirrors: MirrorsConfig) -> list[str]:
    """Return the addresses of the indexes that pip looks in; where there are two, torch's is the second."""
    public = "https://pypi.org/simple"  # pip's default (pip/_internal/models/index.py)
    torch = mirrors.torch_index or packages.torch_index
    return [mirrors.python_index or public, *([torch] if torch else [])]


def packages_key(packages: Packages, platform: str, mirrors: MirrorsConfig) -> str:
    """Return the name of an image's Python packages in the lock: platform, indexes, packages and their place.

    Where the parent decides, the Pythons follow from the release of torch.
    """
    marked = {"built": packages.built, "override": packages.overrides, "sdist": packages.sdists}
    others = [f"{mark}:{line}" for mark, lines in marked.items() for line in lines]
    listed = ["-r", *packages.listed.split()] if packages.listed else []
    where = [f"python{','.join(packages.pythons)}", f"glibc{packages.glibc}"] if packages.glibc else []
    onto = ["onto", packages_key(packages.onto, platform, mirrors)] if packages.onto else []
    indexes = python_indexes(packages, mirrors)
    words = [platform, *indexes, *packages.requirements, *listed, *packages.constraints, *others, *where, *onto]
    return " ".join(words)


def pinned(
    specs: Iterable[ImageSpec], config: StackConfig, locked: Mapping[str, str], tables: Tables = _NO_TABLES
) -> list[ImageSpec]:
    """Return the specs with what the lock has for them: digests of parents, commits of sources, files of packages.

    An image of one of several platforms gets its platform's digest of a parent, another image that of the index.

    ``locked`` is from :func:`read`, and ``tables`` from :func:`read_tables`.

    Raises SlipwayError: the lock lacks a branch. A parent without a digest stays at its tag, and so does a source
    without a commit.
    """
    mirrors = config.mirrors
    commits = _source_commits(mirrors, locked)
    result = []
    for unlocked in specs:
        spec = _at_commits(unlocked, mirrors, locked)
        digests = {argument: locked.get(name) for argument, name in tagged_parents(spec, mirrors).items()}
        for argument, name in platform_parents(spec, config).items():
            by_platform = tables.platforms.get(index_key(name, digests[argument] or ""), {})
            digests[argument] = by_platform.get(spec.platform, digests[argument])
        parents = {
            argument: parent.model_copy(update={"digest": digests[argument]}) if digests.get(argument) else parent
            for argument, parent in spec.parents.items()
        }
        files = tables.packages.get(packages_key(spec.packages, spec.platform, mirrors)) if spec.packages else None
        result.append(
            spec.model_copy(
                update={
                    "parents": parents,
                    "commits": commits,
                    "packages": spec.packages and spec.packages.model_copy(update={"files": files or {}}),
                }
            )
        )
    return result


def with_refresh_date(ordered: Sequence[ImageSpec], date: str | None) -> list[ImageSpec]:
    """Return the specs with the date of the last refresh as an argument of the images that it upgrades.

    ``ordered`` has parents before children. An upgraded parent rebuilds its children. So products get no date, nor do
    the images that they are built on: hours of compiling would follow. An image on a product, such as nccl-tests,
    keeps the packages that wheels are compiled with. In a chain of other images, only the first gets the date.
    """
    kept: set[str] = set()
    for spec in reversed(ordered):
        if spec.product or spec.name in kept:
            kept |= {spec.name, *spec.siblings}
    products = [Sibling(image=spec.name) for spec in ordered if spec.product]
    kept |= {spec.name for spec in ordered if spec.parents.get("BASE_IMAGE") in products}
    upgraded: set[str] = set()
    result = []
    for spec in ordered:
        if date is None or spec.name in kept:
            result.append(spec)
            continue
        first = not upgraded & {*spec.siblings}
        result.append(spec.model_copy(update={"args": {**spec.args, REFRESH_ARG: date}}) if first else spec)
        upgraded.add(spec.name)
    return result
