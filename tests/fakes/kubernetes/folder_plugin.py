"""A Kubernetes plugin that keeps each object as a file of the folder ``CLUSTER_FOLDER``, in place of a cluster.

It is run as ``python -m tests.fakes.plugin tests.fakes.kubernetes.folder_plugin``.
"""

# ruff: noqa: ARG002, N802 - the service's methods are named, and take what they take, as the protocol has it

from __future__ import annotations

import json
import os
from pathlib import Path

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from tests.fakes.kubernetes.plugin import KubernetesProvider
from toolchain.provider.provider_base import Properties, decode_struct, encode_struct, has_unknown, plain, serve


def file(manifest: Properties) -> Path:
    """Return where an object is kept; a chart is kept as a Release."""
    metadata = manifest.get("metadata", manifest)
    parts = (manifest.get("kind", "Release"), metadata.get("namespace", ""), metadata["name"])
    return Path(os.environ["CLUSTER_FOLDER"], f"{'-'.join(parts)}.json")


class FolderProvider(KubernetesProvider):
    """The stand-in's checks and differences, without its calls to an API server."""

    def _unready(self, manifest: Properties) -> bool:
        return False

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        inputs = decode_struct(request.properties)
        if request.preview or has_unknown(inputs):
            return provider_pb2.CreateResponse(properties=request.properties)
        path = file(plain(inputs))
        return provider_pb2.CreateResponse(id=path.stem, properties=encode_struct(_write(path, plain(inputs))))

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        inputs = decode_struct(request.news)
        if request.preview or has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=request.news)
        return provider_pb2.UpdateResponse(properties=encode_struct(_write(file(plain(inputs)), plain(inputs))))

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        path = file(plain(decode_struct(request.properties)))
        if not path.exists():
            return provider_pb2.ReadResponse()
        properties = encode_struct(json.loads(path.read_text()))
        return provider_pb2.ReadResponse(id=request.id, inputs=request.inputs, properties=properties)

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        file(plain(decode_struct(request.properties))).unlink(missing_ok=True)
        return empty_pb2.Empty()


def _write(path: Path, manifest: Properties) -> Properties:
    """Keep an object; a Job has succeeded."""
    written = manifest | ({"status": {"succeeded": 1}} if manifest.get("kind") == "Job" else {})
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(written))
    partial.rename(path)  # at once, for who waits for the file
    return written


if __name__ == "__main__":
    serve(FolderProvider)
