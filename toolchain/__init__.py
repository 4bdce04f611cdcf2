"""Gets a machine ready for Slipway: Pulumi, its language host and docker provider, an engine, a registry, a base image.

`python3 -m toolchain VERB` runs with the machine's own Python before anything is installed, so its modules use the
standard library alone. The embedded provider (`provider`) is no part of that: it has a process
of its own, in the Python environment.
"""
