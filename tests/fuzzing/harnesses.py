"""A harness for each parser of outside input: what it is fed, and the errors that are its answer to a malformed one.

Whatever else a harness raises is a fault of the parser.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import io
import json
import os
import struct
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from components.runners.ec2.scaler import aws, github, keeper, webhook
from oci import local_image, registry_image
from oci.binaries import contents, elf_file
from oci.blob import Unreadable
from oci.client import Manifest
from oci.engine import engine_access, engine_image
from oci.engine.engine_access import Access
from oci.gpu import gpu_code
from oci.layers import layer, packages
from stacks import lock, references
from stacks.config import stack_file
from stacks.errors import SlipwayError
from tests.fakes.aws.runner_world import ENVIRONMENT, GROUPS
from tests.helpers import elf_writer, rpm_writer
from tests.helpers.layers import members_archive

DIGEST = f"sha256:{'a' * 64}"


@dataclass(frozen=True)
class Harness:
    """A parser: ``run`` feeds it bytes, and ``seeds`` are what it takes."""

    run: Callable[[bytes], object]
    seeds: Iterable[bytes]


def elf(data: bytes) -> None:
    """Read a program or library of an image."""
    elf_file.read(io.BytesIO(data), len(data))


def fatbin(data: bytes) -> None:
    """Read GPU code of a library."""
    list(gpu_code.read(io.BytesIO(data), 0, len(data)))


def tar_layer(data: bytes) -> None:
    """Read a layer of an image, plain or compressed."""
    kind = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}.get(data[:2], "tar")
    with suppress(Unreadable):
        layer.index(io.BytesIO(data), kind)


def database(path: str) -> Callable[[bytes], None]:
    """Return the harness for a package database."""

    def run(data: bytes) -> None:
        parse = packages.database(path)
        assert parse
        with suppress(ValueError):
            parse(data)

    return run


class _Blobs:
    """A repository whose every blob is the same configuration."""

    reference = "r.example/x:1"

    def __init__(self, config: Any) -> None:
        self._config = config

    def blob(self, digest: str, read: Callable[[IO[bytes]], Any]) -> Any:
        """Return what ``read`` makes of an empty blob."""
        del digest
        return read(io.BytesIO())

    def json(self, digest: str) -> dict[str, Any]:
        """Return the configuration, which the client knows to be an object."""
        del digest
        return self._config if isinstance(self._config, dict) else {}


def oci_document(data: bytes) -> None:
    """Read an index, or a manifest with its configuration, of an image in a registry."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(content, dict):  # the client refuses it
        return
    with suppress(SlipwayError):
        registry_image.chosen("r.example/x:1", content, None)
    with suppress(SlipwayError):
        manifest = Manifest(DIGEST, "application/vnd.oci.image.manifest.v1+json", content, data)
        registry_image.of(_Blobs(content.get("configuration")), manifest)


def archive(data: bytes) -> None:
    """Read an image's archive on this machine, an OCI layout or what ``docker save`` wrote, and its layers."""
    with tempfile.NamedTemporaryFile() as file, suppress(SlipwayError):
        file.write(data)
        file.flush()
        contents.read(local_image.open_image(file.name, "linux/amd64"))


def saved(data: bytes) -> None:
    """Read an image as an engine saves it."""

    @contextmanager
    def saving(_name: str, _access: Access) -> Iterator[IO[bytes]]:
        yield io.BytesIO(data)

    with patch.object(engine_access, "saving", saving), suppress(SlipwayError):
        engine_image.read(
            "r.example/x:1", SAVED_ID, Access(), "linux/amd64", lambda _path, _size, content: content.read(64)
        )


def delivery(data: bytes) -> None:
    """Take a webhook's call, signed, and not signed."""
    os.environ |= {"WEBHOOK_SECRET": "arn", "OWN_LABELS": "none", "LABELS": "none", "GITHUB_SCOPE": "acme"}
    aws._SECRETS["arn"] = aws._Secret(time.time(), "key")
    signature = f"sha256={hmac.new(b'key', data, hashlib.sha256).hexdigest()}"
    headers = {"X-Hub-Signature-256": signature, "content-type": "application/json", "x-github-event": "workflow_job"}
    signed = {"headers": headers, "body": base64.b64encode(data).decode(), "isBase64Encoded": True}
    assert webhook.handle(signed, None)["statusCode"] in {200, 403, 422}
    for encoded in (False, True):
        forged = {"headers": headers, "body": data.decode("latin-1") + "x", "isBase64Encoded": encoded}
        assert webhook.handle(forged, None)["statusCode"] in {400, 401}


@functools.cache
def _account() -> tuple[dict[str, Any], list[bytes]]:
    """Return the scaler's clients of AWS by service, and a list of one item, which each answers with."""
    answer = [b""]

    def answered(request: Any, **_: object) -> AWSResponse:
        status, body = (400, answer[0][1:]) if answer[0].startswith(b"!") else (200, answer[0])
        raw: Any = SimpleNamespace(stream=lambda *_args, **_more: iter([body]))
        return AWSResponse(request.url, status, {}, raw)

    once = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    services = ("autoscaling", "cloudwatch", "dynamodb", "ec2", "secretsmanager", "ssm")
    clients: dict[str, Any] = {name: boto3.client(name, "eu-west-1", config=once, **keys) for name in services}
    for client in clients.values():
        client.meta.events.register("before-send", answered)
    return clients, answer


def aws_answer(data: bytes) -> None:
    """Do a round of the scaler in which every call of AWS's has the same answer; with ``!`` before it, a refusal."""
    clients, answer = _account()
    answer[0] = data
    printed = io.StringIO()
    with ExitStack() as stack:
        for module in (aws, keeper):
            stack.enter_context(patch.object(module, "client", clients.__getitem__))
        stack.enter_context(patch.dict(aws._SECRETS, clear=True))
        stack.enter_context(patch.object(aws, "_LIST_SECONDS", 0.1))
        stack.enter_context(patch.object(github._OPENER, "open", side_effect=OSError("away")))
        stack.enter_context(redirect_stdout(printed))
        keeper.Keeper(ENVIRONMENT).round()
    assert all(len(line) < 1000 and json.loads(line) for line in printed.getvalue().splitlines())


def stack_yaml(data: bytes) -> None:
    """Read a stack's file."""
    with suppress(SlipwayError, UnicodeDecodeError):
        stack_file.parse(data.decode(), "stacks/Pulumi.x.yaml")


def lock_file(data: bytes) -> None:
    """Read the lock."""
    with suppress(SlipwayError, UnicodeDecodeError):
        lock._parsed(data.decode())


def reference(data: bytes) -> None:
    """Read an image's reference."""
    with suppress(SlipwayError, ValueError):
        references.qualified(data.decode())


def _archive() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, target in (
            ("usr/lib/x.so", tarfile.REGTYPE, ""),
            ("usr/lib/y.so", tarfile.LNKTYPE, "usr/lib/x.so"),
            ("usr/lib/z.so", tarfile.SYMTYPE, "../../../etc/passwd"),
            ("usr/.wh.bin", tarfile.REGTYPE, ""),
            ("é" * 200, tarfile.DIRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"abc"))
    return content.getvalue()


_SAVED_CONFIG = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [DIGEST, DIGEST]}}).encode()
SAVED_ID = f"sha256:{hashlib.sha256(_SAVED_CONFIG).hexdigest()}"


def _saved() -> bytes:
    """Return what an engine saves: two equal layers, the second as a link to the first."""
    layers = ["a/layer.tar", "b/layer.tar"]
    manifest = [{"Config": "config.json", "RepoTags": ["r.example/x:1"], "Layers": layers}]
    files = {layers[0]: _archive(), "config.json": _SAVED_CONFIG, "manifest.json": json.dumps(manifest).encode()}
    return members_archive(*files.items(), (layers[1], f"../{layers[0]}"))


def _layout() -> bytes:
    """Return an OCI layout of one image, packed."""
    blobs: dict[str, bytes] = {}

    def blob(body: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(body).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = body
        return {"digest": f"sha256:{digest}", "size": len(body), "mediaType": f"application/vnd.oci.image.{media_type}"}

    layer_entry = blob(_archive(), "layer.v1.tar")
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [layer_entry["digest"]]}}
    manifest = {"config": blob(json.dumps(config).encode(), "config.v1+json"), "layers": [layer_entry]}
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    blobs["index.json"] = json.dumps({"manifests": [entry]}).encode()
    return members_archive(*blobs.items())


_JOB = {"id": 7, "labels": ["a"], "created_at": "2027-01-15T08:00:00Z", "conclusion": None, "runner_name": None}
_PAYLOAD = {"action": "queued", "repository": {"full_name": "acme/x"}, "workflow_job": {**_JOB, "run_attempt": 1}}
_ROW = {"id": {"S": "7"}, "state": {"S": "queued"}, "repository": {"S": "acme/x"}, "since": {"N": "4000000000"}}
_RESULT = b"DescribeAutoScalingGroupsResult"
_GROUPS = b"<R><%b><AutoScalingGroups>%b</AutoScalingGroups></%b></R>" % (
    _RESULT,
    b"".join(
        b"<member><AutoScalingGroupName>%b</AutoScalingGroupName><DesiredCapacity>1</DesiredCapacity><MaxSize>6</MaxSize>"
        b"<Instances><member><InstanceId>i-0</InstanceId><LifecycleState>InService</LifecycleState></member></Instances>"
        b"</member>" % name.encode()
        for name in GROUPS.values()
    ),
    _RESULT,
)
_MACHINES = (
    b"<R><reservationSet><item><instancesSet><item><instanceId>i-0</instanceId>"
    b"<launchTime>2027-01-15T08:00:00Z</launchTime><instanceState><name>running</name></instanceState></item>"
    b"</instancesSet></item></reservationSet></R>"
)
_INDEX = {"manifests": [{"digest": DIGEST, "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}}]}
_MANIFEST = {
    "config": {"digest": DIGEST, "size": 2},
    "layers": [{"digest": DIGEST, "size": 2, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}],
    "configuration": {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"diff_ids": [DIGEST]},
        "history": [{"created_by": "RUN"}],
        "config": {"Env": ["A=b"]},
    },
}
_HEADER = rpm_writer.header("bash", "5.1", "1")


def _berkeley_db() -> bytes:
    """Return a hash file of three pages: its metadata, a key with a value elsewhere, and that value."""
    metadata = struct.pack("<12xIII8xI", 0x061561, 9, 512, 2).ljust(512, b"\0")
    item = struct.pack("<B3xII", 3, 2, len(_HEADER))
    pairs = struct.pack("<20xHHBB2H", 2, 0, 0, 13, 507, 495).ljust(495, b"\0") + item + b"\1key\0"
    value = struct.pack("<16xIHH2x", 0, 0, len(_HEADER)) + _HEADER
    return metadata + pairs.ljust(512, b"\0") + value.ljust(512, b"\0")


HARNESSES: Mapping[str, Harness] = {
    "elf": Harness(
        elf,
        [
            elf_writer.elf(
                "libx.so.1",
                ("libc.so.6",),
                runpath="$ORIGIN",
                interpreter=elf_writer.LOADER,
                defined=("f",),
                undefined=("g",),
                needs={"libc.so.6": ("GLIBC_2.17",)},
                provides=("X_1",),
            ),
            elf_writer.elf(gpu=elf_writer.fatbin((2, 90, 0))),
            elf_writer.loader(),
        ],
    ),
    "fatbin": Harness(fatbin, [elf_writer.fatbin((2, 90, 0), (1, 80, 0))]),
    "layer": Harness(tar_layer, [_archive()]),
    "archive": Harness(archive, [_layout(), _saved()]),
    "saved": Harness(saved, [_saved(), _layout()]),
    "dpkg": Harness(database("var/lib/dpkg/status"), [b"Package: a\nStatus: install ok installed\nVersion: 1\n\n"]),
    "rpm": Harness(database("var/lib/rpm/Packages"), [_berkeley_db()]),
    "rpm-sqlite": Harness(database("var/lib/rpm/rpmdb.sqlite"), [rpm_writer.rpmdb(_HEADER)]),
    "oci": Harness(oci_document, [json.dumps(each).encode() for each in (_INDEX, _MANIFEST)]),
    "webhook": Harness(delivery, [json.dumps(_PAYLOAD).encode()]),
    "aws": Harness(
        aws_answer,
        [
            b"{}",
            b"!<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>",
            json.dumps({"Items": [_ROW], "Parameters": [{"Name": "/a/i-0"}], "SecretString": "{}"}).encode(),
            json.dumps({"Items": [{**_ROW, "left": {"N": "1"}}], "LastEvaluatedKey": {"id": {"S": "7"}}}).encode(),
            _GROUPS,
            _MACHINES,
        ],
    ),
    "stack": Harness(stack_yaml, [b"config:\n  slipway:flavor: local\n  slipway:torch: &t {version: 2.6.0}\n"]),
    "lock": Harness(lock_file, [f'"docker.io/library/debian:12" = "{DIGEST}"\n'.encode()]),
    "reference": Harness(reference, [b"ghcr.io/acme/x:1@" + DIGEST.encode()]),
}
