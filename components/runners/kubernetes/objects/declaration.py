"""Declares Kubernetes objects, given as manifests, as typed Pulumi resources."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pydantic.alias_generators import to_snake

from components.runners.kubernetes.isolation import Manifest

FINAL: Mapping[str, tuple[str, ...]] = {
    "PriorityClass": ("value", "preemptionPolicy"),
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec",),
}
"""Fields by kind that are immutable for the API server but not for Pulumi's provider: a change replaces the object."""

MARK = "slipway/made-by"
"""The annotation of an object: its resource, after the id of its stack's provider, which only the state has."""

_PATIENCE = 600
"""Seconds that Pulumi's provider waits for an object, where nothing else is said."""


def _patient(manifest: Manifest) -> pulumi.ResourceOptions | None:
    """Return how long a workload's old pods are awaited beyond that: they may take their grace to end.

    A deletion is awaited with its pods, and so is a new pod where the old one has to end first (pulumi-kubernetes
    9497796, provider/pkg/await/await.go:498 and :977).
    """
    grace = manifest.get("spec", {}).get("template", {}).get("spec", {}).get("terminationGracePeriodSeconds")
    if not grace:
        return None
    seconds = f"{grace + _PATIENCE}s"
    return pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(update=seconds, delete=seconds))


def declare(prefix: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Declare one object. Its resource name is the prefix, its kind and its name."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind in FINAL:
        replacement = pulumi.ResourceOptions(replace_on_changes=list(FINAL[kind]), delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(opts, replacement)
    opts = pulumi.ResourceOptions.merge(opts, _patient(manifest))
    resource = f"{prefix}-{kind}-{name}".lower()
    metadata = manifest["metadata"]
    if opts.provider:
        made_by = {MARK: pulumi.Output.concat(opts.provider.id, "/", resource)}
        metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **made_by}}
    body = {to_snake(key): value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
    group, version = posixpath.split(manifest["apiVersion"])  # as networking.k8s.io/v1; the core group has no name
    kinds: Any = getattr(getattr(k8s, group.partition(".")[0] or "core"), version)
    declared: pulumi.CustomResource = getattr(kinds, kind)(resource, **{**body, "metadata": metadata}, opts=opts)
    return declared
