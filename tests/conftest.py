"""What holds for every run of the tests."""

import signal
from pathlib import Path
from typing import Final

import pytest

# A shell's background job ignores Ctrl-C, and what it starts does too: Pulumi ends its plugins so, and would wait 5 s for
# each run, and no test of Ctrl-C would tell anything.
signal.signal(signal.SIGINT, signal.default_int_handler)

WORKERS: Final = {"images": "machine", "toolchain": "machine", "engine": "engine", "provider": "engine"}
"""Which worker of pytest-xdist runs a folder's tests: the engines that the toolchain's tests start and end change the
machine's network, which the images' builds need, so these follow each other. The tests of other folders run anywhere."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test to its folder's worker."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in WORKERS:
            item.add_marker(pytest.mark.xdist_group(WORKERS[folder]))
