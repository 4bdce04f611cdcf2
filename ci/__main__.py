"""Entry point of ``python -m ci``."""

import sys

from ci.arguments import main

sys.exit(main(sys.argv[1:]))
