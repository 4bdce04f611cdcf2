"""Lists of requirements in a git source of an image, read at the commit that the lock has for it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cli.locking import git_objects
from containers.errors import SlipwayError, one_line
from stacks import lock
from stacks.config.fetching.mirrors import MirrorsConfig

_COMMENT = re.compile(r"(^|\s)#.*")
_OPTION = re.compile(r"(?P<option>-[^\s=]*)[\s=]*(?P<path>.*)")
_NESTED = {"-r", "--requirement"}
_PATH = re.compile(r"(?!\.$|.*\.\.)[\w.-]+(/[\w.-]+)*")


def read(listed: str | None, mirrors: MirrorsConfig, locked: Mapping[str, str]) -> dict[str, bytes]:
    """Return a list of requirements and those that it names in turn, by their paths in the source; none without one.

    ``listed`` is ``owner/name tag path``, see :class:`stacks.spec.Packages`. ``locked`` has the commits of git tags by
    their names in the lock.

    Raises SlipwayError: the tag is not locked, the host does not answer, the source has no such file, or it has options
    of uv or pip or is not UTF-8.
    """
    if not listed:
        return {}
    repository, tag, path = listed.split()
    address = lock.address(repository, mirrors)
    commit = locked.get(lock.source_key(f"{repository} {tag}", mirrors))
    if commit is None:
        raise SlipwayError(f"{address}: the commit of the tag '{one_line(tag)}' is not locked")
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        git_objects.fetched(repository, commit, folder, mirrors.git or git_objects.PUBLIC)
        lists: dict[str, bytes] = {}
        unread = [path]
        while unread:
            path = unread.pop()
            content = git_objects.content(folder, commit, path) if _PATH.fullmatch(path) else b""
            if not content:
                raise SlipwayError(f"{address} has no list of requirements '{one_line(path)}' at {tag}")
            lists[path] = content
            nested = [str(Path(path).parent / name) for name in _nested(content, f"{address}: {path} at {tag}")]
            unread += [each for each in nested if each not in lists]
        return lists


def _nested(content: bytes, where: str) -> list[str]:
    """Return the paths of the lists that a list names.

    Lines end where one does for uv, at a lone carriage return too, or for pip, as ``str.splitlines`` ends them.

    Raises SlipwayError: the list is not UTF-8, or has another option. An index, say, would decide what is locked.
    """
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SlipwayError(f"{where} is no list of requirements: byte {error.start + 1} is not UTF-8") from None
    options = [match for line in lines if (match := _OPTION.fullmatch(_COMMENT.sub("", line).strip()))]
    for match in options:
        if match["option"] not in _NESTED:
            raise SlipwayError(f"{where} has an option '{one_line(match['option'])}'")
    return [match["path"] for match in options]
