"""SLSA provenance of an image: source, revision, date, build arguments and parents.

The format is SLSA v1 (https://slsa.dev/spec/v1.1/provenance) with the fields that BuildKit fills
(https://docs.docker.com/build/metadata/attestations/slsa-definitions/), so one policy reads both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from oci.client import Repository
from oci.credentials import Login
from stacks.identity.git import git
from stacks.references import qualified, split

_BUILD_TYPE: Final = "https://github.com/moby/buildkit/blob/master/docs/attestations/slsa-definitions.md"
_BY_HAND: Final = "urn:slipway:by-hand"
"""The builder outside GitHub Actions, which only the signature identifies."""
_IMAGE: Final = "pkg:docker/"
"""Prefix of an image's package URL."""


def predicate(
    ref: str, contents: Mapping[str, Any], dockerfile: str, parents: Mapping[str, str], root: Path, login: Login | None
) -> dict[str, Any]:
    """Return the provenance of the image pushed as ``ref``.

    ``contents`` are a planned image's contents, as previews show them; ``parents`` are the references it was built
    on, by build argument. Source and revision are the checkout's; the date is in the image's configuration.

    Raises:
        SlipwayError: the image cannot be fetched.
    """
    repository = Repository(ref, login)
    config = repository.json(repository.manifest().content["config"]["digest"])
    source = source_of(root)
    arguments = {**contents["args"], **contents["labels"]}
    git_source = [{"uri": source["uri"], "digest": {"gitCommit": source["revision"]}}] if source["revision"] else []
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {
                "configSource": {"uri": source["uri"], "digest": {"sha1": source["revision"]}, "path": dockerfile},
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
                "uncommitted": source["uncommitted"],
                "files": dict(contents["files"]),
            },
            "resolvedDependencies": git_source
            + [_parent(parent, contents["platform"]) for parent in parents.values() if parent != "scratch"],
        },
        "runDetails": {
            "builder": {"id": _builder()},
            "metadata": {"invocationId": _invocation(), "finishedOn": config.get("created")},
        },
    }


def source_of(root: Path) -> dict[str, Any]:
    """Return a checkout's ``uri`` and ``revision``, and whether it has ``uncommitted`` changes.

    The URI has no credentials. Both are empty if git knows none.
    """
    revision = (git(root, "rev-parse", "HEAD") or "").strip()
    address = (git(root, "remote", "get-url", "origin") or "").strip()
    changed = bool((git(root, "status", "--porcelain") or "").strip())
    return {"uri": _public(address), "revision": revision, "uncommitted": changed}


def _public(address: str) -> str:
    """Return a remote's address as a git+https URI without credentials; empty for a path of this machine."""
    if ssh := re.fullmatch(r"(?:ssh://)?(?:[^@/]+@)([^:/]+)[:/](.+)", address):
        return f"git+https://{ssh[1]}/{ssh[2].removesuffix('.git')}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return f"git+{parts.scheme}://{parts.hostname}{port}{parts.path.removesuffix('.git')}"


def _parent(reference: str, platform: str) -> dict[str, Any]:
    """Return a parent as a package URL, with its digest if the reference has one."""
    name, version = split(qualified(reference))
    dependency: dict[str, Any] = {"uri": f"{_IMAGE}{name}@{version}?platform={quote(platform, safe='')}"}
    if version.startswith("sha256:"):
        dependency["digest"] = {"sha256": version.removeprefix("sha256:")}
    return dependency


def _builder() -> str:
    server, workflow = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_WORKFLOW_REF")
    return f"{server}/{workflow}" if server and workflow else _BY_HAND


def _invocation() -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT")
    server, repository, run, attempt = (os.environ.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}" if run else ""


def summary(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``source``, ``revision`` and ``date`` of a provenance; each may be empty."""
    source = provenance["buildDefinition"]["externalParameters"]["configSource"]
    return {
        "source": source["uri"],
        "revision": source["digest"]["sha1"],
        "date": provenance["runDetails"]["metadata"]["finishedOn"] or "",
    }


def parents(provenance: Mapping[str, Any]) -> list[str]:
    """Return the parents in a provenance: ``repository@sha256:...``, or ``repository@tag``."""
    uris = [dependency["uri"] for dependency in provenance["buildDefinition"]["resolvedDependencies"]]
    return [uri.removeprefix(_IMAGE).partition("?")[0] for uri in uris if uri.startswith(_IMAGE)]
