"""A developer's machine at its worst: `python -m tests.helpers.hostile_home COMMAND...` runs a command on it.

It fails where the command does, and where a program that the settings name was started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

NOWHERE: Final = "http://127.0.0.1:9"
"""An address where nobody listens."""

FILES: Final = {
    ".gitconfig": """\
[user]
    signingkey = 0000000000000000
[commit]
    gpgsign = true
    template = {home}/no-such-template
[tag]
    gpgsign = true
[gpg]
    program = {trap}
[core]
    hooksPath = {home}/hooks
    editor = {trap}
    autocrlf = true
    fsmonitor = {trap}
[credential]
    helper = {trap}
[init]
    defaultBranch = trunk
[url "ssh://git@nowhere.invalid/"]
    insteadOf = https://
    insteadOf = file://
    insteadOf = /
""",
    ".docker/config.json": """\
{{
  "credsStore": "not-installed-here",
  "currentContext": "gone",
  "HttpHeaders": {{"X-Developer": "canary"}},
  "proxies": {{"default": {{"httpProxy": "{nowhere}"}}}}
}}
""",
    ".aws/config": """\
[default]
sso_session = work
[profile work]
sso_session = work
sso_account_id = 123456789012
sso_role_name = admin
region = xx-nowhere-1
endpoint_url = {nowhere}
[sso-session work]
sso_start_url = {nowhere}
sso_region = xx-nowhere-1
""",
    ".config/pip/pip.conf": "[global]\nextra-index-url = {nowhere}/simple\nrequire-virtualenv = true\n",
    ".config/uv/uv.toml": 'extra-index-url = ["{nowhere}/simple"]\n',
    ".config/gh/hosts.yml": "github.com:\n  oauth_token: canary\n",
    ".netrc": "default login canary password canary\n",
    ".kube/config": "current-context: gone\n",
}
"""The settings of a user: by file, its text."""


def _variables(home: Path, trap: Path) -> dict[str, str]:
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), NOWHERE)
    canaries = ("GITHUB_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "PULUMI_ACCESS_TOKEN")
    return {
        **proxies,
        **dict.fromkeys(canaries, "canary"),
        "HOME": str(home),
        "AWS_PROFILE": "work",
        "AWS_REGION": "xx-nowhere-1",
        "DOCKER_CONTEXT": "gone",
        "DOCKER_HOST": "tcp://127.0.0.1:9",
        "DOCKER_DEFAULT_PLATFORM": "linux/s390x",
        "DOCKER_BUILDKIT": "0",
        "GIT_AUTHOR_NAME": "canary",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_SSH_COMMAND": str(trap),
        "GIT_ASKPASS": str(trap),
        "SSH_ASKPASS": str(trap),
        "EDITOR": str(trap),
        "PIP_EXTRA_INDEX_URL": f"{NOWHERE}/simple",
        "KUBECONFIG": str(home / ".kube/config"),
        "PULUMI_BACKEND_URL": "s3://nowhere",
        "SLIPWAY_REGISTRY": "127.0.0.1:9",
        "TAR_OPTIONS": "--verbose --no-such-option",
        "GREP_OPTIONS": "--no-such-option",
        "CDPATH": str(home),
        "LC_ALL": "C",
        "LANGUAGE": "de",
        "TZ": "Pacific/Kiritimati",
        "COLUMNS": "40",
        "FORCE_COLOR": "1",
        "CI": "true",
        "GITHUB_ACTIONS": "true",
    }


def run(home: Path, *command: str | Path) -> int:
    """Run a command with hostile settings below `home`. Return its status, or 1 if it started what they name."""
    touched, trap = home / "touched", home / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {touched}\nexit 1\n')
    trap.chmod(0o755)
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text.format(home=home, trap=trap, nowhere=NOWHERE))
    (home / "hooks").mkdir()
    for hook in ("pre-commit", "commit-msg", "post-checkout", "post-merge", "reference-transaction", "pre-push"):
        (home / "hooks" / hook).symlink_to(trap)
    environment = {**os.environ, **_variables(home, trap)}
    status = subprocess.run(command, env=environment, umask=0o077, stdin=subprocess.DEVNULL, check=False).returncode
    if touched.exists():
        sys.stderr.write(f"a developer's program was started:\n{touched.read_text()}")
    return status or int(touched.exists())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="slipway-hostile-") as folder:
        sys.exit(run(Path(folder), *sys.argv[1:]))
