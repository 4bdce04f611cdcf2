"""The stacks whose states are in ``states``, on stand-ins. Together they have every type of Slipway's resources.

Commit 25ac601 wrote these states: :func:`main` in its checkout, with this module on that commit's imports. A state has
placeholders for what differs between machines and runs. ``${registry}`` and the like are known to the project.
``${today}`` is any other value that differed between two runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
from moto.server import ThreadedMotoServer

from tests.aws.conftest import HTPASSWD, AwsProject
from tests.aws.runners import RUNNERS, WITH_WEBHOOK, image
from tests.aws.runners import RunnersProject as Ec2Project
from tests.engine.project import Project
from tests.fakes.docker_relay import Relay
from tests.fakes.tls_relays import server_context
from tests.helpers import registry_api
from tests.images.engine import client
from tests.provider.conftest import private_registry
from tests.provider.plugin import CHECKOUT

PRODUCT = """ARG BASE_IMAGE
ARG PRODUCT_IMAGE=""
FROM ${BASE_IMAGE} AS product
COPY link0/file.txt /product.txt
FROM ${PRODUCT_IMAGE:-product}
"""
PUBLIC_KEY = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
COSIGN = """#!/usr/bin/env python3
import base64, json, sys
types = {"spdxjson": "https://spdx.dev/Document", "slsaprovenance1": "https://slsa.dev/provenance/v1"}
if sys.argv[1] == "version":
    print("GitVersion: v2.6.5")
if sys.argv[1] == "verify-attestation":
    name, digest = next(word for word in sys.argv if "@sha256:" in word).split("@sha256:")
    subject = [{"name": name, "digest": {"sha256": digest}}]
    statement = {"predicateType": types[sys.argv[sys.argv.index("--type") + 1]], "subject": subject, "predicate": {}}
    print(json.dumps({"payload": base64.b64encode(json.dumps(statement).encode()).decode()}))
"""
SYFT = """#!/bin/sh
echo '{"packages": [{}]}'
"""
KUBECTL = """#!/bin/sh
echo '{"items": []}'
"""
SSH = """#!/bin/sh
# The builder's Docker is this machine's.
case "$*" in *dial-stdio) DOCKER_HOST={engine} exec {docker} system dial-stdio ;; esac
"""
DONE = "#!/bin/sh\n"

Stack = tuple[Project, Callable[..., None]]
"""A project and what writes its YAML; ``word`` changes every image."""


@contextmanager
def products(root: Path) -> Iterator[Stack]:
    """A build product and two images in a local registry."""
    project = _prepared(Project(root / "project"))
    project.write("dockerfiles/link0/Dockerfile", PRODUCT)
    flavor = "stacks/flavors/chain.py"
    text = (project.root / flavor).read_text()
    project.write(flavor, text.replace("args={", "product=number == 0, args={"))
    yield project, partial(project.configure, length=3)


@contextmanager
def signed(root: Path) -> Iterator[Stack]:
    """Two images on a verified parent, with signatures, attestations and additional tags."""
    project = _prepared(Project(root / "project"))
    project.write("cosign.key", "")
    _programs(project, cosign=COSIGN, syft=SYFT)
    project.environment["COSIGN_PASSWORD"] = ""
    prefix = f"{project.registry}/{project.path}"
    yield (
        project,
        partial(
            project.configure,
            length=2,
            base=f"{prefix}/parent:1@{_push(project, 'parent')}",
            extraTags=["stable"],
            signing={"key": "cosign.key", "publicKey": PUBLIC_KEY},
            trust={prefix: {"publicKey": PUBLIC_KEY, "transparencyLog": False}},
        ),
    )


@contextmanager
def ecr(root: Path) -> Iterator[Stack]:
    """Two images in ECR."""
    (root / "registry").mkdir()
    with _moto() as moto, private_registry(root / "registry", htpasswd=HTPASSWD) as registry:
        project = _prepared(AwsProject(root / "project", moto, registry))
        yield project, partial(project.configure, length=2)


def on_folder(root: Path) -> tuple[Project, Path]:
    """Return a project whose cluster is a folder, and the folder."""
    project = _prepared(Project(root / "project"))
    cluster = root / "cluster"
    cluster.mkdir()
    command = shlex.join([sys.executable, "-P", "-m", "tests.fakes.plugin", "tests.fakes.kubernetes.folder_plugin"])
    plugin = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {command} "$@"\n'
    _programs(project, **{"kubectl": KUBECTL, "pulumi-resource-kubernetes": plugin})
    project.environment |= {"CLUSTER_FOLDER": str(cluster), "KUBECONFIG": str(root / "kubeconfig")}
    return project, cluster


@contextmanager
def kubernetes(root: Path) -> Iterator[Stack]:
    """Runners on Kubernetes, an image built on their build service, and its GPU checks."""
    project, cluster = on_folder(root)
    # This machine's engine, behind the certificate that the cluster has now: an update may make another one.
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    with Relay(engine, partial(service_context, cluster)) as relay:
        runners = {
            "kind": "kubernetes",
            "profile": "eks-p5",
            "github": {"url": "https://github.com/acme", "secret": "github"},
            "build": {"address": relay.host.removeprefix("tcp://"), "nodeSelector": {"acme.example/pool": "builds"}},
            "validation": {"image": "link0", "command": ["true"]},
        }
        project.environment.pop("DOCKER_HOST", None)  # the official provider would build there
        yield project, partial(project.configure, runners=runners, buildOn="runners")


@contextmanager
def ec2(root: Path) -> Iterator[Stack]:
    """Runners on EC2, and an image built on their builder."""
    (root / "registry").mkdir()
    with _moto() as moto, private_registry(root / "registry") as registry:
        image(moto, "x86_64")
        project = Ec2Project(root / "project", moto, registry)
        _prepared(project)
        ssh = SSH.format(engine=os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"), docker=client())
        _programs(project, **{"ssh": ssh, "aws": DONE, "session-manager-plugin": DONE})
        where = {"kind": "local", "address": project.registry, "path": project.path}
        runners = {**RUNNERS, **WITH_WEBHOOK, "build": {"instanceType": "c7i.4xlarge"}}
        # Not the project's own, which adds what ECR needs.
        yield project, partial(Project.configure, project, registry=where, runners=runners, buildOn="runners")


STATES = Path(__file__).parent / "states"
STACKS = {"products": products, "signed": signed, "ecr": ecr, "kubernetes": kubernetes, "ec2": ec2}


def old_state(kind: str, project: Project) -> str:
    """Return the old state of a stack, with the values of a project that is deployed from today's code."""
    text = (STATES / f"{kind}.json").read_text()
    for name, value in placeholders(project).items():
        text = text.replace(f"${{{name}}}", value)
    text = text.replace('"${port}"', project.registry.rpartition(":")[2])  # a number, in policies of the network
    today = json.loads(project.pulumi("stack", "export", "-s", "t", "--show-secrets").stdout)
    if isinstance(project, Ec2Project):  # it had no such table
        project.api("dynamodb").delete_table(TableName="slipway-t-configs")
    state = filled(json.loads(text), today)
    for resource in state["deployment"]["resources"]:
        if "__inputs" in resource.get("outputs", {}):  # with which the provider compares the next ones
            inputs = resource["outputs"]["__inputs"]
            plain = _without_secrets(resource["inputs"])
            resource["outputs"]["__inputs"] = {**inputs, "plaintext": json.dumps(plain)}
    return json.dumps(state)


def placeholders(project: Project) -> dict[str, str]:
    """Return the values that the project knows, by placeholder."""
    outputs = project.outputs()
    images = {**outputs["images"], **outputs.get("products", {})}
    digests = {name: image["digest"].removeprefix("sha256:") for name, image in images.items()}
    service = outputs.get("runners", {}).get("buildService")
    host = getattr(project, "host", project.registry)
    return {
        "registry": host,
        "path": project.path,
        **digests,
        **({"service": service} if service else {}),
        **({"local": project.registry} if project.registry != host else {}),
    }


def masked(first: Any, second: Any) -> Any:
    """Return a value with ``${today}`` wherever it differs in the second run."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return {key: "${today}" if key in _LEFT_OUT else masked(value, second[key]) for key, value in first.items()}
    if isinstance(first, list):
        return [masked(one, other) for one, other in _paired(first, second)]
    return first if first == second else "${today}"


def filled(old: Any, today: Any) -> Any:
    """Return an old value with today's in place of ``${today}``."""
    if isinstance(old, dict):
        if _is_secret(old):
            return today
        return {key: filled(value, today.get(key) if isinstance(today, dict) else None) for key, value in old.items()}
    if isinstance(old, list):
        values = [filled(one, other) for one, other in _paired(old, today)]
        return [value for value in values if value is not None]  # what no longer exists depends on nothing
    return today if old == "${today}" else old


def _is_secret(value: dict[str, Any]) -> bool:
    return value.get("4dabf18193072939515e22adb298388d") == "1b47061264138c4ac30d75fd1eb44270"


def _without_secrets(value: Any) -> Any:
    """Return a value with what its secrets hold in their place."""
    if not isinstance(value, dict):
        return value
    if _is_secret(value):
        return json.loads(value["plaintext"])
    return {key: _without_secrets(item) for key, item in value.items()}


_LEFT_OUT = {"availabilityZone", "text"}
"""moto's choice may be the same in two runs; an asset's hash is beside its text."""


def _paired(first: list[Any], second: Any) -> list[tuple[Any, Any]]:
    """Pair the items of two lists: resources by URN, because their order varies, or else by type."""
    if first and isinstance(first[0], dict) and "urn" in first[0]:
        by_urn = {one["urn"]: one for one in second}
        by_type = {one["type"]: one for one in second}
        return [(one, by_urn.get(one["urn"], by_type.get(one["type"]))) for one in first]
    others = second if isinstance(second, list) and len(second) == len(first) else [None] * len(first)
    return list(zip(first, others, strict=True))


def _prepared(project: Project) -> Project:
    """Initialise a project's stack; its files are the same on every machine, and so are its tags."""
    for number in range(3):
        project.write(f"dockerfiles/link{number}/file.txt", f"content {number}\n")
    project.pulumi("stack", "init", "t")
    return project


def _programs(project: Project, **scripts: str) -> None:
    """Put programs on the project's PATH; the venv's bin stays first, where the language host finds its Python."""
    folder = project.root.with_name("programs")
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    project.environment["PATH"] = f"{Path(sys.executable).parent}:{folder}:{project.environment['PATH']}"


@contextmanager
def _moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    requests.post(f"http://{host}:{port}/moto-api/reset", timeout=30).raise_for_status()
    yield f"http://{host}:{port}"
    server.stop()


def _push(project: Project, name: str) -> str:
    """Push an image with one empty layer, and return its digest, which is the same everywhere."""
    layer = bytes(1024)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    url = f"{project.registry}/{project.path}/{name}"

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        where = registry_api.send("POST", f"{url}/blobs/uploads/").headers["Location"]
        registry_api.send("PUT", where, content, params={"digest": digest}).raise_for_status()
        return {"mediaType": f"application/vnd.oci.image.{kind}", "size": len(content), "digest": digest}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(layer, "layer.v1.tar")],
    }
    content = json.dumps(manifest).encode()
    headers = {"Content-Type": str(manifest["mediaType"])}
    registry_api.send("PUT", f"{url}/manifests/1", content, headers).raise_for_status()
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def service_context(cluster: Path, name: str = "build") -> ssl.SSLContext:
    """Return the TLS of the service, or of a replica, by the certificate that the cluster has now.

    Raises:
        OSError: it has none.
    """
    secret = next(cluster.glob(f"Secret-*-build-{name}-server.json"), None)
    if secret is None:
        raise OSError("no certificate")
    pem = json.loads(secret.read_text())["stringData"]
    return server_context(pem["ca.pem"], pem["cert.pem"], pem["key.pem"])


def main() -> None:
    """Write the states of all stacks."""
    for kind, stack in STACKS.items():
        runs = []
        for _ in range(2):
            with TemporaryDirectory() as folder, stack(Path(folder)) as (project, configure):
                configure()
                project.up()
                runs.append(_exported(project))
                project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
        (STATES / f"{kind}.json").write_text(json.dumps(masked(*runs), indent=1) + "\n")


def _exported(project: Project) -> Any:
    """Return the project's state with placeholders, without the times and source lines of its resources."""
    text = project.pulumi("stack", "export", "-s", "t").stdout
    for name, value in placeholders(project).items():
        text = text.replace(value, f"${{{name}}}")
    state = json.loads(text)
    for resource in state["deployment"]["resources"]:
        for key in {"created", "modified", "sourcePosition", "stackTrace"} & resource.keys():
            del resource[key]
    return state


if __name__ == "__main__":
    main()
