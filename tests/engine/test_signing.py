"""What stands beside a pushed image: tags, a signature, an SBOM, its provenance, by real cosign and Syft."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from containers.evidence import cosign
from containers.registry import client, index
from stacks import lock
from tests.engine.project import Project
from tests.engine.test_checks import CHECK, DOCKERFILE, PASSING
from tests.engine.test_products import machine
from tests.helpers import gpu_reports, pushed_image, registry_api
from tests.provider.conftest import _HTPASSWD, PASSWORD, USER, Registry, private_registry
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs as signing

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
KEY_PASSWORD = "of the tests' key"
BASE = "debian:bookworm-slim"


class Keys:
    """A key pair of cosign's, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        variables = {**os.environ, "COSIGN_PASSWORD": KEY_PASSWORD}
        subprocess.run(["cosign", "generate-key-pair"], cwd=folder, env=variables, check=True, capture_output=True)
        self.private = folder / "cosign.key"
        self.public = (folder / "cosign.pub").read_text()

    def signing(self, **more: Any) -> dict[str, Any]:
        """Return ``slipway:signing`` with this key."""
        return {"key": str(self.private), "publicKey": self.public, **more}


def install(*names: str) -> str:
    """Have some of the programs that sign and scan; return the PATH that they are on."""
    checkout = Checkout.here()
    tools = [tool for tool in signing.TOOLS if tool.name in names]
    with golang.caches(checkout):
        folders = [folder for tool in tools for folder in signing.get(checkout, tool).path]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys([*folders, *os.environ["PATH"].split(os.pathsep)]))
    return os.environ["PATH"]


@pytest.fixture(scope="session")
def programs() -> str:
    """Have all of them; return the PATH that they are on."""
    return install(*(tool.name for tool in signing.TOOLS))


@pytest.fixture
def keys(programs: str, project: Project, tmp_path: Path) -> Keys:
    """A key pair whose password the project knows."""
    project.environment |= {"PATH": programs, "COSIGN_PASSWORD": KEY_PASSWORD}
    return Keys(tmp_path / "keys")


@pytest.fixture
def locked_registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that wants USER and PASSWORD."""
    folder = tmp_path / "registry"
    folder.mkdir()
    with private_registry(folder, htpasswd=_HTPASSWD) as registry:
        yield registry


def commit(project: Project) -> str:
    """Make the project a repository with a remote; return its commit."""
    words = ["git", "-C", str(project.root), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    (project.root / ".gitignore").write_text(".slipway/\n__pycache__/\nstate/\n.pulumi/\n")
    subprocess.run(["git", "init", "-q", "-b", "main", project.root], check=True)
    for more in (
        ["remote", "add", "origin", "https://me:hunter2@git.example/acme/images.git"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
    ):
        subprocess.run([*words, *more], check=True)
    return subprocess.run([*words, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_extra_tags_follow_the_image_and_are_outputs(project: Project) -> None:
    project.configure(length=2, extraTags=["latest", "stable"])
    project.up()
    outputs = project.outputs()
    assert outputs["extraTags"] == {
        name: [f"{project.registry}/{project.path}/{name}:{tag}" for tag in ("latest", "stable")]
        for name in ("link0", "link1")
    }
    digests = {name: image["digest"] for name, image in outputs["images"].items()}
    assert UNCHANGED.search(project.up().output)
    project.configure(length=2, word="two", extraTags=["latest"])
    project.up()
    for name, image in project.outputs()["images"].items():
        assert image["digest"] != digests[name]
        assert project.fetch(f"{project.path}/{name}/manifests/latest") == project.manifest(image["ref"])
        left = f"{project.registry}/{project.path}/{name}@{digests[name]}"
        assert project.fetch(f"{project.path}/{name}/manifests/stable") == project.manifest(left)


def locked_source(project: Project) -> dict[str, Any]:
    """Let the last image have a script that fetches a locked source; return that as provenance has it."""
    project.write("dockerfiles/common/build/fetch-source", "#!/bin/sh\n")
    (project.root / "dockerfiles/common/build/fetch-source").chmod(0o755)
    project.write("dockerfiles/link1/fetch", "fetch-source acme/tool v1 /src\n")
    project.write("dockerfiles/link1/Dockerfile.dockerignore", "*\n!link1\n!common\n")
    dockerfile = project.root / "dockerfiles/link1/Dockerfile"
    dockerfile.write_text(f"{dockerfile.read_text()}COPY common/build/fetch-source link1/fetch /scripts/\n")
    lock.write(project.root, {"https://github.com/acme/tool#refs/tags/v1": "c" * 40})
    return {"uri": "git+https://github.com/acme/tool@refs/tags/v1", "digest": {"gitCommit": "c" * 40}}


@pytest.mark.slow
def test_signed_chain_life_signs_and_verifies(project: Project, keys: Keys) -> None:
    project.configure(length=2, signing=keys.signing(), base=BASE)
    preview = project.preview().output
    assert re.search(r"\+ +(?:[│├└─ ]*)pulumi-python:dynamic/image:Signature +link1-signature", preview), preview
    locked = locked_source(project)
    revision = commit(project)
    output = project.up().output
    outputs = project.outputs()
    for name, image in outputs["images"].items():
        tag = image["ref"].replace("@sha256:", ":sha256-")
        signed = outputs["signed"][name]
        assert signed["signature"] == f"{tag}.sig"
        assert signed["sbom"]["attestation"] == signed["provenance"]["attestation"] == f"{tag}.att"
        assert signed["sbom"]["packages"] > 50
        assert signed["provenance"]["source"] == "git+https://git.example/acme/images"
        assert signed["provenance"]["revision"] == revision
        assert signed["provenance"]["date"] == project.config_of(image["ref"])["created"]
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)

    text = project.stacks("verify", "t")
    refs = [image["ref"] for image in outputs["images"].values()]
    assert [line.partition(": ")[2] for line in text.splitlines() if not line.startswith(" ")] == refs
    assert len(re.findall(rf"git\+https://git\.example/acme/images at {revision[:12]}", text)) == 2, text
    parent = refs[0].partition("@")[0]
    assert f"on {parent}@{outputs['images']['link0']['digest']}" in text, text
    assert re.search(r"on \S+/debian(:bookworm-slim)?@(bookworm-slim, by tag only|sha256:)", text), text

    # cosign itself says the same, by the public key alone
    words = [
        "cosign",
        "verify-attestation",
        "--type",
        "slsaprovenance1",
        "--key",
        str(keys.private.parent / "cosign.pub"),
    ]
    answer = subprocess.run(
        [*words, "--insecure-ignore-tlog=true", refs[1]], env=project.environment, check=True, capture_output=True
    )
    attested = json.loads(answer.stdout)
    assert attested["payloadType"] == "application/vnd.in-toto+json"
    predicate = json.loads(base64.b64decode(attested["payload"]))["predicate"]
    assert locked in predicate["buildDefinition"]["resolvedDependencies"]

    # whatever goes wrong with a key is one line, and nothing of the key is seen
    other = Keys(keys.private.parent.with_name("others"))
    project.configure(length=2, signing=other.signing(), base=BASE)
    failed = project.stacks("verify", "t", code=1)
    assert failed.startswith(f"{refs[0]}: cosign verify: "), failed
    assert failed.count("\n") == 1
    project.configure(length=2, signing={**keys.signing(), "publicKey": other.public}, base=BASE)
    mixed = project.up(check=False)
    assert mixed.returncode != 0
    assert f"{refs[0]}: cosign verify: " in mixed.output
    assert "Traceback" not in mixed.output, mixed.output

    # another key signs what is there already, and builds nothing
    project.configure(length=2, signing=other.signing(), base=BASE)
    project.up()
    assert {name: image["ref"] for name, image in project.outputs()["images"].items()} == dict(
        zip(outputs["images"], refs, strict=True)
    )
    project.stacks("verify", "t")

    everything = project.pulumi("stack", "export", "-s", "t").stdout + output + text
    assert KEY_PASSWORD not in everything
    assert "hunter2" not in everything
    assert "PRIVATE KEY" not in everything


@pytest.mark.slow
def test_index_and_its_platforms_are_signed(project: Project, keys: Keys) -> None:
    project.configure(platforms=["linux/amd64", "linux/arm64"], length=2, signing=keys.signing())
    project.up()
    outputs = project.outputs()
    public = str(keys.private.parent / "cosign.pub")

    def run(verb: str, ref: str, *options: str) -> subprocess.CompletedProcess[str]:
        words = ["cosign", verb, "--key", public, "--insecure-ignore-tlog=true", *options, ref]
        return subprocess.run(words, env=project.environment, check=False, capture_output=True, text=True)

    for name, image in outputs["images"].items():
        # cosign itself, by the public key: the index under the stack's tag, and what it names by digest
        tag = f"{project.registry}/{project.path}/{name}:{image['tag']}"
        (statement,) = json.loads(run("verify", tag, "-a", f"tag={image['tag']}").stdout)
        assert statement["critical"]["image"]["docker-manifest-digest"] == image["digest"]
        entries = json.loads(project.manifest(image["ref"]))["manifests"]
        assert [entry["digest"] for entry in entries] == [part["digest"] for part in image["platforms"].values()]
        for part in image["platforms"].values():
            assert run("verify", part["ref"], "-a", f"tag={part['tag']}").returncode == 0
            for kind in ("slsaprovenance1", "spdxjson"):
                attested = run("verify-attestation", part["ref"], "--type", kind)
                assert attested.returncode == 0, attested.stderr
                payload = json.loads(base64.b64decode(json.loads(attested.stdout)["payload"]))
                assert payload["subject"][0]["digest"]["sha256"] == part["digest"].removeprefix("sha256:")
        # Its signature is not one of another tag.
        assert run("verify", tag, "-a", "tag=other").returncode != 0

    text = project.stacks("verify", "t")
    refs = [ref for image in outputs["images"].values() for ref in (image["ref"], *parts(image))]
    assert {line.partition(": ")[2] for line in text.splitlines() if not line.startswith(" ")} == {*refs}
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)

    # An index of one platform's image alone, under the tag: nobody has signed it.
    image = outputs["images"]["link1"]
    edited = index.of({"linux/amd64": image["platforms"]["linux/amd64"]["ref"]}, None)
    tag = f"{project.registry}/{project.path}/link1:{image['tag']}"
    index.push(edited, tag, None)
    refused = run("verify", tag)
    assert refused.returncode != 0
    assert "no signatures found" in refused.stderr


def parts(image: dict[str, Any]) -> list[str]:
    """Return the images of an index by digest."""
    return [part["ref"] for part in image["platforms"].values()]


COPIED = """ARG BASE_IMAGE
ARG CHECKED_IMAGE=installed
FROM ${BASE_IMAGE} AS installed
ARG WORD
COPY link0/file.txt /${WORD}.txt
FROM ${CHECKED_IMAGE} AS checks
COPY link0/checks /checks
FROM installed
"""
"""An image with checks that any engine builds for any platform."""


@pytest.mark.slow
def test_index_is_promoted_on_the_evidence_of_each_part(project: Project, keys: Keys, tmp_path: Path) -> None:
    project.write("dockerfiles/link0/Dockerfile", COPIED)
    project.write(CHECK, PASSING)
    promotion = {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5", "gpus": 2}}
    signed = keys.signing(sbom=False, provenance=False)
    project.configure(platforms=["linux/amd64", "linux/arm64"], signing=signed, promotion=promotion)
    project.up()
    outputs = project.outputs()
    image = outputs["images"]["link0"]
    for name, ref in zip(("link0-amd64", "link0-arm64"), parts(image), strict=True):
        assert outputs["signed"][name]["loading"] == {"attestation": cosign.attached(ref, "att"), "result": "PASSED"}

    (missing,) = project.stacks("promote", "t", "link0", "stable", code=1).splitlines()[1:]
    assert missing.startswith(f"  {image['ref']}: gpu: cosign verify-attestation: ")
    now = datetime.now(UTC).isoformat()
    report = tmp_path / "report.json"
    report.write_text(gpu_reports.text("good", image=image["ref"], started=now, finished=now))
    project.stacks("evidence", "t", "link0", str(report))
    promoted = project.stacks("promote", "t", "link0", "stable")
    assert promoted.endswith(f"/link0:stable names {image['digest']}; before: nothing\n")
    assert project.fetch(f"{project.path}/link0/manifests/stable") == project.manifest(image["ref"])

    # Without the evidence of one of its platforms, and then with that of the other in its place.
    ours, other = (cosign.attached(ref, "att") for ref in parts(image))
    repository, _, tag = other.rpartition(":")
    content = project.fetch(f"{project.path}/link0/manifests/{tag}")
    address = f"{project.registry}/{project.path}/link0/manifests/sha256:{hashlib.sha256(content).hexdigest()}"
    assert registry_api.send("DELETE", address).status_code == requests.codes.accepted
    for _ in range(2):
        (missing,) = project.stacks("promote", "t", "link0", "stable", code=1).splitlines()[1:]
        assert missing.startswith(f"  {parts(image)[1]}: loading: cosign verify-attestation: "), missing
        pushed_image.copy(ours, f"{repository}:{tag}")


@pytest.mark.slow
def test_product_of_others_is_taken_only_if_signed(programs: str, tmp_path: Path) -> None:
    ours, others = (Keys(tmp_path / name) for name in ("ours", "others"))

    def on(name: str, keys: Keys, path: str = "") -> tuple[Project, str]:
        """Publish from a machine that knows nothing of the others; return its project and what is shown.

        Its jobs are no part of the product, and are what the engine's cache knows it by.
        """
        publisher = machine(tmp_path / name, path, signing=keys.signing(sbom=False, provenance=False), jobs=name)
        publisher.environment |= {"PATH": programs, "COSIGN_PASSWORD": KEY_PASSWORD}
        return publisher, publisher.up().output

    def product(project: Project) -> str:
        ref: str = project.outputs()["products"]["link0"]["ref"]
        return ref

    first, output = on("first", ours)
    assert "cosign" not in output
    signed = first.outputs()["signed"]["link0"]
    assert signed["signature"] == product(first).replace("@sha256:", ":sha256-") + ".sig"
    text = first.stacks("verify", "t")
    assert text.startswith("link1: ")
    tag = first.outputs()["products"]["link0"]["tag"]
    assert text.endswith(f"link0: {product(first)}\n  signature   {signed['by']}, as {tag}\n")

    second, output = on("second", ours, first.path)
    assert product(second) == product(first)
    assert "built anew" not in output

    # What others push under a product's tag, which is no secret, is not used.
    third, output = on("third", others, first.path)
    assert f"warning: {product(first)}: cosign verify: " in output
    fourth, output = on("fourth", ours, first.path)
    assert f"warning: {product(third)}: cosign verify: " in output
    assert len({product(publisher) for publisher in (first, third, fourth)}) == 3
    assert UNCHANGED.search(fourth.preview("--expect-no-changes").output)

    # What a retention rule deletes of it is nothing that an image misses.
    registry, _, repository = product(fourth).partition("@")[0].partition("/")
    address = f"{registry}/{repository}/manifests/{product(fourth).partition('@')[2]}"
    assert registry_api.send("DELETE", address).status_code == requests.codes.accepted
    assert re.search(r"^link0: .*\n  deleted     from the registry", fourth.stacks("verify", "t"), re.MULTILINE)


@pytest.mark.slow
def test_policy_refuses_what_provenance_does_not_state(project: Project, keys: Keys) -> None:
    policy = {
        "repository": "git.example/acme/images",
        "ref": "refs/heads/main",
        "builder": "urn:slipway:by-hand",
        "committed": True,
        "attestations": ["provenance"],
        "maxAgeDays": 30,
    }

    def sign(**others: Any) -> None:
        project.configure(signing=keys.signing(sbom=False, policy={**policy, **others}), base=BASE)

    sign()
    commit(project)
    project.up()
    image = project.outputs()["images"]["link0"]
    text = project.stacks("verify", "t")
    assert f", as {image['tag']}\n" in text
    assert text.endswith(
        "\n  slsa        build level 1: signed with a key, which does not show where the image was built\n"
    )
    sign(ref="refs/tags/v1", repository="github.com/mallory/images")
    assert project.stacks("verify", "t", code=1).splitlines() == [
        f"{image['ref']}: policy: repository is 'git.example/acme/images', but must be 'github.com/mallory/images'",
        f"{image['ref']}: policy: ref is 'refs/heads/main', but must be 'refs/tags/v1'",
    ]
    sign(attestations=["sbom"])
    assert project.stacks("verify", "t", code=1).startswith(f"{image['ref']}: sbom: cosign verify-attestation: ")
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)  # a policy signs nothing again


@pytest.mark.slow
@pytest.mark.parametrize("remote", [None, "/srv/git/images"])
def test_image_of_a_checkout_without_address_verifies(project: Project, keys: Keys, remote: str | None) -> None:
    project.configure(signing=keys.signing(sbom=False), base=BASE)
    revision = commit(project)
    git = ["git", "-C", str(project.root), "remote"]
    subprocess.run([*git, "set-url", "origin", remote] if remote else [*git, "remove", "origin"], check=True)
    project.up()
    assert f"  provenance  {revision[:12]}, built " in project.stacks("verify", "t")


@pytest.mark.slow
def test_published_image_is_promoted_on_its_evidence(project: Project, keys: Keys, tmp_path: Path) -> None:
    """From `pulumi up` to the tag: the inspection is attested by the update, the GPU checks by a report."""
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE.replace("PATH", project.path))
    project.write(CHECK, PASSING)
    signed = keys.signing(sbom=False, provenance=False)
    promotion = {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5", "gpus": 2}}
    project.configure(base=BASE, signing=signed, promotion=promotion)
    project.up()
    outputs = project.outputs()
    ref = outputs["images"]["link0"]["ref"]
    assert outputs["signed"]["link0"]["loading"] == {"attestation": cosign.attached(ref, "att"), "result": "PASSED"}
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)
    loads = re.search(
        r"^  loading     everything loads: (\d+) files resolved, ", project.stacks("verify", "t"), re.MULTILINE
    )
    assert loads
    assert int(loads[1]) > 100

    header, missing = project.stacks("promote", "t", "link0", "stable", code=1).splitlines()
    assert header == "link0: stable is not set:"
    assert missing.startswith(f"  {ref}: gpu: cosign verify-attestation: ")
    now = datetime.now(UTC).isoformat()
    report = tmp_path / "report.json"
    report.write_text(gpu_reports.text("good", image=ref, started=now, finished=now))
    assert f"link0: {ref}: attested: PASSED on eks-p5" in project.stacks("evidence", "t", "link0", str(report))
    assert f":stable names {ref.partition('@')[2]}; before: nothing" in project.stacks(
        "promote", "t", "link0", "stable"
    )
    assert project.fetch(f"{project.path}/link0/manifests/stable") == project.manifest(ref)
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)


@pytest.mark.slow
def test_signing_in_private_registry_uses_stack_login(project: Project, keys: Keys, locked_registry: Registry) -> None:
    repository = f"{locked_registry.address}/{project.path}"
    project.configure(registry={"kind": "generic", "repository": repository}, signing=keys.signing(), base=BASE)
    project.environment |= {"SLIPWAY_REGISTRY_USERNAME": USER, "SLIPWAY_REGISTRY_PASSWORD": PASSWORD}
    output = project.up().output
    signed = project.outputs()["signed"]["link0"]
    assert signed["signature"].startswith(f"{repository}/link0:sha256-")
    assert signed["sbom"]["packages"] > 50
    assert project.stacks("verify", "t").startswith(f"link0: {repository}/link0@sha256:")
    assert PASSWORD not in output + project.pulumi("stack", "export", "-s", "t").stdout
    refused = project.stacks("verify", "t", code=1, SLIPWAY_REGISTRY_PASSWORD="wrong")
    assert "UNAUTHORIZED" in refused
    assert refused.count("\n") == 1


@pytest.mark.slow
def test_trusted_parent_is_verified_before_any_build(project: Project, keys: Keys) -> None:
    project.configure(signing=keys.signing(sbom=False, provenance=False))
    project.up()
    image = project.outputs()["images"]["link0"]
    parent = f"{project.registry}/{project.path}/link0:{image['tag']}"
    project.write(
        "dockerfiles/link0/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY link0/file.txt /above.txt\n"
    )
    prefix = f"{project.registry}/{project.path}"
    log = {"transparencyLog": False}

    project.configure(base=parent, trust={prefix: {"publicKey": keys.public, **log}})
    assert project.stacks("show", "t", code=1) == (
        f"stack t: slipway:trust: {parent}: its tag may move after it is verified; run `slipway lock`, so that "
        "images are built on its digest\n"
    )
    project.stacks("lock", "t")
    other = Keys(keys.private.parent.with_name("others"))
    project.configure(base=parent, trust={prefix: {"publicKey": other.public, **log}})
    refused = project.up(check=False)
    assert refused.returncode != 0
    assert f"{parent}@{image['digest']}: cosign verify: " in refused.output
    assert "Traceback" not in refused.output
    assert project.outputs()["images"]["link0"] == image  # nothing was built

    own = {"registry": {"kind": "local", "address": project.registry, "path": f"{project.path}/own"}}
    signed = {"signing": keys.signing(sbom=False), **own}  # what is in its own repository, `verify` takes for its own
    project.configure(**signed, base=parent, trust={prefix: {"publicKey": keys.public, **log}})
    project.up()
    outputs = project.outputs()
    (who,) = outputs["verifiedParents"].values()
    assert who.startswith("public key MF")
    assert outputs["images"]["link0"]["ref"] != image["ref"]
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)

    # What is published stands on that parent, as its provenance says.
    assert f"parent: {prefix}/link0@{image['digest']}\n  signature   public key MF" in project.stacks("verify", "t")
    project.configure(**signed, base=parent, trust={prefix: {"publicKey": other.public, **log}})
    assert project.stacks("verify", "t", code=1).startswith(f"{prefix}/link0@{image['digest']}: cosign verify: ")


def test_missing_signing_program_is_reported_before_build(project: Project, tmp_path: Path) -> None:
    """Where neither cosign nor Syft is on PATH, and where the key or its password is not there."""
    public = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
    bare = without(tmp_path, project.environment["PATH"], "cosign", "syft")
    project.configure(signing={"key": "env://NO_SUCH_KEY", "publicKey": public})
    failed = project.up(check=False, PATH=bare)
    assert "slipway:signing: cosign is not on PATH; `slipway up` installs it" in failed.output
    assert not project.published("link0")

    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cosign", "syft"):  # found, and never run but for this
        (programs / name).write_text('#!/bin/sh\n[ "$1" = version ] || exit 9\necho "GitVersion:    v2.6.5"\n')
        (programs / name).chmod(0o755)
    have = os.pathsep.join([str(programs), bare])
    assert (
        "slipway:signing.key: 'env://NO_SUCH_KEY': the variable is not set" in project.up(check=False, PATH=have).output
    )
    project.configure(signing={"key": "keys/cosign.key", "publicKey": public})
    assert "slipway:signing.key: 'keys/cosign.key': no such file" in project.up(check=False, PATH=have).output
    project.write("keys/cosign.key", "")
    (programs / "cosign").write_text("#!/bin/sh\necho GitVersion: v3.0.4\n")
    message = "slipway:signing: the cosign on PATH is v3.0.4, whose signatures have another format"
    assert message in project.up(check=False, PATH=have).output
    (programs / "cosign").write_text("#!/bin/sh\necho GitVersion: v2.6.5\n")
    assert "slipway:signing.key: $COSIGN_PASSWORD is not set" in project.up(check=False, PATH=have).output
    assert not project.published("link0")
    project.preview(PATH=bare)
    assert "slipway:signing is not set" in stacks_without(project)


def without(folder: Path, path: str, *names: str) -> str:
    """Return a PATH without some programs: links to the other programs of a folder that has one, such as Pulumi."""
    folders = [Path(each) for each in path.split(os.pathsep)]
    for number, each in enumerate(folders):
        if any((each / name).exists() for name in names):
            folders[number] = folder / f"path{number}"
            folders[number].mkdir()
            for program in each.iterdir():
                if program.name not in names:
                    (folders[number] / program.name).symlink_to(program)
    return os.pathsep.join(map(str, folders))


def stacks_without(project: Project) -> str:
    project.configure()
    return project.stacks("verify", "t", code=1)


@pytest.mark.slow
def test_parent_of_another_stack_is_by_digest_and_verified(project: Project, keys: Keys) -> None:
    """It must be what the other stack signed under that name: neither unsigned, nor another image of the same signer."""
    signed = {"signing": keys.signing(sbom=False)}
    project.configure(**signed)
    base = (project.root / "stacks/Pulumi.t.yaml").read_text().replace(project.path, f"{project.path}/base")
    project.write("stacks/Pulumi.base.yaml", base)
    project.pulumi("stack", "init", "base", "--no-select")
    project.pulumi("up", "-s", "base", "--yes", "--skip-preview")
    parent = json.loads(project.pulumi("stack", "output", "-s", "base", "--json").stdout)["images"]["link0"]
    project.write("trainer/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY run /run\n")
    project.write("trainer/run", "one\n")
    own = {"images": [{"name": "trainer", "dockerfile": "trainer/Dockerfile", "on": "base/link0"}], "tagSuffix": "t"}

    # The tag is moved to another image that the same key has signed.
    repository, tag = f"{project.registry}/{project.path}/base/link0", parent["tag"]
    project.write(
        "stacks/Pulumi.base.yaml",
        (project.root / "stacks/Pulumi.base.yaml").read_text().replace("config:\n", "config:\n  slipway:word: two\n"),
    )
    project.pulumi("up", "-s", "base", "--yes", "--skip-preview")
    other = json.loads(project.pulumi("stack", "output", "-s", "base", "--json").stdout)["images"]["link0"]
    client.Repository(parent["ref"]).tag(other["tag"])
    project.configure(**own, **signed)
    refused = project.up(check=False)
    assert refused.returncode
    assert f"{repository}@{parent['digest']}: signed with the tag {tag}, not {other['tag']}" in refused.output
    assert "Traceback" not in refused.output
    assert "images" not in project.outputs()

    client.Repository(other["ref"]).tag(other["tag"])
    project.up()
    outputs = project.outputs()
    assert outputs["verifiedParents"][f"{repository}:{other['tag']}"].startswith("public key MF")
    state = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)["deployment"]["resources"]
    (built,) = (each for each in state if each["type"] == "docker:index/image:Image" and "trainer" in each["urn"])
    assert built["inputs"]["build"]["args"]["BASE_IMAGE"] == other["ref"]
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)
    verified = project.stacks("verify", "t")
    assert f"parent: {other['ref']}\n  signature   public key MF" in verified, verified
