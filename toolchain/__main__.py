"""The verbs behind the Makefile: `python3 -m toolchain VERB`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this is where an older Python is told so
    sys.exit(
        f"slipway: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed (`make PYTHON=python3.11 ...`)"
    )

from toolchain.verbs import main

sys.exit(main(sys.argv[1:]))
