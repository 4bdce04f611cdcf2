"""The programs of a Kubernetes cluster, Helm and BuildKit, built from their Go modules once and kept in the checkout's cache."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import golang

_MODULES: Final = Path(__file__).parent / "go"

PROGRAMS: Final = {
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes"),
    "kube-scheduler": ("kubernetes", "k8s.io/kubernetes"),
    "kubelet": ("kubernetes", "k8s.io/kubernetes"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes"),
    "helm": ("helm", "helm.sh/helm/v3"),
    "buildkitd": ("buildkit", "github.com/moby/buildkit"),
    "buildctl": ("buildkit", "github.com/moby/buildkit"),
}
"""Each program's folder below ``go`` and the module in it that has the program below its ``cmd``."""


def program(name: str) -> Path:
    """Return a program of :data:`PROGRAMS`; all of its folder, some 5 minutes of 2 cores, are built if one is not there."""
    folder, dependency = PROGRAMS[name]
    checkout = Checkout.here()
    module = str(_MODULES / folder)
    built = checkout.cache / "cluster" / golang.required(module, dependency)
    built.mkdir(parents=True, exist_ok=True)
    with (built / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [
            program for program, (home, _) in PROGRAMS.items() if home == folder and not (built / program).exists()
        ]
        if missing:
            with golang.caches(checkout):
                for program in missing:
                    golang.build(checkout, module, f"{dependency}/cmd/{program}", built / program)
    return built / name
