"""The account of an image's programs, and its permissions for a file.

Source: moby/sys user/v0.4.0, user/user.go:294 (`GetExecUser`), by which Docker and runc look the account up: a number
is always an id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from containers import budget
from containers.image.binaries.contents import Contents
from containers.image.layers.layer import Entry

READ, RUN = 4, 1
"""Rights, as in the mode of a file; the second is that of entering a folder too."""
ANYBODY_RUNS: Final = 0o111
_LARGEST_ID: Final = 2**31 - 1
_MOST_DIGITS: Final = 99


@dataclass(frozen=True)
class Account:
    """A user with groups; ``problem`` says why no container starts as that user."""

    name: str
    uid: int = 0
    groups: frozenset[int] = frozenset({0})
    problem: str = ""

    def may(self, right: int, entry: Entry | None) -> bool:
        """Return whether the account has a right; the superuser may read all, and run what anybody may run.

        A folder that no layer writes, None, is open to all. Access control lists do not count: an archive has none.
        """
        if entry is None:
            return True
        if self.uid == 0:
            return right == READ or entry.kind == "directory" or bool(entry.mode & ANYBODY_RUNS)
        uid, gid = entry.owner
        shift = 6 if uid == self.uid else 3 if gid in self.groups else 0
        return bool(entry.mode >> shift & right)


def of_image(contents: Contents) -> Account:
    """Return the account of an image's configuration."""
    return named(contents, str(contents.config.get("User") or ""))


def home(contents: Contents) -> str:
    """Return the home of the account of an image's configuration; empty if no row says it, but for root."""
    user = str(contents.config.get("User") or "0").partition(":")[0]
    row = _row(contents, "etc/passwd", user)
    if row and len(row) > 5:
        return row[5]
    return "/root" if user in {"0", "root"} else ""


def named(contents: Contents, setting: str) -> Account:
    """Return the account of a user, and a group after a colon, each by name or id; root without either."""
    user, _, group = setting.partition(":")
    if not user and not group:
        return Account("root")
    row = _row(contents, "etc/passwd", user) if user else None
    if user and row is None and not _is_id(user):
        return Account(setting, problem=f"/etc/passwd has no user {user}")
    groups = _group(contents, group) if group else _groups_of(contents, row)
    if not groups:
        return Account(setting, problem=f"/etc/group has no group {group}")
    return Account(user or "root", _number(row[2]) if row else int(user or 0), groups)


def _row(contents: Contents, path: str, account: str) -> Sequence[str] | None:
    """Return the row of a user or group: by id if it is a number, even if a name is the same, else by name."""
    rows = _rows(contents, path, 3)
    if _is_id(account):
        return next((row for row in rows if _number(row[2]) == int(account)), None)
    return next((row for row in rows if row[0] == account), None)


def _group(contents: Contents, group: str) -> frozenset[int]:
    """Return the id of a group that the configuration names, by name or id; none if it is unknown."""
    row = _row(contents, "etc/group", group)
    if row is None and not _is_id(group):
        return frozenset()
    return frozenset({_number(row[2]) if row else int(group)})


def _groups_of(contents: Contents, user: Sequence[str] | None) -> frozenset[int]:
    """Return the ids of the groups that a user's row and the rows of groups give; root's group without a row."""
    if user is None:
        return frozenset({0})
    members = (row for row in _rows(contents, "etc/group", 4) if user[0] in row[3].split(","))
    return frozenset({_number(user[3]) if len(user) > 3 else 0, *(_number(row[2]) for row in members)})


def _is_id(text: str) -> bool:
    digits = text.removeprefix("+")  # as Go's strconv.Atoi reads it
    return digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS and int(digits) <= _LARGEST_ID


def _number(text: str) -> int:
    return int(text) if _is_id(text) else 0


def _rows(contents: Contents, path: str, fields: int) -> Iterator[Sequence[str]]:
    """Yield the rows of a file of accounts that have enough fields."""
    for line in (contents.text(path) or b"").decode(errors="replace").splitlines():
        budget.check()
        if len(row := line.strip().split(":")) >= fields:
            yield row
