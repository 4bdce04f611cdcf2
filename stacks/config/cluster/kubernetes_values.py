"""Sizes and names, as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from stacks.config.model import form

RUNNER_REQUESTS = ("4", "16Gi")
"""CPUs and memory that the container of a runner with devices requests, besides its Docker daemon, and by default
without one."""
DEFAULT_REQUESTS = ("500m", "1Gi")
"""What another container requests: the namespace's default."""

_QUANTITY = re.compile(r"[1-9][0-9]*(?:\.[0-9]+)?(?:Ki|Mi|Gi|Ti)")
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
"""Names of secrets and runtime classes (kubernetes/apimachinery, pkg/util/validation, IsDNS1123Subdomain)."""


def _quantity(value: str) -> str:
    if re.fullmatch(r"[0-9.]+", value):
        raise ValueError(f"a size needs a unit: {value}Gi?")
    if not _QUANTITY.fullmatch(value):
        raise ValueError("expected a size such as 200Gi, with one of Ki, Mi, Gi, Ti")
    return value


def cpus(quantity: str) -> float:
    """Return the CPUs of a quantity such as 500m."""
    return int(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def gib(quantity: str) -> float:
    """Return the GiB of a quantity such as 512Mi."""
    return float(quantity[:-2]) * 1024.0 ** ("Ki", "Mi", "Gi", "Ti").index(quantity[-2:]) / 1024**2


Quantity = Annotated[str, AfterValidator(_quantity)]
Label = Annotated[str, form(LABEL, "1 to 63 lower-case letters, digits and -, a letter or digit at either end")]

ObjectName = Annotated[
    str, form(_SUBDOMAIN, "1 to 253 lower-case letters, digits, - and ., a letter or digit at either end")
]
