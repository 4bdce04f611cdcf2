"""Gets a machine ready for Slipway: Pulumi, its Python language host, a docker provider, an engine, a registry, a base image.

`python3 -m toolchain VERB` runs with the machine's own Python before anything is installed, so all modules here (not the
embedded provider's package `docker_provider`) use the standard library alone.
"""
