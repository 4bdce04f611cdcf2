"""Tags, commits and files of git repositories, on this machine and fetched without history."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from containers.errors import SlipwayError, one_line

PUBLIC: Final = "https://github.com"
"""Where the upstreams' repositories are."""

BRANCHES: Final = "refs/heads/"
"""What a branch is named with where a tag may stand."""

_LIMIT: Final = 900
"""Seconds that git may take for one step, such as a fetch."""


class HostUnreadable(SlipwayError):
    """A host without an answer, or without such a repository."""


def run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder, without a prompt and in English. Raises SlipwayError: git is missing, or takes too long."""
    environment = child_environment("git", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False, env=environment, timeout=_LIMIT)
    except FileNotFoundError:
        raise SlipwayError("git is not installed, and upstreams are read with it") from None
    except subprocess.TimeoutExpired:
        raise SlipwayError(f"git {arguments[0]} takes more than {_LIMIT} seconds; try again") from None


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    faults = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return one_line([*faults, *lines[-1:], "git failed"][0])


def is_repository(folder: Path) -> bool:
    """Return whether a folder is itself a git repository, bare or not, and not just below one."""
    return (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())


def commit(repository: Path, tag: str) -> str:
    """Return the commit of a tag, or of anything else that git calls a commit, in a repository on this machine.

    Raises SlipwayError: it has none, and the message names its newest tags; or git does not read the repository.
    """
    branch = tag.removeprefix(BRANCHES) if tag.startswith(BRANCHES) else ""
    for name in (f"refs/tags/{tag}", tag):
        done = run_git(repository, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode == 0:
            return done.stdout.decode().strip()
    listing = run_git(repository, "tag", "--sort=-creatordate")
    if listing.returncode:
        raise SlipwayError(f"{repository} cannot be read: {_reason(listing)}")
    if branch:
        raise SlipwayError(f"{repository} has no branch '{one_line(branch)}'")
    tags = ", ".join(listing.stdout.decode(errors="replace").split()[:5])
    newest = f"; its newest tags are: {tags}" if tags else "; it has no tags"
    raise SlipwayError(f"{repository} has no tag '{one_line(tag)}'{newest}")


def paths(repository: Path, name: str) -> list[str]:
    """Return the paths of the files and submodules of a commit."""
    done = run_git(repository, "ls-tree", "-r", "-z", "--name-only", name)
    if done.returncode:
        raise SlipwayError(f"{repository} cannot be read at {name}: {_reason(done)}")
    return [path.decode(errors="replace") for path in done.stdout.split(b"\0") if path]


def content(repository: Path, name: str, path: str) -> bytes:
    """Return the content of a file of a commit; that of a folder or submodule is empty.

    Raises SlipwayError: the repository cannot be read, or the host that has the rest of it does not answer.
    """
    kind = run_git(repository, "ls-tree", "-z", name, "--", path)
    entries = kind.stdout.decode(errors="replace").split("\0")
    if not entries[0].startswith("100") and not entries[0].startswith("120"):
        return b""
    done = run_git(repository, "cat-file", "blob", entries[0].split("\t")[0].split()[2])
    if done.returncode:
        raise SlipwayError(f"{path} cannot be read at {name}: {_reason(done)}")
    return done.stdout


def tags(repository: str, host: str = PUBLIC) -> list[str]:
    """Return the tags of a repository, owner/name, as a host lists them.

    Raises SlipwayError: the host does not answer, or has no such repository.
    """
    address = f"{host.rstrip('/')}/{repository}"
    done = run_git(Path.cwd(), "ls-remote", "--quiet", "--tags", "--refs", "--", address)
    if done.returncode:
        raise SlipwayError(f"{address} cannot be read: {_reason(done)}")
    return [line.rpartition("refs/tags/")[2] for line in done.stdout.decode(errors="replace").splitlines()]


def fetched(repository: str, tag: str, folder: Path, host: str = PUBLIC) -> str:
    """Fetch the names of a tag's or commit's files into an empty folder, and return the commit.

    The folder becomes a bare repository. Files follow when they are read, where the host lets a repository be cloned in
    part. ``repository`` is owner/name at ``host``, which stands in for GitHub's address. ``tag`` may be a branch as
    ``refs/heads/<branch>``, or a commit, which may be short.

    Raises:
        HostUnreadable: the host does not answer, or it has no such repository.
        SlipwayError: it has no such tag or commit.
    """
    address = f"{host.rstrip('/')}/{repository}"
    run_git(folder, "init", "-q", "--bare")
    run_git(folder, "remote", "add", "origin", address)
    branch = tag.removeprefix(BRANCHES) if tag.startswith(BRANCHES) else ""
    short = re.fullmatch(r"[0-9a-f]{7,39}", tag)
    if short:
        refspec = ["--filter=blob:none", "origin", "+refs/heads/*:refs/branches/*"]  # none is found by its name
    else:
        whole = re.fullmatch(r"[0-9a-f]{40}", tag)
        refspec = ["--depth=1", "--filter=blob:none", "origin", tag if whole or branch else f"refs/tags/{tag}"]
    done = run_git(folder, "fetch", "-q", "--no-tags", *refspec)
    if done.returncode:
        if run_git(folder, "ls-remote", "-q", "origin", "HEAD").returncode:
            raise HostUnreadable(f"{address} cannot be read: {_reason(done)}")
        named = f"branch '{one_line(branch)}'" if branch else f"tag or commit '{one_line(tag)}'"
        raise SlipwayError(
            f"{address} has no {named}: it is gone, or was never {'there' if branch else 'released there'}"
        )
    try:
        return commit(folder, tag if short else "FETCH_HEAD")
    except SlipwayError:
        several = ", or several that begin so" if short else ""
        raise SlipwayError(f"{address} has no commit '{one_line(tag)}' on a branch{several}") from None
