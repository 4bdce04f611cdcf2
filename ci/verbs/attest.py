"""``python -m ci attest``: sign and attest the statements of the job that built a stack. This job builds nothing.

It runs the code of its own workflow's commit. What was built, and the statements, are data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ci import actions, identity
from containers.errors import SlipwayError, one_line
from containers.evidence import cosign, shape, slsa
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from containers.registry.reference import Reference
from stacks.config.registries import Registry
from stacks.config.signing import SigningConfig
from stacks.config.stack_file import read_stack
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

_GITHUB_GROUP = "GitHub Actions"
"""The group of the runners that GitHub hosts (docs, "REST API endpoints for workflow jobs")."""


def run(options: argparse.Namespace) -> int:
    """Sign each statement; return 0.

    Raises SlipwayError: the statements are not those that the job output, the stack requires another signer, an image
    is not the stack's, or signing fails.
    """
    content = options.statements.read_bytes()
    if hashlib.sha256(content).hexdigest() != options.digest:
        raise SlipwayError(f"{options.statements}: this is not what the job that built the stack has output")
    values = read_stack(options.stack, options.source)
    try:
        signing = SigningConfig.model_validate(values["signing"])
        registry: Registry = TypeAdapter[Registry](Registry).validate_python(values["registry"])
    except (KeyError, ValidationError):
        raise SlipwayError(f"stack {options.stack}: signing or registry is wrong: `slipway check` says why") from None
    own = f"{actions.variable('GITHUB_SERVER_URL')}/{actions.variable('SLIPWAY_WORKFLOW')}"
    if signing.identity != own:
        raise SlipwayError(f"stack {options.stack}: slipway:signing.identity is not {own}, which signs here")
    repository = registry.repository.rstrip("/")
    inputs = {"stack": options.stack, "image": options.image}
    natives = [native["runner"] for native in json.loads(options.natives)]
    machine = _machine([json.loads(options.runner), *natives])
    checkout = Checkout.here()
    with golang.caches(checkout):
        programs = supply_chain_programs.get(checkout, supply_chain_programs.TOOLS[0]).path
    os.environ["PATH"] = os.pathsep.join([*programs, os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder, identity.tokens(Path(folder)) as files:
        os.environ.update(files)
        login = stack_login.configured(registry)
        for ref, kind, states in _statements(content, repository):
            with shape.expected(f"{ref}: {kind}"):
                sealed = slsa.sealed(states, signing, inputs, machine) if kind == "provenance" else states
            _sign(ref, kind, sealed, signing, login)
            print(f"{ref}: {kind}")
    return 0


def _statements(content: bytes, repository: str) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the image, the kind and the content of each statement."""
    with shape.expected("statements"):
        for line in content.decode().splitlines():
            statement = json.loads(line)
            ref, kind, states = (statement[name] for name in ("ref", "kind", "states"))
            image = Reference.of(ref)
            if not image.repository.startswith(f"{repository}/") or not image.digest.startswith("sha256:"):
                raise SlipwayError(f"statements: {one_line(ref)} is not an image of {repository} by its digest")
            if kind not in {cosign.SIGNATURE, *cosign.PREDICATES}:
                raise SlipwayError(f"statements: {one_line(str(kind))} is not a kind of statement")
            yield ref, kind, {**states}


def _sign(ref: str, kind: Any, states: Mapping[str, Any], signing: SigningConfig, login: Login | None) -> None:
    if kind == cosign.SIGNATURE:
        cosign.sign(ref, signing, login, states)
    else:
        cosign.attest(ref, kind, states, signing, login)


def _machine(runners: Iterable[Iterable[str]]) -> str:
    """Return the host of this run's machines with the labels of those that built, as GitHub's API states it.

    A caller can name a job as it likes, and a runner of its own can have any label. So each such job counts.
    """
    wanted = [set(labels) for labels in runners]
    path = f"actions/runs/{actions.variable('GITHUB_RUN_ID')}/attempts/{actions.variable('GITHUB_RUN_ATTEMPT')}/jobs"
    groups: list[set[str]] = [set() for _ in wanted]
    page, count = 1, 0
    while True:
        response = actions.api("GET", f"{path}?per_page={actions.PAGE}&page={page}")
        with shape.expected("the run's jobs"):
            for job in response["jobs"]:
                for labels, group in zip(wanted, groups, strict=True):
                    if set(job["labels"]) == labels:
                        group.add(job["runner_group_name"] or "")
            count, page = count + len(response["jobs"]), page + 1
            if not response["jobs"] or count >= response["total_count"]:
                break
    return slsa.HOSTED if groups and all(group == {_GITHUB_GROUP} for group in groups) else "self-hosted"
