"""SLSA provenance of an image: source, revision, date, build arguments, parents and git sources.

The format is SLSA v1 (https://slsa.dev/spec/v1.1/provenance) with the fields that BuildKit fills
(https://docs.docker.com/build/metadata/attestations/slsa-definitions/), so one policy reads both.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from containers.errors import one_line
from containers.evidence import age
from containers.evidence.signer import ImageSigner, ImageSigning, ProvenancePolicy
from containers.evidence.signing_certificates import Claims
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.reference import Reference

_BUILD_TYPE: Final = "https://github.com/moby/buildkit/blob/master/docs/attestations/slsa-definitions.md"
_BY_HAND: Final = "urn:slipway:by-hand"
"""The builder outside GitHub Actions, which only the signature identifies."""
_WORKFLOW: Final = "SLIPWAY_WORKFLOW"
"""Environment variable with the workflow that the job is written in, and its ref, as ``up.yml`` sets it."""
_GITHUB: Final = "https://token.actions.githubusercontent.com"
"""The issuer whose certificates state where a job ran."""
_THIS_MACHINE, _ELSEWHERE = "machine", "remote"
HOSTED: Final = "github-hosted"
"""The environment of a machine that GitHub hosts, in certificates and in the context ``runner`` of a job."""
ATTESTING, BUILDING = "/attest.yml@", "/up.yml@"
"""The workflow that attests and the one that builds, which stand beside each other."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TRIGGERS: Final = {"push", "schedule", "workflow_dispatch"}
"""Events that only those cause who may write to the repository."""
_PARAMETERS: Final = {"configSource", "request", "inputs"}
_INPUTS: Final = {"stack", "image"}
"""The inputs of the workflow ``up`` that decide what is built."""
_IMAGE: Final = "pkg:docker/"
"""Prefix of an image's package URL."""


@dataclass(frozen=True)
class Build:
    """One build of an image.

    ``contents`` are a planned image's contents, as previews show them; ``parents`` are the references it was built
    on, by build argument; ``engine`` and ``builder`` are those of :func:`engine` and :func:`builder`. ``sources`` has
    the commit of each git source by its URI, empty if it is not locked. ``engines`` are the Docker engines that
    ``slipway:engines`` has for the image: the first one, and those that take the image over.
    """

    contents: Mapping[str, Any]
    dockerfile: str
    parents: Mapping[str, str]
    engine: str
    builder: str
    sources: Mapping[str, str]
    engines: Sequence[str] = ()


def predicate(ref: str, build: Build, source: Mapping[str, Any], login: Login | None) -> dict[str, Any]:
    """Return the provenance of the image pushed as ``ref``.

    ``source`` is the checkout's: ``uri``, ``revision``, ``ref``, and whether it has ``uncommitted`` changes. The date
    is in the image's configuration.

    Raises SlipwayError: the image cannot be fetched.
    """
    repository = Repository(ref, login)
    descriptor = repository.manifest().content["config"]
    config = repository.json(descriptor["digest"], descriptor["size"])
    contents = build.contents
    arguments = {**contents["args"], **contents["labels"]}
    known = source["uri"] and source["revision"]  # a dependency without a URI names nothing, and cosign drops the key
    git_source = [{"uri": source["uri"], "digest": {"gitCommit": source["revision"]}}] if known else []
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {
                "configSource": {
                    "uri": source["uri"],
                    "digest": {"sha1": source["revision"]},
                    "path": build.dockerfile,
                },
                "request": {
                    "frontend": "dockerfile.v0",
                    "args": {
                        **{f"build-arg:{key}": value for key, value in arguments.items()},
                        **({"target": contents["target"]} if contents.get("target") else {}),
                    },
                },
            },
            "internalParameters": {
                "builderPlatform": contents["platform"],
                "engine": build.engine,
                **({"engines": [_without_user(engine) for engine in build.engines]} if build.engines else {}),
                "ref": source["ref"],
                "uncommitted": source["uncommitted"],
                "files": dict(contents["files"]),
            },
            "resolvedDependencies": git_source
            + [_parent(parent, contents["platform"]) for parent in build.parents.values() if parent != "scratch"]
            + [
                {"uri": uri, **({"digest": {"gitCommit": commit}} if commit else {})}
                for uri, commit in build.sources.items()
            ],
        },
        "runDetails": {
            "builder": {"id": build.builder},
            "metadata": {"invocationId": _invocation(), "finishedOn": config.get("created")},
        },
    }


def sealed(
    predicate: Mapping[str, Any], signing: ImageSigning, inputs: Mapping[str, str], machine: str
) -> dict[str, Any]:
    """Return the provenance of the job that built, with the facts of the attesting job's own.

    GitHub tells that job the repository, commit, ref and run. ``inputs`` are those of its workflow, and ``machine`` the
    environment of the machines that built. The arguments, files and parents stay as the build states them.

    Raises:
        KeyError, TypeError, AttributeError: it has another shape.
    """
    address = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    commit = os.environ["GITHUB_SHA"]
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    external, internal = definition["externalParameters"], definition["internalParameters"]
    source = {"uri": f"git+{address}", "digest": {"sha1": commit}, "path": str(external["configSource"]["path"])}
    others = [each for each in definition["resolvedDependencies"] if each.get("uri") != summary(predicate)["source"]]
    isolation = {"workflow": (signing.identity or "").replace(ATTESTING, BUILDING), "machine": machine}
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {"configSource": source, "request": external["request"], "inputs": dict(inputs)},
            "internalParameters": {**internal, "ref": os.environ["GITHUB_REF"], "isolation": isolation},
            "resolvedDependencies": [{"uri": source["uri"], "digest": {"gitCommit": commit}}, *others],
        },
        "runDetails": {
            "builder": {"id": signing.identity},
            "metadata": {"invocationId": _invocation(), "finishedOn": details["metadata"]["finishedOn"]},
        },
    }


def _parent(reference: str, platform: str) -> dict[str, Any]:
    """Return a parent as a package URL, with its digest if the reference has one."""
    image = Reference.of(reference).in_full
    name = f"{image.repository}@{image.version}"
    dependency: dict[str, Any] = {"uri": f"{_IMAGE}{name}?platform={quote(platform, safe='')}"}
    if image.digest:
        dependency["digest"] = {"sha256": image.digest.removeprefix("sha256:")}
    return dependency


def builder(signing: ImageSigning) -> str:
    """Return the builder's id: without a key, the identity that the certificate proves; with one, the job's workflow.

    The workflow is the one that the job is written in, as in a certificate, and not its caller. So all callers have
    one builder.
    """
    if signing.identity:
        return signing.identity
    server = os.environ.get("GITHUB_SERVER_URL")
    workflow = os.environ.get(_WORKFLOW) or os.environ.get("GITHUB_WORKFLOW_REF")
    return f"{server}/{workflow}" if server and workflow else _BY_HAND


def engine(build_on: str, engines: Sequence[str] = ()) -> str:
    """Return whether the Docker engine that builds is on this ``machine`` or ``remote``.

    ``engines`` are those that ``slipway:engines`` has for the image, in place of the one of the environment.
    """
    addresses = engines or [os.environ.get("DOCKER_HOST", "unix://")]
    here = all(address.startswith("unix://") for address in addresses)
    return _THIS_MACHINE if build_on == "engine" and here else _ELSEWHERE


def _without_user(address: str) -> str:
    """Return an engine's address without who logs in there."""
    return re.sub(r"://[^/]*@", "://", address)


def _invocation() -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT")
    server, repository, run, attempt = (os.environ.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}" if run else ""


def summary(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``source``, ``revision`` and ``date`` of a provenance; each may be empty."""
    source = provenance["buildDefinition"]["externalParameters"]["configSource"]
    # A writer may leave out what is empty: the address of a checkout without a public remote, or its commit.
    return {
        "source": source.get("uri") or "",
        "revision": (source.get("digest") or {}).get("sha1") or "",
        "date": (provenance["runDetails"].get("metadata") or {}).get("finishedOn") or "",
    }


def parents(provenance: Mapping[str, Any]) -> list[str]:
    """Return the parents in a provenance: ``repository@sha256:...``, or ``repository@tag``."""
    # cosign leaves out what is empty: a list, and the URI of a checkout that has no public address.
    uris = [each.get("uri") or "" for each in provenance["buildDefinition"].get("resolvedDependencies") or []]
    return [uri.removeprefix(_IMAGE).partition("?")[0] for uri in uris if uri.startswith(_IMAGE)]


def level(provenance: Mapping[str, Any], signer: ImageSigner, claims: Claims) -> tuple[int, str]:
    """Return the SLSA build level that an image's evidence shows, and why not the next one.

    ``provenance`` is verified, and the ``signer`` attested it with a certificate that states these ``claims``.

    Level 1 is provenance that shows how the image was built. Level 2 is signed provenance that a hosted build platform
    generates: "All build steps ran using a hosted build platform on shared or dedicated infrastructure, not on an
    individual's workstation" (https://slsa.dev/spec/v1.0/requirements). Level 3 is provenance that the build cannot
    forge: a job without builds attests it, and the built repository cannot change that job.
    """
    for reason in _below_two(provenance, signer, claims):
        return 1, reason
    for reason in _below_three(provenance, signer, claims):
        return 2, reason
    return (
        3,
        f"attested by a job that builds nothing, of {claims['signer']}, which {claims['repository']} cannot change",
    )


def _below_two(provenance: Mapping[str, Any], signer: ImageSigner, claims: Claims) -> Iterator[str]:
    """Yield why the evidence does not show level 2."""
    internal = provenance["buildDefinition"]["internalParameters"]
    if not signer.identity:
        yield "signed with a key, which does not show where the image was built"
    if signer.issuer != _GITHUB:
        yield f"certificates for {signer.issuer} do not show where the image was built"
    if claims.get("machine") != HOSTED:
        yield "the certificate does not show a machine that GitHub hosts"
    if internal.get("engine") != _THIS_MACHINE:
        yield "the provenance does not show that the job's own machine built it"
    isolation = internal.get("isolation")
    if isolation and isolation.get("machine") != HOSTED:
        yield "it was built on a runner of one's own, which keeps what earlier jobs left there"
    for name, (what, value) in _both_state(provenance).items():
        if name in claims and claims[name] != value:
            stated = one_line(value) if isinstance(value, str) and value else "none"
            yield f"the provenance states the {what} {stated}, and the certificate {one_line(claims[name])}"


def _both_state(provenance: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the values that both the provenance and a certificate state, by the certificate's claim.

    cosign writes ``invocationID``, as in-toto's Go library names it; SLSA's own name is ``invocationId``.
    """
    definition, details = provenance["buildDefinition"], provenance["runDetails"]
    origin = summary(provenance)
    return {
        "signer": ("builder", details["builder"]["id"]),
        "repository": ("repository", origin["source"].removeprefix("git+")),
        "commit": ("commit", origin["revision"]),
        "ref": ("ref", definition["internalParameters"].get("ref")),
        "run": ("run", details["metadata"].get("invocationID") or details["metadata"].get("invocationId")),
    }


class _Workflow(NamedTuple):
    """The file of a workflow, and its branch, tag or commit."""

    path: str
    ref: str

    @classmethod
    def of(cls, identity: str) -> _Workflow:
        """Return the parts of ``<path>@<ref>``."""
        path, _, ref = identity.partition("@")
        return cls(path, ref)


def _below_three(provenance: Mapping[str, Any], signer: ImageSigner, claims: Claims) -> Iterator[str]:
    """Yield why evidence of level 2 does not show level 3."""
    names = {**{name: what for name, (what, _) in _both_state(provenance).items()}, "started": "started workflow"}
    yield from (f"the certificates do not all state one {what}" for name, what in names.items() if name not in claims)
    yield from _changeable_signer(signer, claims)
    definition = provenance["buildDefinition"]
    builds = (definition["internalParameters"].get("isolation") or {}).get("workflow", "")
    builder, own = _Workflow.of(builds), _Workflow.of(claims["signer"])
    if not builds:
        yield "the provenance does not state that another job built it: the job that builds could sign"
    elif (posixpath.dirname(builder.path), builder.ref) != (posixpath.dirname(own.path), own.ref):
        yield f"the workflow that builds, {one_line(builds)}, is not beside the one that signs"
    elif builds == claims["signer"]:
        yield "one workflow builds and signs"
    if definition["internalParameters"].get("uncommitted") is not False:
        yield "the source had uncommitted changes"
    if unknown := sorted({*definition["externalParameters"]} - _PARAMETERS):
        yield f"the workflow that signs has no such parameter, which may decide the content: {one_line(unknown[0])}"
    inputs = definition["externalParameters"].get("inputs")
    if not isinstance(inputs, Mapping) or set(inputs) != _INPUTS:
        yield f"the provenance does not state the inputs of the build alone, {' and '.join(sorted(_INPUTS))}"


def _changeable_signer(signer: ImageSigner, claims: Claims) -> Iterator[str]:
    """Yield how others than the publisher of the workflow that signs may change or start it."""
    workflow, ref = _Workflow.of(claims["signer"])
    if claims["signer"] != signer.identity:
        yield f"the certificate is that of {one_line(claims['signer'])}, and not of {signer.identity}"
    if claims["started"] == claims["signer"]:
        yield "the job that signs is written in the workflow that was started, and not in one that this calls"
    if claims.get("trigger") not in _TRIGGERS:
        yield f"the run was started by {one_line(claims.get('trigger') or 'an unknown event')}, which others may cause"
    if not (ref.startswith("refs/tags/") or _COMMIT.fullmatch(ref)):
        yield f"{one_line(ref) or 'no ref'} names the workflow that signs, and may move; call it by a tag or a commit"
    if not _COMMIT.fullmatch(claims.get("signerDigest", "")):
        yield "the certificate does not state the commit of the workflow that signs"
    if _COMMIT.fullmatch(ref) and ref != claims["signerDigest"]:
        yield "the certificate states another commit of the workflow that signs than its identity"
    if workflow.partition("/.github/workflows/")[0] == claims["repository"]:
        yield "the workflow that signs is in the repository that is built, which can change it"


def violations(provenance: Mapping[str, Any], policy: ProvenancePolicy, now: datetime) -> Iterator[str]:
    """Yield what a policy refuses in a provenance, a clause for each."""
    definition, details = provenance["buildDefinition"], provenance["runDetails"]
    origin, internal = summary(provenance), definition["internalParameters"]
    source = origin["source"].removeprefix("git+").partition("://")[2]
    actual = {"repository": source, "ref": internal.get("ref", ""), "builder": details.get("builder", {}).get("id", "")}
    for name, value in actual.items():
        required = getattr(policy, name)
        if required and value != required:
            stated = f"is '{' '.join(value.split())}'" if value else "is not stated"
            yield f"{name} {stated}, but must be '{required}'"
    if policy.committed and internal.get("uncommitted") is not False:
        yield "the source has uncommitted changes"
    elif policy.committed and not origin["revision"]:
        yield "the source has no commit"
    if policy.max_age_days:
        yield from _age(origin["date"], policy.max_age_days, now)


def _age(date: str, most: int, now: datetime) -> Iterator[str]:
    days = age.days(date, now)
    if days is None:
        yield f"the time of the build is '{one_line(date)}', so its age is unknown; at most {most} days are allowed"
    elif days > most:
        yield f"built {date}, {int(days)} days ago; at most {most} are allowed: publish it again"
    elif age.is_ahead(days):
        yield f"built {date}, which is in the future"
