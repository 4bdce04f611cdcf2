"""One step of what lets a repository's jobs publish, and how its commands and its question are written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from containers.child_environment import child_environment
from containers.child_program import run_program
from containers.errors import MALFORMED, one_line

ENVIRONMENT: Final = "publish"
"""The environment of the jobs that publish, in the workflows."""
ROLE: Final = "slipway-publish"
"""What the names begin with of what the jobs are in a cloud: a role of AWS, an app of Azure, an account of Google."""
NAME: Final = f"{ROLE}-$id"
"""In a shell, after the line :func:`identity`, the name of one repository's: another in the account has its own. AWS
allows 64 characters ("CreateRole"), Google 32 for a pool and 30 for an account ("Method:
projects.locations.workloadIdentityPools.create", "projects.serviceAccounts.create")."""
TITLE: Final = f"{ROLE}-ID"
"""The name in a title: the id is GitHub's to say."""
BRANCH: Final = "main"
"""The branch whose jobs may use it."""
ISSUER: Final = "token.actions.githubusercontent.com"
"""The issuer of GitHub's tokens."""
SUBJECT: Final = "$subject"
"""In a shell, whom GitHub's tokens name, after the line :func:`subject`."""
_HOST: Final = "github.com"
_SETTINGS: Final = (f"GH_HOST={_HOST}", "AWS_PAGER=")
"""`gh` may be logged in to another host, or `GH_HOST` name it ("gh help environment"). In a terminal `aws` shows what
is longer than a screen in a pager, and waits (aws-cli at 01feddff, awscli/utils.py, OutputStreamFactory)."""
FIRST: Final = ("set -eu", f"export {' '.join(_SETTINGS)}")
"""What the commands begin with."""
_SECONDS: Final = 60
"""How long a question may take."""


@dataclass(frozen=True)
class Step:
    """One thing that must be there.

    ``commands`` make it, and ``question`` asks for it as JSON. ``fault`` is the mistake in its answer, or empty.
    """

    title: str
    commands: tuple[str, ...]
    question: tuple[str, ...]
    fault: Callable[[Any], str]

    def alone(self) -> str:
        """Return the commands as one, whose first failure is its own wherever it is run."""
        return shlex.join(["env", *_SETTINGS, "sh", "-euc", "\n".join(self.commands)])

    def missing(self) -> str:
        """Return what is missing on one line; empty if all is there. Nothing is changed."""
        program = self.question[0]
        try:
            environment = child_environment("github init" if program == "sh" else program, GH_HOST=_HOST)
            done = run_program(self.question, _SECONDS, env=environment)
            if done.returncode:
                lines = (done.stderr.strip() or done.stdout.strip() or "it fails").splitlines()
                # `gcloud`, `az` and `gh` print the mistake first, and then some lines of advice.
                first = ("ERROR", "To get started")
                return one_line(next((line for line in lines if line.startswith(first)), lines[-1]), 160)
            return self.fault(json.loads(done.stdout))
        except FileNotFoundError:
            return f"unknown: {program} is not on PATH"
        except subprocess.TimeoutExpired:
            return f"unknown: {program} did not answer within {_SECONDS} s"
        except MALFORMED:
            return f"unknown: {program} answers in another form than documented"


def subject(repository: str) -> str:
    """Return the line of a shell that asks GitHub for the subject of its tokens in a job of the environment.

    That is repo:acme/images:..., or for a repository made, renamed or moved since 2026-07-15 repo:acme@1/images@2:...
    (github/docs at 051718f2, content/actions/reference/security/oidc.md, "Immutable subject claims"). An answer without
    ``sub_claim_prefix`` is of the first (github.com/Azure/azure-dev/pull/9430). A subject of other claims is refused:
    it has another form ("Set the customization template for an OIDC subject claim for a repository").
    """
    path = f"repos/{repository}/actions/oidc/customization/sub"
    own = f"the repository has a subject of its own: gh api --method PUT {path} --field use_default=true"
    query = f'if .use_default == false and .include_claim_keys != ["repo","context"] then error("{own}")'
    prefix = f"gh api {path} --jq '{query} else .sub_claim_prefix // \"repo:{repository}\" end'"
    return f"subject=$({prefix}):environment:{ENVIRONMENT}"


def identity(repository: str) -> str:
    """Return the line of a shell that asks GitHub for the repository's id. A later one of its name has another."""
    return f"id=$(gh api repos/{repository} --jq .id)"


def asked(line: str) -> tuple[str, ...]:
    """Return a question that is a line of a shell: it first asks for what only the cloud knows."""
    return ("sh", "-euc", line)


def asked_with(first: str, name: str, *commands: str) -> tuple[str, ...]:
    """Return the question for a name that the shell knows after ``first``, and for the commands' answers."""
    lines = "; ".join(f"there{number}=$({command})" for number, command in enumerate(commands))
    there = ",".join(f"$there{number}" for number in range(len(commands)))
    return asked(f'{first}; {lines}; printf \'{{"name": "%s", "there": [%s]}}\' "{name}" "{there}"')


def variable(repository: str, name: str, value: str, environment: str = "", *, lines: Sequence[str] = ()) -> Step:
    """Return the step of a variable of the repository, or of an environment of it.

    ``lines`` of a shell set variables for ``value``: only the cloud or GitHub knows their values.
    """
    place = f"environments/{environment}/variables" if environment else "actions/variables"
    option = f" --env {environment}" if environment else ""
    there, word = f"repos/{repository}/{place}/{name}", f'"{value}"' if lines else shlex.quote(value)
    question = f'there=$(gh api {there} --jq .value); printf \'["%s", "%s"]\' "$there" {word}'
    return Step(
        f"variable {name}",
        (*lines, f"gh variable set {name} --repo {repository}{option} --body {word}"),
        asked("; ".join([*lines, question])) if lines else ("gh", "api", there),
        lambda answer: differs(name, *(answer if lines else (answer["value"], value))),
    )


def document(content: Any) -> str:
    """Return JSON as a word of a shell, in which ``SUBJECT`` is the variable."""
    return shell(json.dumps(content, indent=2)).replace(SUBJECT, f"'\"{SUBJECT}\"'")


def named(content: Any, whom: str) -> Any:
    """Return JSON with ``whom`` in place of ``SUBJECT``."""
    return json.loads(json.dumps(content).replace(SUBJECT, whom))


def shell(text: str) -> str:
    """Return a word of a shell in which the unknown account of an ARN is the variable ``account``."""
    return re.sub(r"(arn:aws:[a-z]+:[a-z0-9-]*):\*:", "\\1:'\"$account\"':", shlex.quote(text))


def held(wanted: Iterable[str], there: Iterable[str]) -> str:
    """Return in words the missing rights, and the needless ones; nothing if all fits."""
    more = [f"{each} is more than it needs" for each in sorted({*there} - {*wanted})]
    return one_line("; ".join([*sorted({*wanted} - {*there}), *more]), 400)


def differs(what: str, there: Any, wanted: Any) -> str:
    """Return in words how a state differs from the wanted one; nothing if it does not."""
    return (
        ""
        if there == wanted
        else f"{what}: {one_line(json.dumps(there), 160)}, expected {one_line(json.dumps(wanted), 600)}"
    )
