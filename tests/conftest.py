"""What holds for every run of the tests."""

import signal
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A shell's background job ignores Ctrl-C, and what it starts does too: Pulumi ends its plugins so, and would wait 5 s for
# each run, and no test of Ctrl-C would tell anything.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is no mistake: no deadlines, and no health check of time. `--hypothesis-profile night` draws more examples.
settings.register_profile("day", max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("night", settings.get_profile("day"), max_examples=100)
settings.load_profile("day")

FOLDERS: Final = ("images", "engine", "provider", "aws", "toolchain", "workflows", "cluster")
"""Folders whose tests one worker of pytest-xdist runs, as they share what they start and build; the longest first, so that
no worker has one left when the others are done. The tests of other folders run anywhere, after these."""


def _folder(nodeid: str) -> str:
    return nodeid.split("/")[1]


class ByFolder(LoadScopeScheduling):
    """Gives the tests of a folder to one worker, by :data:`FOLDERS`."""

    def _split_scope(self, nodeid: str) -> str:
        folder = _folder(nodeid)
        return folder if folder in FOLDERS else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """Have :class:`ByFolder`. pytest-xdist's own groups take no effect with pytest 9.2."""
    config.option.loadscopereorder = False  # it would begin with the folder that has most tests
    return ByFolder(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into the order of :data:`FOLDERS`."""
    order = {folder: place for place, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: order.get(_folder(item.nodeid), len(order)))
