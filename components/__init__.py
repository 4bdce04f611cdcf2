"""Pulumi components for the plans of `stacks`: how images, registries, signatures and runners are declared."""

from components import old_states

old_states.install()
