"""``python -m ci affected``: the matrix of the stacks that a change touches, from ``python -m stacks affected``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ci import actions, published
from ci.repository import ROOT
from stacks import affected, plan
from stacks.config import StackConfig
from stacks.errors import SlipwayError
from stacks.git import git
from toolchain.needs import needs

HOSTED = {"linux/amd64": "ubuntu-24.04", "linux/arm64": "ubuntu-24.04-arm"}
"""GitHub's own runners by platform."""

_NOTHING = "0" * 40
"""The commit before all others, as GitHub writes it."""


def run(options: argparse.Namespace) -> int:
    """Set the output ``matrix``, and say why each stack is in it.

    Raises:
        SlipwayError: the clone is shallow, or ``affected`` refuses.
    """
    if (git(ROOT, "rev-parse", "--is-shallow-repository") or "").strip() != "false":
        raise SlipwayError(f"{ROOT}: its history is not all here: give actions/checkout `fetch-depth: 0`")
    found = affected.since(options.since or _last(ROOT), ROOT)
    said = "\n".join([*affected.unknown(found), *affected.lines(found)])
    print(said)
    actions.summary(f"```text\n{said}\n```\n")
    jobs = [_job(row) for row in found.as_matrix()["include"] if options.since or _is_published(row["stack"])]
    actions.output("matrix", json.dumps({"include": jobs}))
    return 0


def runner(config: StackConfig) -> list[str]:
    """Return the labels of the runners that publish a stack: its own, else GitHub's for its platform."""
    return list(config.runs_on) or [HOSTED[config.platform]]


def _last(root: Path) -> str:
    """Return the commit up to which everything is published, unless it is of a history that has been rewritten."""
    commit = published.commit(root) or _NOTHING
    return commit if git(root, "cat-file", "-e", f"{commit}^{{commit}}") is not None else _NOTHING


def _job(row: dict[str, Any]) -> dict[str, Any]:
    config, _ = plan.resolve(row["stack"])
    return {**row, "platform": config.platform, "runner": runner(config)}


def _is_published(stack: str) -> bool:
    """Say whether a stack is pushed at all, and elsewhere than to the machine that builds it."""
    config, _ = plan.resolve(stack)
    if config.publish and not needs(stack)["registry"]:
        return True
    print(f"{stack}: not published: slipway:registry names the machine's own, or slipway:publish is false")
    return False
