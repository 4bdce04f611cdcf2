"""The public part of a stack's state: its plan, its digests, and enough of its resources for a preview.

A state has the credentials that images are pushed with. Only the keys listed here become public.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from containers.errors import SlipwayError
from containers.registry.reference import Reference

_STACK = "pulumi:pulumi:Stack"
_COMPONENTS = "slipway:image:"
_CHECKS = "slipway:checks:Checks"
_PROVIDER = "pulumi:providers:docker"
_IMAGE = "docker:index/image:Image"
_PUSH = "pulumi-python:dynamic/image:CompressedPush"
_INDEX = "pulumi-python:dynamic/image:ImageIndex"

_COMPARED = ("images", "products", "plan", "planFiles", "checkFiles")
"""The outputs that a preview compares; it pushes nothing, so it has no signatures and no tags."""
_OUTPUTS = (*_COMPARED, "signed", "extraTags")
_IDENTITY = ("urn", "custom", "id", "type", "parent", "provider", "dependencies")
_PUBLIC: Mapping[str, Mapping[str, Collection[str] | None]] = {
    _STACK: {},
    _COMPONENTS: {"inputs": None, "outputs": None},  # components have no secrets
    _CHECKS: {"inputs": None, "outputs": None},
    _PROVIDER: {"inputs": ("version",), "outputs": ("version",)},
    _IMAGE: {"outputs": ("imageName", "repoDigest")},
}
"""By prefix of a resource's type: the public keys of its inputs and outputs; None for all."""

_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - Pulumi's mark (sdk/go/common/resource/properties.go)
_VERSION = 3
"""Version of the format of exported states (sdk/go/common/apitype/stacks.go)."""


def public(exported: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """Return the public part of an exported state of a commit: ``commit``, ``outputs`` and ``resources``.

    Raises SlipwayError: it has a secret.
    """
    everything = exported["deployment"]["resources"]
    resources = [part for part in map(_public, everything) if part]
    pushed = {each["parent"]: each["outputs"]["pushed"] for each in everything if each["type"] == _PUSH}
    for resource in resources:
        if resource["type"] == _IMAGE and resource.get("parent") in pushed:  # its own digest is an engine's id
            resource["outputs"]["repoDigest"] = pushed[resource["parent"]]
    by_urn = {resource["urn"]: resource for resource in resources}
    (stack,) = (urn for urn, resource in by_urn.items() if resource["type"] == _STACK)
    for resource in resources:
        if resource.get("parent", stack) not in by_urn:  # a cluster, for the provider of images built there
            resource["parent"] = stack
        resource["dependencies"] = [urn for urn in resource.get("dependencies", []) if urn in by_urn]
    (outputs,) = (resource.get("outputs", {}) for resource in everything if resource["type"] == _STACK)
    state = {
        "commit": commit,
        "outputs": {key: outputs[key] for key in _OUTPUTS if key in outputs},
        "resources": resources,
    }
    if _SECRET in json.dumps(state):
        raise SlipwayError("the stack's outputs have a secret, so they stay private; see `pulumi stack output`")
    return state


def _public(resource: Mapping[str, Any]) -> dict[str, Any] | None:
    parts = next((parts for start, parts in _PUBLIC.items() if resource["type"].startswith(start)), None)
    if parts is None or resource.get("delete"):
        return None
    part: dict[str, Any] = {key: resource[key] for key in _IDENTITY if key in resource}
    for side, keys in parts.items():
        values = resource.get(side, {})
        part[side] = {key: value for key, value in values.items() if keys is None or key in keys}
    return part


def images(published: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the ``ref``, ``digest`` and ``tag`` of each image and build product, by name."""
    return {
        resource["urn"].rpartition("::")[2]: resource["outputs"]
        for resource in published["resources"]
        if resource["type"].startswith(_COMPONENTS)
    }


def indexes(exported: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the ``ref``, ``digest`` and ``tag`` of each index in an exported state, by the name of its image."""
    return {
        resource["urn"].rpartition("::")[2]: {
            "ref": resource["outputs"]["index"],
            "digest": resource["outputs"]["digest"],
            "tag": Reference.of(resource["outputs"]["ref"]).version,
        }
        for resource in exported["deployment"]["resources"]
        if resource["type"] == _INDEX and not resource.get("delete")
    }


def checks(published: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the checks of each image read and the image does not, by the name of the checks."""
    return {
        resource["urn"].rpartition("::")[2]: resource["inputs"]
        for resource in published["resources"]
        if resource["type"] == _CHECKS
    }


def state(published: Mapping[str, Any], unbuilt: Collection[str]) -> dict[str, Any]:
    """Return a Pulumi state from a public one, in which images and checks ``unbuilt`` are planned but have no build."""
    removed = {
        resource["urn"]
        for resource in published["resources"]
        if resource["type"] == _IMAGE and resource["urn"].rpartition("::")[2] in unbuilt
    }
    compared = {key: value for key, value in published["outputs"].items() if key in _COMPARED}
    outputs = {_STACK: {"outputs": compared}}
    resources = [
        {
            **resource,
            **outputs.get(resource["type"], {}),
            "dependencies": [urn for urn in resource["dependencies"] if urn not in removed],
        }
        for resource in published["resources"]
        if resource["urn"] not in removed
    ]
    return {"version": _VERSION, "deployment": {"manifest": {}, "resources": resources}}
