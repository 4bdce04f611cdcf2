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

WORKERS: Final = {
    "images": "images",
    "toolchain": "toolchain",
    "aws": "engine",
    "cluster": "engine",
    "engine": "engine",
    "provider": "engine",
    "workflows": "engine",
}
"""Which folders' tests follow each other in one worker of pytest-xdist, as what they start and build is shared. The images'
take longest and have one of their own; the tests of other folders run anywhere."""


class ByFolder(LoadScopeScheduling):
    """Gives the tests of a folder to one worker, by :data:`WORKERS`."""

    def _split_scope(self, nodeid: str) -> str:
        return WORKERS.get(nodeid.split("/")[1], nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """Have :class:`ByFolder`. pytest-xdist's own groups take no effect with pytest 9.2."""
    return ByFolder(config, log)
