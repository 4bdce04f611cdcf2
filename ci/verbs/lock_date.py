"""``python -m ci lock-date``: keep the refresh date of the lock in an open pull request."""

from __future__ import annotations

import argparse

from ci import actions, repository
from ci.repository import ROOT
from stacks import lock


def run(options: argparse.Namespace) -> int:
    """Write the refresh date of the lock in the branch's open pull request into the lock, if it is later.

    Without it, the next proposal would undo a refresh that is not merged yet.

    Raises SlipwayError: git or GitHub fails, or the branch's lock was not written by ``slipway lock``.
    """
    if not actions.open_pulls(actions.owner(), options.branch):
        return 0
    commit, path = repository.fetch(ROOT, options.branch), lock.path(ROOT).relative_to(ROOT)
    date = lock.refresh_date_in(repository.run(ROOT, "show", f"{commit}:{path}"))
    if date and date > (lock.refresh_date(ROOT) or ""):
        lock.write(ROOT, lock.read(ROOT), date, lock.read_tables(ROOT))
        print(f"kept the refresh of {date} from the open pull request")
    return 0
