"""How what :mod:`stacks` plans exists: Pulumi component resources, and nothing else."""

from components import old_states

old_states.install()
