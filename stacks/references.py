"""References of images: those of the library of containers."""

from oci.reference import (
    Reference,
    check_host,
    check_path,
    check_prefixes,
    check_reference,
    check_repository,
    covering,
    full_names,
    on_loopback,
    qualified,
    split,
)

__all__ = [
    "Reference",
    "check_host",
    "check_path",
    "check_prefixes",
    "check_reference",
    "check_repository",
    "covering",
    "full_names",
    "on_loopback",
    "qualified",
    "split",
]
