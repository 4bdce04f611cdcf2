"""Provenance that claims more than the layout of its jobs gives. By the real cosign, and an authority like Fulcio."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.verify import Evidence
from containers.errors import SlipwayError
from containers.evidence import cosign
from stacks.config.signing import SigningConfig
from tests.helpers import pushed_image, registry_api
from tests.helpers.fulcio import Fulcio
from tests.provider.conftest import private_registry

pytestmark = pytest.mark.slow

ISSUER = "https://token.actions.githubusercontent.com"
BUILDER = "https://github.com/acme/builder/.github/workflows"
TAG = "refs/tags/v1.2.0"
SOURCE, COMMIT, MAIN = "https://github.com/acme/images", "c" * 40, "refs/heads/main"
RUN = f"{SOURCE}/actions/runs/7/attempts/1"
CLAIMS: Mapping[str, str | None] = {
    "issuer": ISSUER,
    "repository": "acme/images",
    "ref": MAIN,
    "workflow": f"{BUILDER}/up.yml@{TAG}",
    "signer": f"{BUILDER}/up.yml@{TAG}",
    "signerDigest": "b" * 40,
    "machine": "github-hosted",
    "sourceRepository": SOURCE,
    "commit": COMMIT,
    "sourceRef": MAIN,
    "started": f"{SOURCE}/.github/workflows/publish.yml@{MAIN}",
    "trigger": "push",
    "run": RUN,
}
"""A job of ``up`` at a release of acme/builder, called by acme/images."""
PROVENANCE: Mapping[str, Any] = {
    "buildDefinition": {
        "buildType": "https://example.com",
        "externalParameters": {
            "configSource": {
                "uri": f"git+{SOURCE}",
                "digest": {"sha1": COMMIT},
                "path": "dockerfiles/torch/Dockerfile",
            },
            "request": {"frontend": "dockerfile.v0", "args": {}},
            "inputs": {"stack": "local", "image": ""},
        },
        "internalParameters": {
            "engine": "machine",
            "ref": MAIN,
            "uncommitted": False,
            "isolation": {"workflow": f"{BUILDER}/build-stack.yml@{TAG}", "machine": "github-hosted"},
        },
        "resolvedDependencies": [],
    },
    "runDetails": {
        "builder": {"id": f"{BUILDER}/up.yml@{TAG}"},
        "metadata": {"invocationId": RUN, "finishedOn": "2026-11-24T12:00:00Z"},
    },
}


class Publisher:
    """Publishes an image and its provenance, and lets `slipway verify` say its level."""

    def __init__(self, fulcio: Fulcio, address: str) -> None:
        self.fulcio, self._address, self._count = fulcio, address, 0

    def push(self) -> str:
        self._count += 1
        return pushed_image.push(f"{self._address}/acme/torch:{self._count}", str(self._count))

    def attest(self, ref: str, path: str = "", value: Any = None, **claims: str | None) -> None:
        """Attest provenance whose entry at ``path`` is ``value``, or is missing."""
        provenance = copy.deepcopy(dict(PROVENANCE))
        if path:
            *folders, name = path.split("/")
            entry = provenance
            for folder in folders:
                entry = entry[folder]
            entry[name] = value
            if value is None:
                del entry[name]
        self.fulcio.attest(ref, provenance, {**CLAIMS, **claims})

    @staticmethod
    def line(ref: str, **config: str) -> str:
        """Return what `slipway verify` prints of the level, or its error."""
        required = {"identity": CLAIMS["workflow"], "issuer": ISSUER, "repository": "acme/images", "ref": MAIN}
        signing = SigningConfig.model_validate({**required, "sbom": False, **config})
        try:
            return Evidence(ref, signing, None, ()).facts()[-1][1].removeprefix("build ")
        except SlipwayError as error:
            return f"refused: {error}"

    def level(
        self, path: str = "", value: Any = None, config: Mapping[str, str] | None = None, **claims: str | None
    ) -> str:
        ref = self.push()
        self.attest(ref, path, value, **claims)
        return self.line(ref, **(config or {}))


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """A publisher with a registry of its own."""
    fulcio = Fulcio.trusted(tmp_path, monkeypatch)
    (tmp_path / "registry").mkdir()
    with private_registry(tmp_path / "registry") as registry:
        yield Publisher(fulcio, registry.address)


INTERNAL = "buildDefinition/internalParameters"
EXTERNAL = "buildDefinition/externalParameters"
TOP = f"{SOURCE}/.github/workflows/publish.yml@{MAIN}"


def as_workflow(workflow: str, **claims: str | None) -> Callable[[Publisher], str]:
    """A layout whose jobs sign as another workflow, which the verifier requires and the provenance names."""

    def level(publisher: Publisher) -> str:
        states = {"workflow": workflow, "signer": workflow, **claims}
        return publisher.level("runDetails/builder", {"id": workflow}, {"identity": workflow}, **states)

    return level


def of_many_subjects(publisher: Publisher) -> str:
    """The statement names two images. cosign takes it for either of them."""
    ref, other = publisher.push(), publisher.push()
    publisher.attest(ref)
    repository = ref.partition("@")[0]
    tag = cosign.attached(ref, "att").rpartition(":")[2]
    host, _, path = repository.partition("/")
    base = f"http://{host}/v2/{path}"
    manifest = json.loads(registry_api.fetch(f"{base}/manifests/{tag}", pushed_image.MANIFEST))
    (layer,) = manifest["layers"]
    envelope = json.loads(registry_api.fetch(f"{base}/blobs/{layer['digest']}"))
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["subject"].append({"name": repository, "digest": {"sha256": other.rpartition(":")[2]}})
    content = json.dumps(publisher.fulcio.envelope(statement)).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    place = registry_api.send("POST", f"{base}/blobs/uploads/").headers["Location"]
    registry_api.send("PUT", place, content, params={"digest": digest}).raise_for_status()
    layer |= {"digest": digest, "size": len(content)}
    pushed_image.put_manifest(base, tag, json.dumps(manifest).encode(), pushed_image.MANIFEST)
    return publisher.line(ref)


def of_another_image(publisher: Publisher) -> str:
    ref, other = publisher.push(), publisher.push()
    publisher.attest(other)
    pushed_image.copy(cosign.attached(other, "att"), cosign.attached(ref, "att"))
    return publisher.line(ref)


def beside_another_certificate(publisher: Publisher) -> str:
    """Whoever may push adds an attestation of a job on their own machine."""
    ref = publisher.push()
    publisher.attest(ref)
    publisher.attest(ref, machine="self-hosted")
    return publisher.line(ref)


def test_level_three_is_printed_for_separate_jobs(publisher: Publisher) -> None:
    assert publisher.level() == (
        f"level 3: attested by a job that builds nothing, of {BUILDER}/up.yml@{TAG}, which {SOURCE} cannot change"
    )
    pinned = f"{BUILDER}/up.yml@{'b' * 40}"
    ref = publisher.push()
    isolation = {"workflow": f"{BUILDER}/build-stack.yml@{'b' * 40}", "machine": "github-hosted"}
    provenance = copy.deepcopy(dict(PROVENANCE))
    provenance["buildDefinition"]["internalParameters"]["isolation"] = isolation
    provenance["runDetails"]["builder"]["id"] = pinned
    publisher.fulcio.attest(ref, provenance, {**CLAIMS, "workflow": pinned, "signer": pinned})
    assert publisher.line(ref, identity=pinned).startswith("level 3: ")


LAYOUTS: Mapping[str, tuple[Callable[[Publisher], str], str]] = {
    "build and sign in one job": (
        lambda p: p.level(f"{INTERNAL}/isolation"),
        "level 2: the provenance does not state that another job built it",
    ),
    "inlined into the started workflow": (
        as_workflow(TOP),
        "level 2: the job that signs is written in the workflow that was started",
    ),
    "in the caller's own repository": (
        as_workflow(f"{SOURCE}/.github/workflows/up.yml@{TAG}"),
        "level 2: the workflow that signs is in the repository that is built, which can change it",
    ),
    "by a branch": (
        as_workflow(f"{BUILDER}/up.yml@{MAIN}"),
        "level 2: refs/heads/main names the workflow that signs, and may move",
    ),
    "same name elsewhere": (
        lambda p: p.level(workflow=f"{BUILDER}/up.yml@{TAG}".replace("acme", "mallory")),
        "refused: ",
    ),
    "called by another repository": (lambda p: p.level(repository="mallory/images"), "refused: "),
    "claims another builder": (
        as_workflow(f"{BUILDER}/up.yml@{TAG}", signer=f"{SOURCE}/.github/workflows/mine.yml@{MAIN}"),
        "level 1: the provenance states the builder",
    ),
    "no machine": (
        lambda p: p.level(machine=None),
        "level 1: the certificate does not show a machine that GitHub hosts",
    ),
    "signed on one's own machine": (lambda p: p.level(machine="self-hosted"), "level 1: the certificate does not show"),
    "built on one's own machine": (
        lambda p: p.level(f"{INTERNAL}/isolation/machine", "self-hosted"),
        "level 1: it was built on a runner of one's own",
    ),
    "machine of the build untold": (
        lambda p: p.level(f"{INTERNAL}/isolation/machine"),
        "level 1: it was built on a runner",
    ),
    "engine elsewhere": (
        lambda p: p.level(f"{INTERNAL}/engine", "remote"),
        "level 1: the provenance does not show that",
    ),
    "provenance of another image": (of_another_image, "refused: "),
    "subject of several images": (of_many_subjects, "refused: "),
    "beside another certificate": (beside_another_certificate, "level 1: the certificate does not show a machine"),
    "parameters of a dispatch": (
        lambda p: p.level(f"{EXTERNAL}/workflow", {"inputs": {"torch": "2.0"}}, trigger="workflow_dispatch"),
        "level 2: the workflow that signs has no such parameter",
    ),
    "another input": (
        lambda p: p.level(f"{EXTERNAL}/inputs", {"stack": "local", "image": "", "args": "A=1"}),
        "level 2: the provenance does not state the inputs of the build alone",
    ),
    "inputs untold": (lambda p: p.level(f"{EXTERNAL}/inputs"), "level 2: the provenance does not state the inputs"),
    "started by a stranger's event": (
        lambda p: p.level(trigger="pull_request_target"),
        "level 2: the run was started by pull_request_target, which others may cause",
    ),
    "another commit": (
        lambda p: p.level(f"{EXTERNAL}/configSource/digest", {"sha1": "d" * 40}),
        "level 1: the provenance states the commit " + "d" * 40,
    ),
    "another ref": (lambda p: p.level(f"{INTERNAL}/ref", "refs/tags/v9"), "level 1: the provenance states the ref"),
    "another run": (lambda p: p.level(run=RUN.replace("/7/", "/8/")), "level 1: the provenance states the run"),
    "uncommitted changes": (lambda p: p.level(f"{INTERNAL}/uncommitted", True), "level 2: the source had uncommitted"),
    "commit of the workflow untold": (
        lambda p: p.level(signerDigest=None),
        "level 2: the certificate does not state the commit of the workflow that signs",
    ),
    "another commit than its identity": (
        as_workflow(f"{BUILDER}/up.yml@{'e' * 40}"),
        "level 2: the certificate states another commit",
    ),
    "built by the caller's workflow": (
        lambda p: p.level(f"{INTERNAL}/isolation/workflow", f"{SOURCE}/.github/workflows/build-stack.yml@{TAG}"),
        "level 2: the workflow that builds",
    ),
    "one workflow for both": (
        lambda p: p.level(f"{INTERNAL}/isolation/workflow", f"{BUILDER}/up.yml@{TAG}"),
        "level 2: one workflow builds and signs",
    ),
    "of GitLab": (lambda p: p.level(issuer="https://gitlab.com", config={"issuer": "https://gitlab.com"}), "level 1: "),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_forged_layout_is_at_most_level_two(publisher: Publisher, layout: str) -> None:
    level, expected = LAYOUTS[layout]
    assert level(publisher).startswith(expected)
