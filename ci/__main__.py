"""Entry point of ``python -m ci``."""

import sys

from ci.arguments import main
from containers.errors import clean_output

clean_output()
sys.exit(main(sys.argv[1:]))
