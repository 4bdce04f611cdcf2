"""What Slipway builds: pure Python and data, from a stack's YAML to its graph of images.

The way through is :mod:`stacks.source` (the YAML) -> :mod:`stacks.config` (typed models) -> :mod:`stacks.flavors`
(which images) -> :mod:`stacks.spec` (their graph) -> :mod:`stacks.plan` (names, tags and arguments, ready to build).
Nothing here imports Pulumi, and only ``python -m stacks lock`` and ``diff`` (:mod:`stacks.registry`) talk to a network.
"""
