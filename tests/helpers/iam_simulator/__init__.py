"""IAM's verdict on requests, by an established evaluator: iam-simulate of Cloud Copilot, and AWS's own list of actions.

It knows each action's resources and condition keys (AWS's Service Authorization Reference), refuses a policy, an action
or a key that AWS does not know, and weighs a permissions boundary. It runs as a program of its own, by Node.
"""

from __future__ import annotations

import fcntl
import fnmatch
import functools
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stacks.config.stack_file import ROOT

ACCOUNT = "123456789012"
_HERE = Path(__file__).parent
_FILES = ("package.json", "package-lock.json", "simulate.mjs")

_STANDS_IN = {"ec2:osuser": "aws:SourceIdentity"}
"""A key of EC2 in requests to EC2 Instance Connect, which this evaluator does not find: another text in its place."""

Policy = Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """A request: what for, on what, and what AWS knows of it."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


def allowed(policy: Policy, ask: Ask, boundary: Policy | None = None) -> bool:
    """Tell whether AWS allows a request to who has a policy, and a boundary if there is one.

    A key of the context that AWS does not send with the request counts as not there.
    """
    return _answer(ask, _about(policy, ask.action), boundary and _about(boundary, ask.action)) == "Allowed"


def check(policy: Policy) -> None:
    """Fail on a policy that AWS does not take, whatever is asked of it."""
    _answer(
        Ask("sts:GetCallerIdentity"), {**policy, "Statement": [one for one in policy["Statement"] if one["Action"]]}
    )


def _about(policy: Policy, action: str) -> Policy:
    """Return a policy with the statements that decide on an action alone: policies that differ elsewhere are asked once."""

    def decides(statement: Mapping[str, Any]) -> bool:
        actions = statement["Action"]
        patterns = [actions] if isinstance(actions, str) else actions
        return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return {**policy, "Statement": [one for one in policy["Statement"] if decides(one)] or [_OTHER]}


_OTHER: Final = {"Effect": "Allow", "Action": ["sts:GetCallerIdentity"], "Resource": "*"}
"""A statement on another action, as AWS takes no policy without statements."""


def _answer(ask: Ask, policy: Policy, boundary: Policy | None = None) -> str:
    owner = (ask.resource.split(":") + [""] * 5)[4] or ACCOUNT
    simulation: dict[str, Any] = {
        "request": {
            "principal": f"arn:aws:iam::{ACCOUNT}:role/anybody",
            "action": ask.action,
            "resource": {"resource": ask.resource, "accountId": owner},
            "contextVariables": dict(ask.context),
        },
        "identityPolicies": [{"name": "policy", "policy": policy}],
        "serviceControlPolicies": [],
        "resourceControlPolicies": [],
    }
    if ask.action.startswith("kms:"):  # a key is nobody's without its own policy: by default, its account decides
        allow = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{owner}:root"},
            "Action": "kms:*",
            "Resource": "*",
        }
        simulation["resourcePolicy"] = {"Version": "2012-10-17", "Statement": [allow]}
    if boundary is not None:
        simulation["permissionBoundaryPolicies"] = [{"name": "boundary", "policy": boundary}]
    text = json.dumps(simulation)
    for name, other in _STANDS_IN.items():
        text = text.replace(json.dumps(name), json.dumps(other))
    return _verdict(text)


@functools.cache
def _verdict(simulation: str) -> str:
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{simulation}\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert "errors" not in answer, (answer["errors"], json.loads(simulation)["request"])
    verdict: str = answer["verdict"]
    return verdict


@functools.cache
def _process() -> subprocess.Popen[str]:
    for program in ("node", "npm"):
        assert shutil.which(program), f"the tests of IAM policies need {program} on PATH: install Node.js 20 or later"
    return subprocess.Popen(
        ["node", "simulate.mjs"], cwd=_installed(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _installed() -> Path:
    """Return the folder of the evaluator, whose packages have the hashes of the lock."""
    content = b"".join((_HERE / name).read_bytes() for name in _FILES)
    folder = ROOT / ".slipway/iam-simulator" / hashlib.sha256(content).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            for name in _FILES:
                shutil.copy(_HERE / name, folder)
            words: Sequence[str] = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
            subprocess.run(words, cwd=folder, check=True, timeout=300)
            (folder / "ready").touch()
    return folder
