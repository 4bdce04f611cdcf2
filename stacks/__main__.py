"""Entry point of ``python -m stacks``."""

import sys

from stacks.cli import main

sys.exit(main())
