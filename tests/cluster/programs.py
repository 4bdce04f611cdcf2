"""The programs of a Kubernetes cluster, and Helm, built from their Go modules once and kept in the checkout's cache."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Final

from toolchain import golang
from toolchain.checkout import Checkout

_MODULES: Final = Path(__file__).parent / "go"

PROGRAMS: Final = {
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes"),
    "kube-scheduler": ("kubernetes", "k8s.io/kubernetes"),
    "kubelet": ("kubernetes", "k8s.io/kubernetes"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes"),
    "helm": ("helm", "helm.sh/helm/v3"),
}
"""Each program's folder below ``go`` and the module in it that has the program below its ``cmd``."""


def program(name: str) -> Path:
    """Return a program of :data:`PROGRAMS`, built if it is not there; the API server takes some 4 minutes of 2 cores."""
    folder, dependency = PROGRAMS[name]
    checkout = Checkout.here()
    module = str(_MODULES / folder)
    target = checkout.cache / "cluster" / golang.required(module, dependency) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            golang.build(checkout, module, f"{dependency}/cmd/{name}", target)
    return target
