"""What Kubernetes and NVIDIA's GPU feature discovery call a node's GPUs and their driver."""

from __future__ import annotations

from collections.abc import Mapping

GPU = "nvidia.com/gpu"
"""The extended resource of NVIDIA's device plugin."""

_DRIVER_LABELS = (
    ("nvidia.com/cuda.driver-version.full",),
    tuple(f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision")),
    tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev")),
)
"""Labels of a node's driver that NVIDIA's GPU feature discovery gives: whole, in parts, and in deprecated parts, which
are all that it gives before 0.15.0 (NVIDIA/k8s-device-plugin v0.20.0, internal/lm/nvml.go:127-137; v0.15.0-rc.2, :104
)."""


def labelled_driver(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the driver that a node's labels name, as far as they do, and the first label of it; None if none does."""
    for names in _DRIVER_LABELS:
        parts = [part for name in names if (part := labels.get(name, ""))]
        if labels.get(names[0]):
            return ".".join(parts), names[0]
    return None
