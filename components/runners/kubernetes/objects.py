"""Declares Kubernetes objects, given as manifests, as typed Pulumi resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pulumi
import pulumi_kubernetes as k8s
from pydantic.alias_generators import to_snake

from components.runners.kubernetes.isolation import Manifest

KINDS: Mapping[tuple[str, str], Callable[..., pulumi.CustomResource]] = {
    ("v1", "Namespace"): k8s.core.v1.Namespace,
    ("v1", "ResourceQuota"): k8s.core.v1.ResourceQuota,
    ("v1", "LimitRange"): k8s.core.v1.LimitRange,
    ("v1", "ServiceAccount"): k8s.core.v1.ServiceAccount,
    ("v1", "ConfigMap"): k8s.core.v1.ConfigMap,
    ("v1", "Secret"): k8s.core.v1.Secret,
    ("v1", "Service"): k8s.core.v1.Service,
    ("v1", "PersistentVolumeClaim"): k8s.core.v1.PersistentVolumeClaim,
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ): k8s.admissionregistration.v1.ValidatingAdmissionPolicy,
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
    ): k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding,
    ("apps/v1", "Deployment"): k8s.apps.v1.Deployment,
    ("batch/v1", "CronJob"): k8s.batch.v1.CronJob,
    ("batch/v1", "Job"): k8s.batch.v1.Job,
    ("networking.k8s.io/v1", "NetworkPolicy"): k8s.networking.v1.NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): k8s.policy.v1.PodDisruptionBudget,
    ("rbac.authorization.k8s.io/v1", "Role"): k8s.rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): k8s.rbac.v1.RoleBinding,
    ("resource.k8s.io/v1", "ResourceClaim"): k8s.resource.v1.ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): k8s.resource.v1.ResourceClaimTemplate,
    ("scheduling.k8s.io/v1", "PriorityClass"): k8s.scheduling.v1.PriorityClass,
}

FINAL: Mapping[str, tuple[str, ...]] = {
    "PriorityClass": ("value", "preemptionPolicy"),
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec",),
}
"""Fields by kind that are immutable for the API server but not for Pulumi's provider: a change replaces the object."""


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
    body = {to_snake(key): value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
    return KINDS[manifest["apiVersion"], kind](f"{prefix}-{kind}-{name}".lower(), **body, opts=opts)
