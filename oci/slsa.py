"""Where an image comes from, as SLSA provenance: source, revision, date, what it was built with and on.

The form is that of SLSA v1 (https://slsa.dev/spec/v1.1/provenance), with the fields that BuildKit itself fills
(https://docs.docker.com/build/metadata/attestations/slsa-definitions/), so that one policy reads both.
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
"""The builder where no job of GitHub Actions builds: nobody vouches for more than the signature."""
_IMAGE: Final = "pkg:docker/"
"""How the package URL of an image begins."""


def predicate(
    ref: str, made: Mapping[str, Any], dockerfile: str, parents: Mapping[str, str], root: Path, login: Login | None
) -> dict[str, Any]:
    """Return the provenance of an image that has been pushed as ``ref``.

    ``made`` is what it is made of, as :func:`stacks.differences.shown` has it; ``parents`` are the references that it
    was built on, by argument. Source and revision are those of the checkout; the date is the one that the
    image itself carries.

    Raises:
        SlipwayError: the registry does not give the image.
    """
    repository = Repository(ref, login)
    config = repository.json(repository.manifest().content["config"]["digest"])
    source = source_of(root)
    own = [{"uri": source["uri"], "digest": {"gitCommit": source["revision"]}}] if source["revision"] else []
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {
                "configSource": {"uri": source["uri"], "digest": {"sha1": source["revision"]}, "path": dockerfile},
                "request": {
                    "frontend": "dockerfile.v0",
                    "args": {
                        **{f"build-arg:{key}": value for key, value in {**made["args"], **made["labels"]}.items()},
                        **({"target": made["target"]} if made.get("target") else {}),
                    },
                },
            },
            "internalParameters": {
                "builderPlatform": made["platform"],
                "uncommitted": source["uncommitted"],
                "files": dict(made["files"]),
            },
            "resolvedDependencies": own
            + [_parent(parent, made["platform"]) for parent in parents.values() if parent != "scratch"],
        },
        "runDetails": {
            "builder": {"id": _builder()},
            "metadata": {"invocationId": _invocation(), "finishedOn": config.get("created")},
        },
    }


def source_of(root: Path) -> dict[str, Any]:
    """Return where a checkout comes from: ``uri``, ``revision``, and whether it has what is ``uncommitted``.

    The address has no credentials; it and the revision are empty where git knows none.
    """
    revision = (git(root, "rev-parse", "HEAD") or "").strip()
    address = (git(root, "remote", "get-url", "origin") or "").strip()
    changed = bool((git(root, "status", "--porcelain") or "").strip())
    return {"uri": _public(address), "revision": revision, "uncommitted": changed}


def _public(address: str) -> str:
    """Return a remote's address as git+https has it, without credentials; nothing for a path of this machine."""
    if ssh := re.fullmatch(r"(?:ssh://)?(?:[^@/]+@)([^:/]+)[:/](.+)", address):
        return f"git+https://{ssh[1]}/{ssh[2].removesuffix('.git')}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return f"git+{parts.scheme}://{parts.hostname}{port}{parts.path.removesuffix('.git')}"


def _parent(reference: str, platform: str) -> dict[str, Any]:
    """Return an image that was built on, as a package URL; its digest where it was named by one."""
    name, version = split(qualified(reference))
    found: dict[str, Any] = {"uri": f"{_IMAGE}{name}@{version}?platform={quote(platform, safe='')}"}
    if version.startswith("sha256:"):
        found["digest"] = {"sha256": version.removeprefix("sha256:")}
    return found


def _builder() -> str:
    server, workflow = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_WORKFLOW_REF")
    return f"{server}/{workflow}" if server and workflow else _BY_HAND


def _invocation() -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT")
    server, repository, run, attempt = (os.environ.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}" if run else ""


def summary(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``source``, ``revision`` and ``date`` of a provenance; each empty where it does not say."""
    source = said["buildDefinition"]["externalParameters"]["configSource"]
    return {
        "source": source["uri"],
        "revision": source["digest"]["sha1"],
        "date": said["runDetails"]["metadata"]["finishedOn"] or "",
    }


def parents(said: Mapping[str, Any]) -> list[str]:
    """Return the images that a provenance says were built on: ``repository@sha256:...``, or ``repository@tag``."""
    uris = [one["uri"] for one in said["buildDefinition"]["resolvedDependencies"]]
    return [uri.removeprefix(_IMAGE).partition("?")[0] for uri in uris if uri.startswith(_IMAGE)]
