"""Entry point of ``python -m ci``."""

import sys

from ci.cli import main

sys.exit(main(sys.argv[1:]))
