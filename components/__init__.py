"""How what :mod:`stacks` plans exists: Pulumi component resources, and nothing else."""
