"""What holds for every run of the tests."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.fakes.registry import Registry, serve, skip_retry_waits
from tests.helpers import own_world
from tests.helpers.disk_space import pytest_sessionstart  # noqa: F401 - a hook
from tests.helpers.hanging import (  # noqa: F401 - hooks
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)

own_world.enter()  # in each worker too, and before any test is imported

# A shell's background job ignores Ctrl-C, and what it starts does too: Pulumi ends its plugins so, and would wait 5 s for
# each run, and no test of Ctrl-C would tell anything.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise what `nohup` starts

# Of the thousand programs that the tests start, each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

gc.disable()  # until all tests are collected: what is imported stays, and would be searched again and again

# A slow machine is no mistake: no deadlines, and no health check of time. `--hypothesis-profile night` draws more examples.
settings.register_profile("day", max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("night", settings.get_profile("day"), max_examples=100)
settings.load_profile("day")

SCOPES: Final = (
    "images/test_local.py",
    "images/family",
    "images/efa",
    "images/megatron",
    "images/universal",
    "images/test_cuda13.py",
    "images",
    "workflows/test_runs.py",
    "aws/test_runners.py",
    "engine/test_previews.py",
    "engine/test_mishaps.py",
    "engine/test_chain.py",
    "toolchain",
    "engine",
    "aws",
    "history/test_lock.py",
    "history/test_impact.py",
    "provider",
    "workflows",
    "cluster",
    "jobs",
    "programs/docs/test_contributing.py",
    "programs/versions/test_own_rows.py",
    "unit/runners/test_scaler_rate.py",
    "unit/runners/test_kubernetes_runners.py",
    "unit/flavors/test_family_properties.py",
    "programs/test_hanging.py",
)
"""Files and folders whose tests one worker of pytest-xdist runs, as they share what they start and build. A test is of the
first that holds it. The longest come first, so that no worker has one left when the others are done. The other files run
anywhere, after these, each in one worker: those of `unit` take at most 10 s of a core, and most less than one."""


def _scope(nodeid: str) -> str | None:
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return next((scope for scope in SCOPES if f"{path}/".startswith(f"{scope}/")), None)


class ByScope(LoadScopeScheduling):
    """Gives the tests of a scope to one worker, by :data:`SCOPES`."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid) or nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByScope:
    """Have :class:`ByScope`. pytest-xdist's own groups take no effect with pytest 9.2."""
    config.option.loadscopereorder = False  # it would begin with the scope that has most tests
    return ByScope(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into the order of :data:`SCOPES`."""
    order = {scope: place for place, scope in enumerate(SCOPES)}
    items.sort(key=lambda item: order.get(_scope(item.nodeid) or "", len(order)))


def pytest_collection_finish() -> None:
    """Collect garbage again, but never what is there by now, and not after each 700 objects: that takes 15 % of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True)
def _no_git_settings_of_others() -> Iterator[None]:
    """Take back what a test has `git config --global` write, as the recipes of images do."""
    yield
    own_world.forget_git()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A stand-in of a registry, without waits and logins; folders with a real one have a fixture of this name."""
    skip_retry_waits(monkeypatch)
    with serve() as served:
        yield served
