"""Entry point of ``python -m stacks``, the command ``slipway`` by its older name."""

from cli.main import run

run()
