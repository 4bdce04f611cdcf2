"""Entry point of ``python -m stacks``, which is the command ``slipway``."""

from cli.main import run

run()
