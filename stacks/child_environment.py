"""The environment of the programs that Slipway starts: that of the library of containers."""

from oci.child_environment import PASSWORD, PROGRAMS, WITHHELD, child_environment

__all__ = ["PASSWORD", "PROGRAMS", "WITHHELD", "child_environment"]
