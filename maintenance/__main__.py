"""Start the maintainers' command: ``python -m maintenance``."""

from cli.main import run
from maintenance.commands import maintenance

if __name__ == "__main__":
    run(maintenance, "python -m maintenance")
