"""Run the docker provider as a plugin: `python -m toolchain.provider ENGINE_ADDRESS`."""

from toolchain import pulumi_protocol

if __name__ == "__main__":
    pulumi_protocol.without_sdk()  # before the imports, which need the messages

    from toolchain.provider.provider import DockerProvider
    from toolchain.provider.provider_base import serve

    serve(DockerProvider)
