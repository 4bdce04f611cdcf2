"""Lists of requirements in a git source that an image is built from, read at the commit that the lock has for it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cli.upstream import git_objects
from stacks import lock
from stacks.config.fetching.mirrors import Mirrors
from stacks.errors import SlipwayError, one_line

_OPTION = re.compile(r"^\s*(?P<option>-[^\s=]*)[ =]*(?P<path>\S*)", re.MULTILINE)
_NESTED = {"-r", "--requirement"}
_PATH = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*")


def read(listed: str | None, mirrors: Mirrors, locked: Mapping[str, str]) -> dict[str, bytes]:
    """Return a list of requirements and those that it names in turn, by their paths in the source; none without one.

    Args:
        listed: the list as ``owner/name tag path``, see :class:`stacks.spec.Packages`.
        mirrors: where the source is fetched.
        locked: the commits of git tags by their names in the lock.

    Raises:
        SlipwayError: the host does not answer, the source has no such file, or it has options of uv or pip.
    """
    if not listed:
        return {}
    repository, tag, path = listed.split()
    commit = locked[lock.tag_key(f"{repository} {tag}", mirrors)]
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        git_objects.fetched(repository, commit, folder, mirrors.git or git_objects.PUBLIC)
        lists: dict[str, bytes] = {}
        left = [path]
        while left:
            wanted = left.pop()
            content = git_objects.content(folder, commit, wanted) if _PATH.fullmatch(wanted) else b""
            if not content:
                raise SlipwayError(
                    f"{lock.address(repository, mirrors)} has no list of requirements '{one_line(wanted)}' at {tag}"
                )
            lists[wanted] = content
            for match in _OPTION.finditer(content.decode(errors="replace")):
                # Another option, such as an index, would decide what is locked.
                if match["option"] not in _NESTED:
                    option = one_line(match["option"])
                    raise SlipwayError(
                        f"{lock.address(repository, mirrors)}: {wanted} at {tag} has an option '{option}'"
                    )
                nested = str(Path(wanted).parent / match["path"])
                left += [nested] if nested not in lists else []
        return lists
