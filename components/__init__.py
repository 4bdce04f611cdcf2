"""Pulumi component resources for the plans of :mod:`stacks`."""

from components import old_states

old_states.install()
