"""What holds for every test of one module here, as for those of `tests/unit`."""

from tests.unit.conftest import (  # noqa: F401 - fixtures of every test here
    _no_network,
    _no_search_of_this_history,
    _one_reading_of_this_checkout,
)
