"""A stand-in of the docker provider's builds: every input is checked and compared as ever, and nothing is built or pushed.

Building all stacks takes days; what a preview says of them depends on nothing that is in an image. Run as the plugin
``pulumi-resource-docker``.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2

from toolchain.provider.provider import DockerProvider
from toolchain.provider.provider_base import Properties, Secret, decode_struct, plain, serve


class Unbuilt(DockerProvider):
    """Gives each image a digest that follows its inputs."""

    def Configure(self, request: provider_pb2.ConfigureRequest, context: Any) -> provider_pb2.ConfigureResponse:  # noqa: ARG002, N802
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def _make(self, _urn: str, properties: struct_pb2.Struct, _context: Any, *, preview: bool) -> Properties | None:
        if preview:
            return None
        given = plain(decode_struct(properties))
        name, build = given["imageName"], given["build"]
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
        return {
            **{key: build[key] for key in ("context", "dockerfile", "platform")},
            "imageName": name,
            "baseImageName": name,
            "registryServer": given["registry"]["server"],
            "repoDigest": f"{name.rpartition(':')[0]}@sha256:{digest}",
            "__inputs": Secret(given),
        }


if __name__ == "__main__":
    serve(Unbuilt)
