"""A harness for each parser of outside input: what it is fed, and the errors that are its answer to a malformed one.

Whatever else a harness raises is a fault of the parser.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

from ci.verbs import comment
from cli import verify
from containers.blob import BlobUnreadable
from containers.engine import engine_image
from containers.engine.connection import Address
from containers.errors import SlipwayError
from containers.evidence import cosign, gpu_report
from containers.image import local_image, registry_image
from containers.image.binaries import contents, elf_file, loader_config
from containers.image.gpu import gpu_code
from containers.image.layers import layer, packages
from containers.image.owners import rpm_records
from containers.registry import reference as references
from containers.registry.client import Manifest
from stacks import lock
from stacks.config import stack_file
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.gates.promotion_gate import GpuChecksConfig
from stacks.config.signing import SigningConfig
from stacks.config.stack_config import StackConfig
from stacks.plan import Plan
from tests.fuzzing import build_inputs, network_answers, tool_answers
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
    with suppress(BlobUnreadable):
        layer.index(io.BytesIO(data), kind)


def database(path: str) -> Callable[[bytes], None]:
    """Return the harness for a package database."""

    def run(data: bytes) -> None:
        parse = packages.database(path)
        assert parse
        with suppress(ValueError):
            parse(data)
        if rpm_records.is_database(path):
            rpm_records.of_database(path, data)

    return run


def records(data: bytes) -> None:
    """Read the loader's configuration in an image, and what package managers record, each from the same bytes."""
    for path in _RECORD_PATHS:
        contents.facts(path, len(data), io.BytesIO(data))
    loader_config.cached(data)
    loader_config.preloaded_always(data)
    loader_config.configured(lambda _: data, ["etc/ld.so.conf", "etc/ld.so.conf.d/a.conf", "etc/ld.so.conf.d/b.conf"])


class _Blobs:
    """A repository whose every blob is the same configuration."""

    reference = "r.example/x:1"

    def __init__(self, config: Any) -> None:
        self._config = config

    def blob(self, digest: str, read: Callable[[IO[bytes]], Any], size: int | None = None) -> Any:
        """Return what ``read`` makes of an empty blob."""
        del digest, size
        return read(io.BytesIO())

    def json(self, digest: str, size: int = 0) -> dict[str, Any]:
        """Return the configuration, which the client knows to be an object."""
        del digest, size
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
        image = registry_image.of(_Blobs(content.get("configuration")), manifest)
        assert image.size + len(image.diff_ids) + len(image.platform)


def archive(data: bytes) -> None:
    """Read an image's archive on this machine, an OCI layout or what ``docker save`` wrote, and its layers."""
    with tempfile.NamedTemporaryFile() as file, suppress(SlipwayError):
        file.write(data)
        file.flush()
        contents.read(local_image.open_image(file.name, "linux/amd64"))


def saved(data: bytes) -> None:
    """Read an image as an engine saves it."""

    @contextmanager
    def saving(_name: str, _address: Address) -> Iterator[IO[bytes]]:
        yield io.BytesIO(data)

    with patch.object(engine_image, "saving", saving), suppress(SlipwayError):
        engine_image.read(
            "r.example/x:1", SAVED_ID, Address(), "linux/amd64", lambda _path, _size, content: content.read(64)
        )


def attested(data: bytes) -> None:
    """Read what a signer attested of an image: an object with a predicate for each kind."""
    try:
        attested = {kind: each for kind, each in dict(json.loads(data)).items() if kind in cosign.PREDICATES}
        statements = [{"predicateType": cosign.PREDICATES[kind][1], "predicate": attested[kind]} for kind in attested]
        payloads = [base64.b64encode(json.dumps(each).encode()).decode() for each in statements]
    except (ValueError, TypeError, RecursionError):
        return
    output = "\n".join(json.dumps({"payload": payload}) for payload in payloads)
    with patch.object(cosign, "_run", lambda *_: output), suppress(SlipwayError):
        evidence = verify.Evidence(f"r.example/x@{DIGEST}", _SIGNING, None, {"loading", "scan"} & {*attested})
        evidence.parents(Plan("fuzzed", _CONFIG, ()))
        lines = [*(text for _, text in evidence.facts()), *evidence.violations(datetime(2027, 1, 1, tzinfo=UTC))]
        assert all("\n" not in line for line in lines)
    with suppress(SlipwayError):
        report = gpu_report.of_predicate(attested.get("gpu"), "r.example/x")
        assert all("\n" not in line for line in (report.summary(), *gpu_report.violations(report, _GPU_CHECKS)))


@functools.cache
def _reports() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the reports of a pull request."""
    return tempfile.TemporaryDirectory()


def comment_text(data: bytes) -> None:
    """Render a report that a fork's pull request made."""
    file = Path(_reports().name, "local.txt")
    file.write_bytes(data)
    body = comment.text({"conclusion": "success", "head_sha": "a" * 40, "html_url": "u"}, [file])
    assert len(body) <= 65_536
    fence = body.partition("text\n")[0].rpartition("\n")[2]
    assert set(fence) == {"`"}
    assert body.count(fence) == 2
    assert body.endswith(f"\n{fence}\n\n</details>\n")


def stack_yaml(data: bytes) -> None:
    """Read a stack's file."""
    with suppress(SlipwayError, UnicodeDecodeError):
        stack_file.parse(data.decode(), "stacks/Pulumi.x.yaml")


def lock_file(data: bytes) -> None:
    """Read the lock."""
    with suppress(SlipwayError, UnicodeDecodeError):
        lock._parsed(data.decode())


def reference(data: bytes) -> None:
    """Read an image's reference, its parts, and a list of registries and repositories, a line each."""
    text = data.decode(errors="replace")
    assert str(references.Reference.of(text).in_full)
    references.on_loopback(text)
    prefixes = text.split("\n")
    references.covering(prefixes, prefixes[-1])
    for check in (
        references.check_host,
        references.check_path,
        references.check_repository,
        references.check_reference,
    ):
        with suppress(ValueError):
            assert check(text) == text
    with suppress(ValueError):
        references.check_prefixes(prefixes)


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
_OTHER_IMAGES = (
    {"manifests": [*_INDEX["manifests"], {"digest": "b", "platform": {"os": "unknown", "architecture": "unknown"}}]},
    {
        "manifests": [
            {"digest": DIGEST, "platform": {"os": "linux", "architecture": each}} for each in ("amd64", "s390x")
        ]
    },
    {
        **_MANIFEST,
        "layers": [{"digest": DIGEST, "size": 1, "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"}] * 2,
        "configuration": {
            "os": "linux",
            "architecture": "arm",
            "variant": "v7",
            "rootfs": {"type": "layers", "diff_ids": [DIGEST, DIGEST]},
            "history": [{"created_by": "ENV", "empty_layer": True}, {"created_by": "RUN"}, {}],
            "config": {
                "Env": ["A=b"],
                "Entrypoint": ["/x"],
                "Cmd": None,
                "Volumes": {"/v": {}},
                "Labels": {"a": "b"},
                "WorkingDir": "/",
                "User": "1",
            },
        },
    },
)
_STATUS = b"""Package: a
Status: deinstall ok config-files
Version: 1

Package: libc6
Status: install ok installed
Multi-Arch: same
Architecture: amd64
Version: 2.36-9
Description: x
 y

Package: base-files
Version:   12\x20
"""
_LOCKED = f"""refresh = "2026-01-31"
"https://github.com/a/b#main" = "{"a" * 40}"
"https://github.com/a/b#{"b" * 7}^{{commit}}" = "{"b" * 40}"
"https://github.com/a/b#refs/tags/v1" = '{"c" * 40}'
[packages."linux/amd64 https://i.example/simple torch==2"]
"https://i.example/a.whl" = "{"d" * 64}"
[platforms]
"docker.io/library/debian:12@{DIGEST}" = {{ "linux/arm64" = "{DIGEST}" }}
"""
_REFERENCES = (
    b"localhost:5000/a/b__c.d-e:v1_2",
    b"debian",
    b"index.docker.io/library/debian:12",
    b"ghcr.io/acme\nnvidia/cuda\nghcr.io/acme/x:1",
    b"127.0.0.1:65535/x",
)
_RECORD_PATHS = (
    "usr/lib/python3/dist-packages/a-1.dist-info/RECORD",
    "opt/conda/conda-meta/a-1-0.json",
    "var/lib/dpkg/info/a.list",
    "var/lib/dpkg/info/a.md5sums",
)
_RECORDS = (
    b"a/b.py,sha256=AAAA,12\na/c.py,,\n",
    json.dumps({"paths_data": {"paths": [{"_path": "a", "sha256": "b", "size_in_bytes": 3}]}}).encode(),
    b"include ld.so.conf.d/*.conf\n/opt/lib=libc6 # x\nhwcap 0 x\n",
    b"0123456789abcdef0123456789abcdef  usr/lib/a\n",
)
_SIGNING = SigningConfig.model_validate(
    {"key": "env://KEY", "publicKey": "awskms:///alias/x", "policy": {"maxAgeDays": 1}}
)
_CONFIG = StackConfig.model_construct(None, flavor="local", trust={}, mirrors=MirrorsConfig())
_GPU_CHECKS = GpuChecksConfig.model_validate(
    {"profile": "eks-p5", "busBandwidth": 100, "network": "efa", "gpus": 8, "firstStep": 20}
)
_PROVENANCE = {
    "buildDefinition": {
        "externalParameters": {"configSource": {"uri": "git+https://g.example/x", "digest": {"sha1": "a"}}},
        "internalParameters": {"uncommitted": False, "ref": "refs/heads/main", "engine": "machine"},
        "resolvedDependencies": [{"uri": f"pkg:docker/debian@{DIGEST}?platform=linux%2Famd64"}],
    },
    "runDetails": {"builder": {"id": "b"}, "metadata": {"finishedOn": "2026-12-31T00:00:00Z"}},
}
_LOADING = {
    "result": "PASSED",
    "inspected": "2026-12-31T00:00:00Z",
    "images": [{"resolved": 3}],
    "faults": [{"file": "/a", "names": ["b"], "fault": "c"}],
    "notListed": 0,
}
_SCAN = {
    "scanner": {
        "uri": "pkg:golang/github.com/anchore/grype@v1",
        "db": {"version": "2026-12-31T00:00:00Z"},
        "result": {"matches": [{}], "notListed": 0},
    },
    "metadata": {"scanFinishedOn": "2026-12-31T00:00:00Z"},
}
_REPORT = {
    "gpuChecks": 1,
    "result": "PASSED",
    "image": f"r.example/x@{DIGEST}",
    "profile": "eks-p5",
    "started": "2026-12-31T00:00:00Z",
    "finished": "2026-12-31T00:00:01Z",
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "memory": 1}],
    "measured": {
        "busBandwidth": 300.0,
        "copyBandwidth": 300.0,
        "gpus": 8,
        "networks": ["efa"],
        "firstStep": {"seconds": 9},
    },
}
_ATTESTED = {
    "sbom": {"packages": []},
    "provenance": _PROVENANCE,
    "loading": _LOADING,
    "scan": _SCAN,
    "gpu": _REPORT,
}
_HEADER = rpm_writer.header("bash", "5.1", "1")
_WITH_FILES = rpm_writer.header(
    "a", "1", "2", "x86_64", 3, {"/usr/lib/a.so": ("ab" * 32, 5), "/etc/a": ("", 0)}, states=(0, 1)
)


def _berkeley_db() -> bytes:
    """Return a hash file of three pages: its metadata, a key with a value elsewhere, and that value."""
    metadata = struct.pack("<12xIII8xI", 0x061561, 9, 512, 2).ljust(512, b"\0")
    item = struct.pack("<B3xII", 3, 2, len(_HEADER))
    pairs = struct.pack("<20xHHBB2H", 2, 0, 0, 13, 507, 495).ljust(495, b"\0") + item + b"\1key\0"
    value = struct.pack("<16xIHH2x", 0, 0, len(_HEADER)) + _HEADER
    return metadata + pairs.ljust(512, b"\0") + value.ljust(512, b"\0")


def _ld_cache() -> bytes:
    """Return a cache of one library, in the form that glibc has had since 2.32."""
    start = 48 + 24
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 1, 14, 2, start + 16)
    entry = struct.pack("<iIIIII", 0x0303, start, start + 4, 0, 0, 1 << 30)
    extension = struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, start + 40, 4) + struct.pack("<I", start)
    return header + entry + b"a.1\0/lib/a.1\0\0\0\0" + extension


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
    "fatbin": Harness(
        fatbin,
        [
            elf_writer.fatbin((2, 90, 0), (1, 80, 0)),
            bytes(16) + elf_writer.fatbin((16, 100, 1 << 20), (2, 120, 1 << 21), (64, 1, 0)) + bytes(8),
            elf_writer.fatbin((1, 75, 0), payload=0) + elf_writer.fatbin(),
        ],
    ),
    "layer": Harness(tar_layer, [_archive()]),
    "archive": Harness(archive, [_layout(), _saved()]),
    "saved": Harness(saved, [_saved(), _layout()]),
    "dpkg": Harness(
        database("var/lib/dpkg/status"), [b"Package: a\nStatus: install ok installed\nVersion: 1\n\n", _STATUS]
    ),
    "rpm": Harness(database("var/lib/rpm/Packages"), [_berkeley_db()]),
    "rpm-sqlite": Harness(
        database("var/lib/rpm/rpmdb.sqlite"), [rpm_writer.rpmdb(_HEADER), rpm_writer.rpmdb(_HEADER, _WITH_FILES)]
    ),
    "oci": Harness(oci_document, [json.dumps(each).encode() for each in (_INDEX, _MANIFEST, *_OTHER_IMAGES)]),
    "records": Harness(records, [_ld_cache(), *_RECORDS]),
    "attested": Harness(attested, [json.dumps(_ATTESTED).encode()]),
    "comment": Harness(
        comment_text, [b"torch  would change\n  + a\n", b"```\n@acme ````\n", b"</details>\xff\0\n" * 9]
    ),
    "webhook": Harness(network_answers.delivery, network_answers.DELIVERIES),
    "aws": Harness(network_answers.aws_answer, network_answers.AWS_ANSWERS),
    "github": Harness(network_answers.github_answer, network_answers.GITHUB_ANSWERS),
    "registry": Harness(network_answers.registry_answer, network_answers.REGISTRY_ANSWERS),
    "index": Harness(network_answers.index_answer, network_answers.INDEX_ANSWERS),
    "engine": Harness(tool_answers.engine_answer, tool_answers.ENGINE_ANSWERS),
    "cluster": Harness(tool_answers.cluster, tool_answers.CLUSTERS),
    "azure": Harness(tool_answers.azure, tool_answers.LOGIN_ANSWERS),
    "google": Harness(tool_answers.google, tool_answers.LOGIN_ANSWERS),
    "grype": Harness(tool_answers.grype_report, tool_answers.GRYPE_REPORTS),
    "dockerfile": Harness(build_inputs.dockerfile, build_inputs.DOCKERFILES),
    "script": Harness(build_inputs.script, build_inputs.SCRIPTS),
    "ignore": Harness(build_inputs.ignore_file, build_inputs.IGNORE_FILES),
    "stack": Harness(stack_yaml, [b"config:\n  slipway:flavor: local\n  slipway:torch: &t {version: 2.6.0}\n"]),
    "lock": Harness(lock_file, [f'"docker.io/library/debian:12" = "{DIGEST}"\n'.encode(), _LOCKED.encode()]),
    "reference": Harness(reference, [b"ghcr.io/acme/x:1@" + DIGEST.encode(), *_REFERENCES]),
}
