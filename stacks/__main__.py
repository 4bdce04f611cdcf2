"""Entry point of ``python -m stacks``."""

import signal
import sys

from cli.main import main

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us, without a traceback
sys.exit(main())
