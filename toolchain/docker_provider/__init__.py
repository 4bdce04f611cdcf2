"""The docker provider: `docker:index/image:Image` and `getRegistryImage`, as the official plugin 5.2.0 has them.

It stands in where the official plugin cannot be had: same token, same inputs, same outputs, same state. It speaks to
the Docker Engine's HTTP API itself and needs no docker command.
"""
