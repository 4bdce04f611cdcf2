"""What a commit's tree builds. A commit is data: today's code reads its YAML, lock and Dockerfiles; its own never runs.

With today's code for a stack, that data decides its build, and with it rows of tables of one's own: where these are
others, :mod:`stacks.identity.older_trees.own_rows` reads it. With other code, the commit's record
tells (:mod:`stacks.identity.older_trees.fingerprint_record`). Without one, all counts as changed.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from containers.dockerfile.context import Folder
from containers.errors import SlipwayError, one_line
from stacks import graph
from stacks.config.additions import repository_path
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import read_stack, stack_file, stack_names
from stacks.identity import content, git
from stacks.identity.content import CheckoutContents, Content
from stacks.identity.fingerprint import fingerprints, published_fingerprints
from stacks.identity.older_trees import fingerprint_record as record
from stacks.identity.older_trees import own_rows, rules
from stacks.identity.older_trees.archive import ATTRIBUTES, ArchivedContext, archives, large_files
from stacks.identity.older_trees.fingerprint_record import Record
from stacks.places import CODE, FLAVORS, PIN, ROOT, TABLES
from stacks.spec import CONTEXT

STACKS: Final = "stacks"
FOLDERS: Final = (STACKS, CONTEXT, FLAVORS, TABLES, PIN)
"""The folders and the file that decide what is built, as far as a repository has them."""

DATA: Final = re.compile(r"stacks/(Pulumi\.[^/]+\.yaml|lock\.toml)")
"""The files that today's code reads of an older ``stacks``."""
_LIST: Final = re.compile(r"""requirements["']?:\s*["']?(?P<path>[A-Za-z0-9._+/-]+)""")
"""A file of requirements in a stack's YAML."""
_LONGEST: Final = 240
"""Characters of a reason; it may hold several mistakes."""


Images = Mapping[str, Content]
"""A stack's images by name, parents before children."""


@dataclass(frozen=True)
class Tree:
    """A tree's stacks by name, as today's code reads them; ``unresolved`` says why it cannot read each other stack.

    ``recorded`` are the fingerprints in the tree's own record, if other code than today's built it, or those that its
    own rows of tables give. ``cause`` is what may then have built something else.
    """

    stacks: Mapping[str, Images] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)
    recorded: Record | None = None
    cause: str = "the code in stacks/"


def objects(commit: str, root: Path) -> dict[str, str]:
    """Return git's names of the objects that decide a commit's build, by path; of those that the commit has.

    Commits with equal objects build the same images. ``root`` is the checkout.

    Raises SlipwayError: git cannot read the commit.
    """
    listing = git.read(root, "ls-tree", "-z", commit, ATTRIBUTES, *FOLDERS)
    entries = [entry.split("\t") for entry in os.fsdecode(listing).split("\0") if entry]
    return {path: information.split()[2] for information, path in entries}


def at(commit: str, root: Path, *, checks: bool = False) -> Tree:
    """Return what a commit builds. ``root`` is the checkout.

    ``checks`` says whether the contents have those of the images' checks, which move no tag.

    Raises SlipwayError: git cannot read the commit, or there is no room for its stacks.
    """
    stacks: dict[str, Images] = {}
    unresolved: dict[str, str] = {}
    otherwise: set[str] = set()
    contents, differing = _contents(commit, root), rules.differing(commit, root)
    with _data(commit, root) as folder:
        for stack in stack_names(folder):
            try:
                found, stacks[stack] = _read_images(stack, folder, contents, checks=checks)
                if _made_otherwise(found, differing):
                    otherwise.add(stack)
            except SlipwayError as error:
                unresolved[stack] = one_line(" ".join(str(error).split()), _LONGEST)
    if differing == frozenset():
        return Tree(stacks, unresolved)
    if differing and rules.ROWS in differing:
        return _by_rows(commit, stacks, own_rows.built(commit, root), unresolved)
    recorded = {name: images for name, images in record.at(commit, root).items() if name not in {*stacks} - otherwise}
    reason = f"{commit[:7]} has other code in stacks/, which is not run, and no record of what it built"
    unknown = {stack: reason for stack in otherwise if stack not in recorded}
    known = {name: images for name, images in stacks.items() if name not in unknown}
    return Tree(known, unresolved | unknown, recorded)


def _by_rows(commit: str, stacks: Mapping[str, Images], built: Record, unresolved: Mapping[str, str]) -> Tree:
    """Return a tree with other rows of tables: ``built`` is by these, ``stacks`` and ``unresolved`` are by today's."""
    reason = f"{commit[:7]} has other rows in {TABLES}/: they are refused, or a flavor that reads files may read them"
    known = {stack: stacks.get(stack, {}) for stack in built}
    unknown = {stack: reason for stack in {**stacks, **unresolved} if stack not in built}
    otherwise = {stack: images for stack, images in built.items() if images != all_fingerprints(known[stack])}
    return Tree(known, unknown, otherwise, f"the rows in {TABLES}/")


def of_stack(commit: str, root: Path, stack: str) -> tuple[StackConfig, Images]:
    """Return a stack's configuration and images as today's code reads a commit's files. That commit's code may differ.

    Raises SlipwayError: git cannot read the commit, it has no such stack, or today's code refuses that.
    """
    with _data(commit, root) as folder:
        if not stack_file(stack, folder).is_file():
            raise SlipwayError(f"stack {stack}: commit {commit[:7]} has no such stack")
        resolved = graph.locked(read_stack(stack, folder), f"stack {stack} of {commit[:7]}", folder)
        return resolved.config, content.of_stack(resolved.specs, _contents(commit, root))


def published(commit: str, root: Path, stack: str) -> Mapping[str, str]:
    """Return the fingerprints of a commit's images by their published names; none of a stack that cannot be told.

    Raises SlipwayError: git cannot read the commit.
    """
    differing = rules.differing(commit, root)
    if differing is None:
        return record.at(commit, root).get(stack, {})
    if rules.ROWS in differing:
        return own_rows.built(commit, root, stack).get(stack, {})
    with _data(commit, root) as folder:
        if not stack_file(stack, folder).is_file():
            return {}
        try:
            found, images = _read_images(stack, folder, _contents(commit, root), checks=False)
        except SlipwayError:
            return {}
    if _made_otherwise(found, differing):
        return record.at(commit, root).get(stack, {})
    return published_fingerprints(images.values())


def suffixes(commit: str, root: Path) -> dict[str, dict[str, str] | None]:
    """Return the tags' suffixes of a commit's images by stack and published name; None of a stack that is refused.

    Today's code reads them, also where other code or other rows of tables built the images.

    Raises SlipwayError: git cannot read the commit.
    """
    found: dict[str, dict[str, str] | None] = {}
    with _data(commit, root) as folder:
        for stack in stack_names(folder):
            try:
                specs = graph.locked(read_stack(stack, folder), f"stack {stack}", folder).specs
            except SlipwayError:
                found[stack] = None
            else:
                found[stack] = {spec.published_name: spec.suffix.render() for spec in specs if not spec.product}
    return found


def references(commit: str, root: Path, stack: str) -> dict[str, str]:
    """Return the references of a stack's images at a commit, without revisions, by published name.

    Today's code reads them, as :func:`suffixes`.

    Raises SlipwayError: git cannot read the commit, it has no such stack, or today's code refuses that.
    """
    with _data(commit, root) as folder:
        found = graph.locked(read_stack(stack, folder), f"stack {stack}", folder)
    return {
        spec.published_name: f"{found.config.registry.repository}/{spec.published_name}:{spec.suffix.render()}"
        for spec in found.specs
        if not spec.product
    }


def with_rows(commit: str, root: str, stack: str) -> Record:
    """Return the record of :func:`own_rows.built`, in the process that has the commit's rows of tables."""
    differing, contents = rules.differing(commit, Path(root)), _contents(commit, Path(root))
    built: dict[str, Mapping[str, str]] = {}
    with _data(commit, Path(root)) as folder:
        for name in [stack] if stack else stack_names(folder):
            with suppress(SlipwayError):
                found, images = _read_images(name, folder, contents, checks=False)
                if not _made_otherwise(found, differing):
                    built[name] = published_fingerprints(images.values()) if stack else all_fingerprints(images)
    return built


def all_fingerprints(images: Images) -> dict[str, str]:
    """Return the fingerprints of a stack's images, and of its indexes, as a record has them."""
    return fingerprints(images.values()) | published_fingerprints([*images.values()])


def _read_images(
    stack: str, folder: Path, contents: CheckoutContents, *, checks: bool
) -> tuple[graph.Graph, dict[str, Content]]:
    found = graph.locked(read_stack(stack, folder), f"stack {stack}", folder)
    return found, content.of_stack(found.specs, contents, checks=checks)


def _made_otherwise(found: graph.Graph, differing: frozenset[str] | None) -> bool:
    """Return whether a commit's own code may build something else of a stack (:func:`rules.differing`)."""
    if not differing:
        return differing is None
    reached = map(rules.reached, found.flavors)
    return any(each is None or differing & each for each in reached)


@lru_cache(maxsize=4)
def _contents(commit: str, root: Path) -> CheckoutContents:
    large = large_files(root)

    def context(folder: str) -> ArchivedContext:
        return ArchivedContext(archives(root, commit, folder), folder, large)

    # A clone that git cannot read is refused before any stack is looked at.
    dockerfiles = context(CONTEXT) if ROOT == CODE else Folder(CODE / CONTEXT)
    return CheckoutContents(lambda folder: dockerfiles if folder == CONTEXT else context(folder))


@contextmanager
def _data(commit: str, root: Path) -> Iterator[Path]:
    """Write a commit's YAML and lock to a temporary folder. Nothing else of its ``stacks`` leaves the archive."""
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        (folder / STACKS).mkdir()
        files = _read(archives(root, commit, STACKS))
        for path, text in (files | _lists(commit, root, files.values())).items():
            try:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(text)
            except OSError as error:
                raise SlipwayError(f"an older tree cannot be written to a temporary folder: {error}") from None
        yield folder


def _lists(commit: str, root: Path, stacks: Iterable[bytes]) -> dict[str, bytes]:
    """Return a commit's files of requirements that its stacks name, by path; without those that it has not."""
    lists = {}
    for match in (match for text in stacks for match in _LIST.finditer(text.decode(errors="replace"))):
        with suppress(SlipwayError, ValueError):
            path = repository_path(match["path"])
            lists[path] = git.read(root, "cat-file", "blob", f"{commit}:./{path}")
    return lists


def _read(packed: Iterable[bytes]) -> dict[str, bytes]:
    """Return the files of archives that are data, and links to such files in the same folder."""
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for archive in packed:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if not DATA.fullmatch(member.name):
                    continue
                if member.issym():
                    links[member.name] = f"{STACKS}/{member.linkname}"
                elif file := tar.extractfile(member):
                    files[member.name] = file.read()
    return files | {name: files[target] for name, target in links.items() if target in files}
