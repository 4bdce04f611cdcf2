"""Run the docker provider as a plugin: `python -m toolchain.docker_provider ENGINE_ADDRESS`."""

from toolchain.docker_provider.provider import DockerProvider
from toolchain.provider_base import serve

if __name__ == "__main__":
    serve(DockerProvider)
