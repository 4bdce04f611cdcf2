"""Pulumi on one stack, with the shared backend or a temporary one."""

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
from containers.child_environment import NETWORK_SECONDS, PASSWORD
from containers.errors import SlipwayError, one_line
from stacks.config.load import without_secure
from stacks.plan import Plan
from toolchain import environment, ready
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.locking import alone
from toolchain.machine.steps import output, say
from toolchain.pulumi_run import pulumi_process, stack_command, withheld

_STATE_TIMEOUT = 300.0
"""Seconds for a command that reads or writes the state."""

_SHARED_STATE = {"PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE"}
"""Pulumi's settings that a shared state needs, and the toolchain removes for the state in ``.slipway``."""

_UP = "update"
"""The kind of a ``pulumi up`` in the history (sdk/go/common/apitype/history.go)."""

_REGISTRY = "**slipway:registry:**"
"""The URNs of a registry and its children."""
_PARENTS = "**dynamic/image:VerifiedParent::**"
"""The URNs of verified outside parents."""
_PRODUCTS = "**dynamic/image:Published::**"
"""The URNs of lookups of build products in the registry, on which images depend."""
_ENGINES = "**pulumi:providers:docker::engine-**"
"""The URNs of the engines of a stack's platforms."""
_UNPUSHED = "**dynamic/image:UnpushedImage::**"
"""The URNs of inspections of images that are not pushed, on which the images made of these depend."""
_ATTESTED = ("signature", "sbom", "provenance", "loading", "scan", "vex")
_SUFFIXES = ("push", "checks", "tag", *_ATTESTED, "keep", "tag-*")
"""The names of an image's resources that follow its build, after the image's name and a dash."""


class Stack:
    """A stack on a backend: its name there, its configuration file, and Pulumi's environment variables."""

    def __init__(self, checkout: Checkout, name: str, configuration: Path, variables: Mapping[str, str]) -> None:
        self._checkout = checkout
        self._name = name
        self._configuration = configuration
        self._variables = variables

    def create(self, secrets_provider: str = "") -> None:
        """Create the stack if it does not exist."""
        # Run in another folder: in the checkout Pulumi would write an encryption salt into the tracked file.
        write(self._configuration.parent / "Pulumi.yaml", f"name: {stack_command.PROJECT}\nruntime: python\n")
        with_provider = ["--secrets-provider", secrets_provider] if secrets_provider else []
        self._output("--cwd", str(self._configuration.parent), "stack", "select", "--create", *with_provider)

    def up(self, targets: Iterable[str], *, attesting: bool = True) -> int:
        """Build and push the images ``targets``, or all if it is empty; return Pulumi's exit status.

        Without ``attesting``, targets are neither signed nor attested.
        """
        words = self._words("up", "--yes", "--skip-preview", *_only(targets, attesting=attesting))
        return pulumi_process.run(words, self._variables, self._checkout.root)

    def preview(self, targets: Iterable[str]) -> tuple[int, str]:
        """Run a preview, print its output, and return its exit status and output."""
        words = self._words("preview", "--color", "never", *_only(targets))
        completed = subprocess.run(
            words,
            cwd=self._checkout.root,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=NETWORK_SECONDS,
        )
        say(completed.stdout)
        return completed.returncode, completed.stdout

    def export(self) -> dict[str, Any]:
        """Return the state, with encrypted secrets."""
        state: dict[str, Any] = json.loads(self._output("stack", "export"))
        return state

    def commit(self) -> str | None:
        """Return the commit of the last update, finished or not, in Pulumi's history."""
        updates = (update for update in json.loads(self._output("stack", "history", "--json")) if update["kind"] == _UP)
        return next(((update["environment"] or {}).get("git.head") for update in updates), None)

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the stack's state."""
        file = self._configuration.with_suffix(".json")
        write(file, json.dumps(state))
        self._output("stack", "import", "--file", str(file))

    def _words(self, verb: str, *words: str) -> list[str]:
        return ["pulumi", verb, "--stack", self._name, "--config-file", str(self._configuration), *words]

    def _output(self, *words: str) -> str:
        return output(
            ["pulumi", "--non-interactive", *words, "--stack", self._name],
            env=self._variables,
            cwd=self._checkout.root,
            timeout=_STATE_TIMEOUT,
        )


@contextmanager
def shared(checkout: Checkout, stack: str, *, emulating: bool = True) -> Iterator[Stack]:
    """Yield a stack on the backend in the repository's variables, with the job's identity.

    Without ``emulating``, this machine builds nothing that is for another platform than its own.

    Raises:
        SlipwayError: no backend is set, or the job has no identity.
        ToolchainError: the machine cannot be prepared, or the backend is inaccessible.
    """
    backend, tracked = variable("PULUMI_BACKEND_URL"), stack_command.check_name(checkout, stack)
    organization = os.environ.get("PULUMI_ORGANIZATION", "")
    name = f"{organization}/{stack_command.PROJECT}/{stack}" if organization else stack
    text = tracked.read_text(encoding="utf-8")
    with _folder(checkout) as folder, withheld.withheld(withheld.names(text), defined):
        variables = prepared(checkout, stack, emulating=emulating)
        # The state names its own secrets provider, so the tracked configuration need not.
        variables |= {"PULUMI_BACKEND_URL": backend, "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true"}
        variables |= {key: os.environ[key] for key in _SHARED_STATE if os.environ.get(key)}
        with tokens(folder) as token_files:
            configuration = folder / tracked.name
            write(configuration, text, mode=0o600)
            opened = Stack(checkout, name, configuration, variables | token_files)
            with _login(organization, backend, folder, variables):
                opened.create(os.environ.get("PULUMI_SECRETS_PROVIDER", ""))
                yield opened


@contextmanager
def temporary(checkout: Checkout, stack: str) -> Iterator[Stack]:
    """Yield an empty stack on a temporary backend; it pushes nothing and has no secrets.

    Raises ToolchainError: the machine cannot be prepared.
    """
    tracked = stack_command.check_name(checkout, stack)
    variables = prepared(checkout, stack, pushing=False)
    with _folder(checkout) as folder:
        (folder / "state").mkdir()
        variables |= {
            "PULUMI_BACKEND_URL": (folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_urlsafe(),
        }
        configuration = folder / tracked.name
        write(configuration, unpublished(tracked.read_text(encoding="utf-8")))
        created = Stack(checkout, stack, configuration, variables)
        created.create()
        yield created


_ELSEWHERE = {"slipway:runners", "slipway:buildOn", "slipway:engines"}


def unpublished(text: str) -> str:
    """Return a stack's configuration with ``publish: false``, and without its secrets, runners and engines.

    These need access to a cloud, a cluster or another machine, which a preview does not have.
    """
    document = yaml.load(text, yaml.BaseLoader) or {}  # noqa: S506 - it constructs only text
    values = without_secure(document.get("config") or {})
    config = {key: value for key, value in values.items() if key not in _ELSEWHERE}
    return yaml.safe_dump({"config": {**config, "slipway:publish": False}})


def selected(plan: Plan, image: str = "", platform: str = "") -> list[str]:
    """Return an image of a plan and all its ancestors in the plan, parents first, and then their indexes.

    ``image`` is the name of one, or of an index, which stands for the images of its platforms. Without it, all are
    taken. ``platform`` leaves out what is for another one. An index is there if the images of all its platforms are.

    Raises SlipwayError: the stack has no such image, or is not for that platform.
    """
    parts = {name: [part.spec.name for part in images] for name, images in plan.indexes.items()}
    taken = {each.spec.name for each in plan.select(image or None)}
    platforms = plan.config.every_platform
    if platform and platform not in platforms:
        raise SlipwayError(f"stack {plan.stack} is not for {one_line(platform)}; it is for {' and '.join(platforms)}")
    if platform and parts:
        # A product that is equal on all platforms is taken with the images made of it.
        taken -= {each.spec.name for each in plan.images if not each.spec.repository or each.spec.platform != platform}
    if not taken:
        raise SlipwayError(f"stack {plan.stack}: {one_line(image)} is not for {platform} alone")
    for planned in reversed(plan.images):
        if planned.spec.name in taken:
            taken |= {*planned.siblings.values()}
    return [
        *(each.spec.name for each in plan.images if each.spec.name in taken),
        *(index for index, own in parts.items() if taken.issuperset(own)),
    ]


def _only(targets: Iterable[str], *, attesting: bool = True) -> list[str]:
    """Return Pulumi's options for these images, their resources and their registry; none for no image."""
    suffixes = [f"-{each}" for each in _SUFFIXES if attesting or each not in _ATTESTED]
    urns = [f"**::{name}{suffix}" for name in targets for suffix in ("", *suffixes)]
    return [
        word
        for urn in [*urns, *([_REGISTRY, _PARENTS, _PRODUCTS, _ENGINES, _UNPUSHED] if urns else [])]
        for word in ("--target", urn)
    ]


def prepared(checkout: Checkout, stack: str, *, pushing: bool = True, emulating: bool = True) -> dict[str, str]:
    """Prepare the machine for a stack, and return the environment without the state's location and passphrase."""
    environment.prepare()
    with alone(checkout, "ci"), withheld.hidden(_SHARED_STATE):
        parts = ready.ready(checkout, stack, pushing=pushing, emulating=emulating)
    variables = environment.variables(checkout, parts)
    return defined({key: value for key, value in variables.items() if key != "PULUMI_CONFIG_PASSPHRASE_FILE"})


def defined(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are not empty; a workflow passes an undefined variable as an empty one.

    With a signing key, an empty password is kept: GitHub has no empty secrets.
    """
    key = variables.get(withheld.KEY)
    return {name: value for name, value in variables.items() if value or (key and name == PASSWORD)}


@contextmanager
def _folder(checkout: Checkout) -> Iterator[Path]:
    checkout.state.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="ci-", dir=checkout.state))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _login(organization: str, backend: str, folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Log in to Pulumi Cloud with the job's identity for at most a day; other backends have no Pulumi login."""
    if not organization or "PULUMI_ACCESS_TOKEN" in variables:
        yield
        return
    file = folder / "pulumi-token"
    write(file, token(f"urn:pulumi:org:{organization}"), mode=0o600)
    # `file://` before the path as it is: Pulumi does not decode a URI.
    exchanged = ["--oidc-token", f"file://{file}", "--oidc-org", organization, "--oidc-expiration", "24h"]
    output(["pulumi", "login", backend, *exchanged], env=variables, timeout=_STATE_TIMEOUT)
    try:
        yield
    finally:
        output(["pulumi", "logout", backend], env=variables, timeout=_STATE_TIMEOUT)
