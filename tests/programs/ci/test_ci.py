"""``python -m ci`` against stand-ins of git remotes, GitHub's API and the issuer of identity tokens."""

from __future__ import annotations

import subprocess
import sys

from ci import repository
from tests.helpers.every import every


@every("verb", ["comment", "record", "published", "propose"])
def test_verb_imports_without_packages(verb: str) -> None:
    """Those that workflows run with the machine's own ``python3``; ``-S`` leaves out all that is installed."""
    subprocess.run(
        [sys.executable, "-S", "-c", f"import ci.arguments, ci.verbs.{verb}"], cwd=repository.ROOT, check=True
    )
