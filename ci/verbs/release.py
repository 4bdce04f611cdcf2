"""``python -m ci release``: the wheel of a tag, and the requirement by which a repository of one's own pins it."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys

from ci import actions
from ci.repository import ROOT
from containers.child_environment import LOCAL_SECONDS, child_environment
from containers.errors import SlipwayError, one_line
from stacks.places import PIN
from toolchain.release import own_repository


def run(options: argparse.Namespace) -> int:
    """Build what the release of a tag publishes into a folder: the wheel, and ``requirements.txt`` with its hash.

    Raises:
        SlipwayError: the tag is not that of the version in pyproject.toml.
    """
    version = own_repository.version()
    if options.tag != f"v{version}":
        raise SlipwayError(
            f"the tag '{one_line(options.tag)}' is not v{version}, whose version pyproject.toml has: set the version "
            "there, commit it, and tag that commit"
        )
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", options.to.absolute()],
        cwd=ROOT,
        env=child_environment("python"),
        check=True,
        timeout=LOCAL_SECONDS,
    )
    name = own_repository.wheel(version)
    digest = hashlib.sha256((options.to / name).read_bytes()).hexdigest()
    page = f"{actions.variable('GITHUB_SERVER_URL')}/{actions.variable('GITHUB_REPOSITORY')}"
    requirement = f"slipway @ {page}/releases/download/{options.tag}/{name} --hash=sha256:{digest}\n"
    (options.to / PIN).write_text(requirement, encoding="utf-8")
    print(requirement, end="")
    return 0
