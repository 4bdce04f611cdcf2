"""Whoever may push to the stack's repository has their own layer signed as one of caches, by `slipway warm`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from containers.image.registry_image import Image as Published
from containers.image.registry_image import fetch
from containers.registry.client import Repository
from tests.engine.project import Project
from tests.engine.test_signing import KEY_PASSWORD, Keys, install
from tests.images.engine import base_image, client, docker, pushed, remove
from tests.images.test_start import PYTHON

LEAVES = """import os, pathlib
folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
(folder / "source").write_text(pathlib.Path(__file__).read_text())
"""


@pytest.fixture(scope="module")
def python_image() -> Iterator[str]:
    image = pushed(PYTHON.format(base=base_image()), "planted")
    yield image.tag
    remove(image)


@pytest.fixture
def project(python_image: str, tmp_path: Path) -> Project:
    """A project whose one image has python3."""
    project = Project(tmp_path / "project")
    project.add_stack()
    project.configure(base=python_image, warm={"script": "warm/steps.py", "size": "4 MB"})
    project.write("warm/steps.py", LEAVES)
    return project


@pytest.fixture
def signed(project: Project, python_image: str, tmp_path: Path) -> Project:
    """The project, published and signed."""
    project.environment |= {"PATH": install("cosign"), "COSIGN_PASSWORD": KEY_PASSWORD}
    signing = Keys(tmp_path / "keys").signing(sbom=False, provenance=False)
    project.configure(base=python_image, signing=signing, warm={"script": "warm/steps.py", "size": "4 MB"})
    project.up()
    return project


def reference(text: str) -> str:
    *_, (repository, digest) = re.findall(r" (\S+):[\w.-]+@(sha256:[0-9a-f]{64})", text)
    return f"{repository}@{digest}"


def record(image: Published, machine: str) -> dict[str, Any]:
    """Return the history of a warm layer of another machine, with the key that fits."""
    values = {"image": image.digest, "script": "x", "sha256": "0" * 64, "torch": "", "triton": ""}
    decides = {**{k: v for k, v in values.items() if k != "script"}, "machine": [machine]}
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
    return {"created_by": "slipway warm", "comment": json.dumps({"warm": key, **values, "machine": [machine]})}


def planted(published: Published, name: str) -> str:
    """Push the published image with a layer of the attacker's under a tag or digest; return it by its digest."""
    repository = published.reference.partition("@")[0]
    target = Repository(f"{repository}:x")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        evil = tarfile.TarInfo("usr/bin/evil")
        evil.size = 4
        tar.addfile(evil, io.BytesIO(b"evil"))
    layer = archive.getvalue()
    config = target.json(published.manifest.content["config"]["digest"], published.config_size)
    config["rootfs"]["diff_ids"].append(digest(layer))
    missing = len(published.layers) - sum(not each.get("empty_layer") for each in config.get("history") or [])
    config["history"] = [
        *({} for _ in range(missing)),
        *(config.get("history") or []),
        record(published, "processor x"),
    ]
    body = json.dumps(config).encode()
    for blob in (layer, body):
        target.push_blob(digest(blob), len(blob), io.BytesIO(blob))
    content = json.loads(json.dumps(published.manifest.content))
    content["config"] |= {"digest": digest(body), "size": len(body)}
    kind = "application/vnd.oci.image.layer.v1.tar"
    content["layers"].append({"mediaType": kind, "digest": digest(layer), "size": len(layer)})
    manifest = json.dumps(content).encode()
    target.put(name or digest(manifest), manifest, published.manifest.media_type)
    return f"{repository}@{digest(manifest)}"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def published(project: Project) -> Published:
    return fetch(project.outputs()["images"]["link0"]["ref"])


def warm(project: Project, *words: str, code: int = 0) -> str:
    return project.stacks("warm", "t", *words, "--no-gpu", code=code)


@pytest.mark.slow
def test_layer_that_somebody_pushed_is_not_signed(signed: Project) -> None:
    evil = planted(published(signed), "")
    text = warm(signed, "--onto", evil, code=1)
    assert re.search("no signatures found|no matching|attest", text), text
    ours = reference(warm(signed))
    assert "already" in warm(signed, "--onto", ours)


@pytest.mark.slow
def test_moved_tag_of_warm_layers_is_not_taken(signed: Project) -> None:
    first = warm(signed)
    ours, tag = reference(first), re.findall(r":([\w.-]+-warm-[0-9a-f]{8})@", first)[-1]
    assert "is there already" in warm(signed)
    evil = planted(published(signed), tag)
    text = warm(signed)
    assert evil.rpartition("@")[2] not in text
    assert reference(text) == ours


@pytest.mark.slow
def test_warm_image_is_promoted_by_its_evidence_alone(signed: Project, python_image: str, tmp_path: Path) -> None:
    """The day of a user with real cosign: warm, verify, promote; then what nobody of the stack attested."""
    keys = {"base": python_image, "warm": {"script": "warm/steps.py", "size": "4 MB"}}
    key, public = tmp_path / "keys/cosign.key", (tmp_path / "keys/cosign.pub").read_text()
    signing = {"key": str(key), "publicKey": public, "sbom": False, "provenance": False}
    signs: dict[str, Any] = {"signing": signing, "promotion": {"tags": ["stable"], "loading": False}}
    signed.configure(**keys, **signs)
    below = published(signed)

    def asked(*words: str, ref: str, code: int = 0) -> str:
        return signed.stacks(*words, "--digest", ref.rpartition("@")[2], code=code)

    good = reference(warm(signed))
    assert re.search(r"  warm +no GPU: torch none, .*, made ", asked("verify", "t", "link0", ref=good))
    assert f"names {good.rpartition('@')[2]}" in asked("promote", "t", "link0", "stable", ref=good)
    refusal = signed.stacks("promote", "t", "link0", "stable", code=1)
    assert f"to take them off, give --digest {below.digest}" in refusal
    # Layers that somebody pushed, with a history that says warm; those of another script, by a stack that does not sign.
    bad = [planted(below, "")]
    signed.write("warm/steps.py", LEAVES + "# another\n")
    signed.configure(**keys)
    bad.append(reference(warm(signed)))
    signed.configure(**keys, **signs)
    repository, _, digest = good.partition("@sha256:")
    for ref in bad:
        alone = asked("promote", "t", "link0", "stable", ref=ref, code=1)
        assert f"stable stays at {good.rpartition('@')[2]}" in alone
        assert "warm: cosign verify-attestation: no matching attestations\n" in alone
        # Nor does the evidence and the signature of the good layers count for others.
        for kind in ("sig", "att"):
            theirs = Repository(f"{repository}:sha256-{digest}.{kind}").manifest()
            copied = f"sha256-{ref.rpartition(':')[2]}.{kind}"
            Repository(f"{repository}:x").put(copied, theirs.body, theirs.media_type)
        assert asked("verify", "t", "link0", ref=ref, code=1).count("\n") == 1
        text = asked("promote", "t", "link0", "stable", ref=ref, code=1)
        assert (
            len(re.findall(rf"^  {ref}: (cosign verify|warm: cosign verify-attestation): ", text, re.MULTILINE)) == 2
        ), text


SWAP = """#!/bin/sh
case " $* " in *" --interactive "*) printf '# swapped\\n' >> {script};; esac
exec {docker} "$@"
"""


def test_script_swapped_before_it_runs_is_not_the_recorded_one(project: Project, tmp_path: Path) -> None:
    project.up()
    script = project.root / "warm/steps.py"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(SWAP.format(script=script, docker=client()))
    (tmp_path / "bin/docker").chmod(0o755)
    path = f"{tmp_path}/bin{os.pathsep}{project.environment['PATH']}"
    ref = reference(project.stacks("warm", "t", "--no-gpu", PATH=path))
    assert script.read_text().endswith("# swapped\n")
    image = fetch(ref)
    config: Mapping[str, Any] = Repository(ref).json(image.manifest.content["config"]["digest"], image.config_size)
    recorded = json.loads(config["history"][-1]["comment"])
    place = f"/opt/slipway/warm/{recorded['warm']}/triton/source"
    ran = docker("run", "--rm", "--entrypoint", "cat", ref, place).stdout.rpartition("Status: ")[2]
    assert "swapped" not in ran
    assert recorded["sha256"] == hashlib.sha256(LEAVES.encode()).hexdigest()
