"""The few BuildKit messages this provider reads and writes, described in Python.

Source: `moby/buildkit`, `api/services/control/control.proto`, `session/auth/auth.proto` and
`session/secrets/secrets.proto`; fields without a reader here are left out, as protocol buffers allow.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "slipway.buildkit"

_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Vertex": {
        "digest": (1, "string"),
        "name": (3, "string"),
        "cached": (4, "bool"),
        "started": (5, "google.protobuf.Timestamp"),
        "completed": (6, "google.protobuf.Timestamp"),
        "error": (7, "string"),
    },
    "VertexStatus": {
        "id": (1, "string"),
        "vertex": (2, "string"),
        "name": (3, "string"),
        "current": (4, "int64"),
        "total": (5, "int64"),
    },
    "VertexLog": {"vertex": (1, "string"), "stream": (3, "int64"), "msg": (4, "bytes")},
    "VertexWarning": {"vertex": (1, "string"), "short": (3, "bytes")},
    "StatusResponse": {
        "vertexes": (1, "repeated Vertex"),
        "statuses": (2, "repeated VertexStatus"),
        "logs": (3, "repeated VertexLog"),
        "warnings": (4, "repeated VertexWarning"),
    },
    "CredentialsRequest": {"host": (1, "string")},
    "CredentialsResponse": {"username": (1, "string"), "secret": (2, "string")},
    "GetSecretRequest": {"ID": (1, "string")},
    "GetSecretResponse": {"data": (1, "bytes")},
}
"""Message to field to number and type."""


def _load() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="slipway/buildkit.proto", package=_PACKAGE, syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            base = kind.removeprefix("repeated ")
            repeated = _Field.LABEL_REPEATED if base != kind else _Field.LABEL_OPTIONAL
            entry = message.field.add(name=field, number=number, label=repeated)
            if base in _MESSAGES or "." in base:
                entry.type = _Field.TYPE_MESSAGE
                entry.type_name = f".{base}" if "." in base else f".{_PACKAGE}.{base}"
            else:
                entry.type = _Field.Type.Value(f"TYPE_{base.upper()}")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_classes = _load()
StatusResponse: Any = _classes["StatusResponse"]
CredentialsRequest: Any = _classes["CredentialsRequest"]
CredentialsResponse: Any = _classes["CredentialsResponse"]
GetSecretRequest: Any = _classes["GetSecretRequest"]
GetSecretResponse: Any = _classes["GetSecretResponse"]
