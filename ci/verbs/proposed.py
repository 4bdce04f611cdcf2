"""``python -m ci proposed``: the date of a refresh that a pull request has already, for the next one of its branch."""

from __future__ import annotations

import argparse

from ci import actions, repository
from ci.repository import ROOT
from stacks import lock


def run(options: argparse.Namespace) -> int:
    """Write into the lock the date that the branch's open pull request proposes, where it is later than the lock's.

    Or what is proposed next would take the refresh back before anybody has merged it.

    Raises:
        SlipwayError: git or GitHub refuses, or the branch's lock is not what ``slipway lock`` writes.
    """
    if not actions.open_pulls(actions.owner(), options.branch):
        return 0
    at, path = repository.fetch(ROOT, options.branch), lock.path(ROOT).relative_to(ROOT)
    date = lock.refresh_date_in(repository.run(ROOT, "show", f"{at}:{path}"))
    if date and date > (lock.refresh_date(ROOT) or ""):
        lock.write(ROOT, lock.read(ROOT), date)
        print(f"the refresh of {date} is proposed, and kept")
    return 0
