"""The release of a tag: its wheel, and the requirement that pins it in a repository of one's own."""

import hashlib
import os
import sys
from pathlib import Path

from containers.child_environment import LOCAL_SECONDS, child_environment
from stacks.places import PIN
from toolchain.checkout import Checkout
from toolchain.machine.steps import output, say
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.release import own_repository


def build(checkout: Checkout, tag: str, folder: Path) -> int:
    """Build what the release of a tag publishes into a folder: the wheel, and ``requirements.txt`` with its hash.

    The address is the GitHub release's, in the job's repository (GITHUB_REPOSITORY).

    Raises ToolchainError: the tag is not that of the version in pyproject.toml, or no job runs this.
    """
    version = own_repository.version()
    if tag != f"v{version}":
        raise ToolchainError(
            f"release: the tag {tag[:80]!r} is not v{version}, which pyproject.toml has: set the version there, "
            "commit it, and tag that commit"
        )
    job = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")
    if missing := [name for name in job if not os.environ.get(name)]:
        raise ToolchainError(f"release: {' and '.join(missing)} not set: push the tag, for the workflow `release`")
    target = folder.absolute()
    words: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target]
    output(words, env=child_environment("python"), cwd=checkout.root, timeout=LOCAL_SECONDS)
    name = own_repository.wheel(version)
    digest = hashlib.sha256((target / name).read_bytes()).hexdigest()
    page = "/".join(os.environ[name] for name in job)
    requirement = f"slipway @ {page}/releases/download/{tag}/{name} --hash=sha256:{digest}"
    (target / PIN).write_text(f"{requirement}\n", encoding="utf-8")
    say(requirement)
    return 0
