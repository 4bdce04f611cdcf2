"""Pulumi on one stack: on the backend that all share, or on one that is thrown away."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ci.actions import variable
from ci.identity import token, tokens
from oci.cosign import PASSWORD
from stacks.config.load import without_secure
from stacks.plan import Plan
from toolchain import environment, ready
from toolchain import stack_command as toolchain_stack
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.locking import alone
from toolchain.machine.steps import output, say

_QUICK = 300.0
"""Seconds for what reads or writes the state once."""

_KEY = "COSIGN_PRIVATE_KEY"
"""The variable with the key that signs, where the workflows have one."""

_AGAIN = {"PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE"}
"""Settings of Pulumi that the toolchain drops, for the state in ``.slipway``, and a shared state needs."""

_UP = "update"
"""What the history calls ``pulumi up`` (sdk/go/common/apitype/history.go)."""

_REGISTRY = "**slipway:registry:**"
"""The URNs of a registry and of all that belongs to it."""
_PARENTS = "**dynamic/image:VerifiedParent::**"
"""Those of the outside parents that are verified."""
_PRODUCTS = "**dynamic/image:Published::**"
"""Those of what is asked of a registry before products are built: all that stands on one depends on it."""
_BESIDE = ("signature", "sbom", "provenance", "keep", "tag-*")
"""What follows an image's name and a dash in the names of what is made after a push."""


class Stack:
    """A stack on a backend: its name there, its configuration as Pulumi gets it, and the environment to run in."""

    def __init__(self, checkout: Checkout, name: str, configuration: Path, variables: Mapping[str, str]) -> None:
        self._checkout = checkout
        self._name = name
        self._configuration = configuration
        self._variables = variables

    def create(self, secrets_provider: str = "") -> None:
        """Create the stack where it is not there yet."""
        # From here, for from the checkout Pulumi would write what it makes up into the tracked file.
        write(self._configuration.parent / "Pulumi.yaml", f"name: {toolchain_stack.PROJECT}\nruntime: python\n")
        with_provider = ["--secrets-provider", secrets_provider] if secrets_provider else []
        self._said("--cwd", str(self._configuration.parent), "stack", "select", "--create", *with_provider)

    def up(self, targets: Iterable[str]) -> int:
        """Build and push; return Pulumi's exit status. Only the images of ``targets``, or all where it names none."""
        return self._run("up", "--yes", "--skip-preview", *_only(targets))

    def preview(self, targets: Iterable[str]) -> tuple[int, str]:
        """Return a preview's exit status, and what it says, which is printed too."""
        words = self._words("preview", "--color", "never", *_only(targets))
        done = subprocess.run(
            words,
            cwd=self._checkout.root,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        say(done.stdout)
        return done.returncode, done.stdout

    def export(self) -> dict[str, Any]:
        """Return the state; what is secret in it is encrypted."""
        state: dict[str, Any] = json.loads(self._said("stack", "export"))
        return state

    def commit(self) -> str | None:
        """Return the commit that the stack was last brought up from, or begun to be, as Pulumi's history has it."""
        updates = (update for update in json.loads(self._said("stack", "history", "--json")) if update["kind"] == _UP)
        return next(((update["environment"] or {}).get("git.head") for update in updates), None)

    def load(self, state: Mapping[str, Any]) -> None:
        """Take a state for the stack's own."""
        file = self._configuration.with_suffix(".json")
        write(file, json.dumps(state))
        self._said("stack", "import", "--file", str(file))

    def _run(self, *words: str) -> int:
        code = toolchain_stack.run(self._words(*words), self._variables, self._checkout.root)
        return code if code >= 0 else 128 - code

    def _words(self, verb: str, *words: str) -> list[str]:
        return ["pulumi", verb, "--stack", self._name, "--config-file", str(self._configuration), *words]

    def _said(self, *words: str) -> str:
        return output(
            ["pulumi", "--non-interactive", *words, "--stack", self._name],
            env=self._variables,
            cwd=self._checkout.root,
            timeout=_QUICK,
        )


@contextmanager
def shared(checkout: Checkout, stack: str) -> Iterator[Stack]:
    """Yield a stack on the backend that the repository's variables name, the job's identity at hand.

    Raises:
        SlipwayError: no backend is named, or the job has no identity.
        ToolchainError: the machine cannot be readied, or Pulumi cannot get at the backend.
    """
    backend = variable("PULUMI_BACKEND_URL")
    organization = os.environ.get("PULUMI_ORGANIZATION", "")
    name = f"{organization}/{toolchain_stack.PROJECT}/{stack}" if organization else stack
    variables = _readied(checkout, stack)
    # What encrypts the state is known by the state itself; the tracked configuration need not say it.
    variables |= {"PULUMI_BACKEND_URL": backend, "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true"}
    variables |= {key: os.environ[key] for key in _AGAIN if os.environ.get(key)}
    tracked = toolchain_stack.check_name(checkout, stack)
    with _folder(checkout) as folder, tokens(folder) as named:
        configuration = folder / tracked.name
        write(configuration, tracked.read_text(encoding="utf-8"), mode=0o600)
        at = Stack(checkout, name, configuration, variables | named)
        with _login(organization, backend, folder, variables):
            at.create(os.environ.get("PULUMI_SECRETS_PROVIDER", ""))
            yield at


@contextmanager
def throwaway(checkout: Checkout, stack: str) -> Iterator[Stack]:
    """Yield a stack that knows nothing, on a backend that is gone afterwards; it pushes nothing and has no secret.

    Raises:
        ToolchainError: the machine cannot be readied.
    """
    variables = _readied(checkout, stack, pushing=False)
    tracked = toolchain_stack.check_name(checkout, stack)
    with _folder(checkout) as folder:
        (folder / "state").mkdir()
        variables |= {
            "PULUMI_BACKEND_URL": (folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_urlsafe(),
        }
        configuration = folder / tracked.name
        write(configuration, unpublished(tracked.read_text(encoding="utf-8")))
        at = Stack(checkout, stack, configuration, variables)
        at.create()
        yield at


_RUNNERS = {"slipway:runners", "slipway:buildOn"}


def unpublished(text: str) -> str:
    """Return a stack's configuration so that it pushes nothing, and can be read without the key of its secrets.

    Its runners are left out: they are in a cloud, or on a cluster, that only who publishes may see.
    """
    document = yaml.load(text, yaml.BaseLoader) or {}  # noqa: S506 - it makes nothing but text
    said = without_secure(document.get("config") or {})
    kept = {key: value for key, value in said.items() if key not in _RUNNERS}
    return yaml.safe_dump({"config": {**kept, "slipway:publish": False}})


def with_parents(plan: Plan, image: str) -> list[str]:
    """Return an image of a plan and all of the plan's that it is made of, parents first."""
    wanted = {image}
    for planned in reversed(plan.images):
        if planned.spec.name in wanted:
            wanted |= set(planned.siblings.values())
    return [planned.spec.name for planned in plan.images if planned.spec.name in wanted]


def _only(targets: Iterable[str]) -> list[str]:
    """Return the options for these images, what belongs to them and where they are pushed; none where none is named."""
    urns = [f"**::{name}{what}" for name in targets for what in ("", *(f"-{beside}" for beside in _BESIDE))]
    return [word for urn in [*urns, *([_REGISTRY, _PARENTS, _PRODUCTS] if urns else [])] for word in ("--target", urn)]


def _readied(checkout: Checkout, stack: str, *, pushing: bool = True) -> dict[str, str]:
    """Ready the machine for a stack and return its environment, without a place of the state and what opens it."""
    environment.prepare()
    toolchain_stack.check_name(checkout, stack)
    with alone(checkout, "ci"):
        variables = environment.variables(checkout, ready.ready(checkout, stack, pushing=pushing))
    return defined({key: value for key, value in variables.items() if key != "PULUMI_CONFIG_PASSPHRASE_FILE"})


def defined(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables but the empty ones, which is what a workflow makes of those that nobody has defined.

    Beside a key that signs an empty password is one: GitHub knows no secret that is empty.
    """
    kept = {PASSWORD} if variables.get(_KEY) else set()
    return {key: value for key, value in variables.items() if value or key in kept}


@contextmanager
def _folder(checkout: Checkout) -> Iterator[Path]:
    checkout.state.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="ci-", dir=checkout.state))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _login(organization: str, backend: str, folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Log in to Pulumi Cloud as the job, for as long as one may last; other backends know nobody by Pulumi's login."""
    if not organization or "PULUMI_ACCESS_TOKEN" in variables:
        yield
        return
    file = folder / "pulumi-token"
    write(file, token(f"urn:pulumi:org:{organization}"), mode=0o600)
    # A path with this before it, and no address, in which some characters would be written otherwise.
    exchanged = ["--oidc-token", f"file://{file}", "--oidc-org", organization, "--oidc-expiration", "24h"]
    output(["pulumi", "login", backend, *exchanged], env=variables, timeout=_QUICK)
    try:
        yield
    finally:
        output(["pulumi", "logout", backend], env=variables, timeout=_QUICK)
