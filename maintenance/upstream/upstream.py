"""``python -m maintenance upstream``: contracts terms against checkouts, archives and the network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.locking import git_objects
from containers.errors import SlipwayError
from maintenance.upstream import pins
from maintenance.upstream.contract import Contract, components, contract
from maintenance.upstream.findings import Result, findings
from maintenance.upstream.upstream_files import ArchiveFiles, FolderFiles, RepositoryFiles, UpstreamFiles
from stacks.config.load import environment_mirrors
from stacks.config.values import is_commit


def results(
    names: Sequence[str], tag: str | None = None, folder: Path | None = None
) -> Iterator[tuple[Contract, Result]]:
    """Hold the contracts of components, of all for none, and yield each with its result, a tag after the other.

    The default of ``tag``, which may be a commit, is those that our stacks take. ``folder`` is a checkout, a bare
    repository, another folder with the files, or an archive; by default git fetches.

    Raises SlipwayError: there is no such component, or ``folder`` is nothing that can be read.
    """
    chosen = {name: contract(name) for name in names or components()}
    files = _local(folder) if folder else None
    for name, terms in chosen.items():
        if folder and files:
            # Its files are of one version: without a tag, of the newest that we take.
            version = tag or pins.tags(terms)[-1]
            yield terms, _result(name, terms, version, files, str(folder), label=tag or "")
            continue
        for version in [tag] if tag else pins.tags(terms):
            try:
                yield terms, _at(name, terms, version, folder)
            except SlipwayError as error:
                yield terms, Result(name, terms.where, version, error=str(error))


def _local(folder: Path) -> UpstreamFiles | None:
    """Return the files of a folder or archive; None for a git repository, which has them by tag."""
    if folder.is_file():
        return ArchiveFiles(folder)
    if not folder.is_dir():
        raise SlipwayError(f"--from: there is no folder or archive {folder}")
    return None if git_objects.is_repository(folder) else FolderFiles(folder)


def _at(name: str, terms: Contract, tag: str, repository: Path | None) -> Result:
    # A commit says for itself which files are meant.
    revision = git_objects.BRANCHES + terms.branch if terms.branch and not is_commit(tag) else tag
    if repository:
        files = RepositoryFiles(repository, git_objects.commit(repository, revision))
        return _result(name, terms, tag, files, str(repository))
    if not terms.repository:
        reason = f"{terms.archive} {tag}: give the archive with --from"
        return Result(name, terms.where, tag, error=reason, skipped=True)
    with tempfile.TemporaryDirectory(prefix="slipway-upstream-") as scratch:
        host = terms.host or environment_mirrors().get("git") or git_objects.PUBLIC
        try:
            commit = git_objects.fetched(terms.repository, revision, Path(scratch), host)
        except git_objects.HostUnreadable as error:
            raise SlipwayError(f"{error}; give a checkout of it with --from") from None
        return _result(name, terms, tag, RepositoryFiles(Path(scratch), commit), terms.repository)


def _result(name: str, terms: Contract, tag: str, files: UpstreamFiles, where: str, label: str | None = None) -> Result:
    # Members are of archives, which are not made of the repository alone.
    archive = isinstance(files, ArchiveFiles) or not terms.repository
    rows = [row for row in terms.rows(tag) if row.file or archive]
    if rows and not any(files.matching(row.path) for row in rows):
        files_of = ", ".join(dict.fromkeys(row.path for row in rows[:3]))
        raise SlipwayError(f"{where} is no checkout of {terms.where}: it has none of its files, such as {files_of}")
    return Result(name, where, tag if label is None else label, findings(rows, files))
