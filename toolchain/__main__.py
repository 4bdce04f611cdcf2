"""The verbs behind the Makefile: `python3 -m toolchain VERB`."""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this is where an older Python is told so
    # A release has no Makefile. An older Python cannot import what tells the two apart elsewhere.
    how = "`make PYTHON=python3.11 ...`"
    if not Path(__file__).parents[1].joinpath("Makefile").exists():
        how = "install the wheel again in an environment of one"
    sys.exit(f"slipway: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed ({how})")

from containers.interruption import end_quietly

end_quietly()

from toolchain.verbs import main  # noqa: E402 - it takes a while

sys.exit(main(sys.argv[1:]))
