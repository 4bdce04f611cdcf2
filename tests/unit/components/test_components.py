"""Components under Pulumi's mocks: what is asked of docker.Image, and what comes back."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pulumi
import pytest

from containers.dockerfile.context import digest
from stacks.differences import file_list
from tests.fakes.pulumi_mocks import DIGEST, SECRET, Recorder, planned, run
from tests.helpers.every import every


def test_variant_with_a_parent_is_built_on_its_digest() -> None:
    recorder, values = run()
    build = recorder.image("extras")["build"]
    labels = {key: value for key, value in build["args"].items() if key.startswith("LABEL_")}
    assert labels["LABEL_TITLE"] == "extras"
    assert build["args"] == {"V": "1", "BASE_IMAGE": f"r.example/x/torch@{DIGEST}", **labels}
    assert build["context"] == planned("extras", BASE_IMAGE="torch").content.folder
    assert build["dockerfile"] == f"{build['context']}/Dockerfile"
    assert recorder.image("extras")["registry"] == {"server": "127.0.0.1:5000"}
    assert recorder.image("extras")["skipPush"] is False
    outputs = values["outputs"]
    assert outputs["images"]["extras"] == {
        "ref": f"r.example/x/extras@{DIGEST}",
        "digest": DIGEST,
        "tag": "abc1234-base",
    }
    assert outputs["plan"]["extras"] == {
        "args": {"V": "1"},
        "labels": labels,
        "parents": {"BASE_IMAGE": "r.example/x/torch:abc1234-base"},
        "platform": "linux/amd64",
        "tag": "abc1234-base",
        "target": None,
    }
    assert outputs["planFiles"] == {
        name: file_list({f"{name}/Dockerfile": digest(b"FROM scratch\n")[:12]}) for name in ("torch", "extras")
    }


def test_variant_unpushed_names_its_parent_and_has_its_id() -> None:
    recorder, values = run(publish=False)
    args = recorder.image("extras")["build"]["args"]
    assert args["BASE_IMAGE"] == "r.example/x/torch:abc1234-base"
    assert args["BASE_IMAGE_ID"] == DIGEST
    assert recorder.image("torch")["skipPush"] is True
    assert values["outputs"]["images"]["torch"] == {"ref": DIGEST, "digest": DIGEST, "tag": "abc1234-base"}


def test_variant_unpushed_on_a_published_parent_has_its_digest() -> None:
    """A pull request's preview has it from the public record. Whoever may push can move the parent's tag."""
    published = f"r.example/x/torch@{DIGEST}"
    recorder, _ = run(publish=False, answers={"torch": {"repoDigest": published}})
    assert recorder.image("extras")["build"]["args"]["BASE_IMAGE"] == published


def test_variant_inputs_have_what_a_preview_compares() -> None:
    recorder, values = run()
    plan = {key: value for key, value in values["outputs"]["plan"]["extras"].items() if value is not None}
    assert recorder.variant("extras") == plan | {"files": {"extras/Dockerfile": digest(b"FROM scratch\n")[:12]}}


def test_registry_password_is_a_secret_of_the_image_alone() -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": "hunter2"}
    recorder, values = run(registry=registry)
    given = recorder.image("torch")["registry"]
    assert given[SECRET]
    assert given["value"] == {"server": "r.example", "username": "me", "password": "hunter2"}
    rest = {key: value for key, value in recorder.resources.items() if key[0] != "docker:index/image:Image"}
    assert "hunter2" not in repr(rest) + repr(values["outputs"])


@every(
    "registry, typ",
    [
        ({"kind": "generic", "repository": "r.example/x"}, "GenericRegistry"),
        ({"kind": "ghcr", "repository": "ghcr.io/acme/x"}, "GhcrRegistry"),
        ({"kind": "acr", "repository": "acme1.azurecr.io/x"}, "AcrRegistry"),
        ({"kind": "gar", "repository": "us-docker.pkg.dev/acme-ml/x"}, "GarRegistry"),
    ],
)
def test_registry_unpublished_passes_no_password(registry: dict[str, str], typ: str) -> None:
    login = {"username": "me", "password": "hunter2"}
    for publish in (True, False):
        recorder, _ = run(registry={**registry, **login}, publish=publish)
        assert recorder.of_type(f"slipway:registry:{typ}") == {"registry": {"repository": registry["repository"]}}
        given = recorder.image("torch")["registry"]
        server = {"server": registry["repository"].partition("/")[0]}
        assert given.get("value", given) == (server | login if publish else server)
        assert ("hunter2" in repr(recorder.resources)) == publish


@every("typ", ["slipway:image:ImageVariant", "slipway:registry:LocalRegistry"])
def test_registry_component_has_its_type(typ: str) -> None:
    recorder, _ = run()
    assert typ in {key[0] for key in recorder.resources}


KEY = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"


def supply_chain(recorder: object) -> dict[str, dict[str, object]]:
    """Return what is registered beside the images, by name."""
    resources = recorder.resources  # type: ignore[attr-defined]
    return {name: inputs for (typ, name), inputs in resources.items() if typ.startswith("pulumi-python:dynamic/image:")}


def test_supply_chain_follows_each_images_digest() -> None:
    recorder, values = run(signing={"key": KEY}, extraTags=["latest"], products=("torch",))
    registered = supply_chain(recorder)
    inputs = registered.pop("torch-published")
    assert inputs["ref"] == "r.example/x/torch:abc1234-base"
    assert inputs["signer"] == {"publicKey": KEY, "transparencyLog": False}
    assert registered.pop("torch-signature")["ref"] == f"r.example/x/torch@{DIGEST}"
    assert sorted(registered) == ["extras-provenance", "extras-sbom", "extras-signature", "extras-tag-latest"]
    assert {inputs["ref"] for inputs in registered.values()} == {f"r.example/x/extras@{DIGEST}"}
    assert registered["extras-signature"]["signing"] == {"key": KEY, "publicKey": KEY, "transparencyLog": False}
    assert registered["extras-provenance"]["parents"] == {"BASE_IMAGE": f"r.example/x/torch@{DIGEST}"}
    assert sorted(values["outputs"]["signed"]["extras"]) == ["by", "provenance", "sbom", "signature"]
    assert sorted(values["outputs"]["signed"]["torch"]) == ["by", "signature"]
    assert set(values["outputs"]["extraTags"]) == {"extras"}


def test_supply_chain_of_an_index_is_its_signature_and_tags() -> None:
    ref = f"r.example/x/torch@sha256:{'b' * 64}"
    answers = {"torch": {"index": ref, "digest": f"sha256:{'b' * 64}"}}
    platforms = ["linux/amd64", "linux/arm64"]
    recorder, values = run(
        signing={"key": KEY}, extraTags=["latest"], answers=answers, indexed=True, platforms=platforms
    )
    registered = supply_chain(recorder)
    assert registered["torch-signature"]["ref"] == registered["torch-tag-latest"]["ref"] == ref
    outputs = values["outputs"]
    assert sorted(outputs["signed"]["torch"]) == ["by", "signature"]
    assert sorted(outputs["signed"]["torch-arm64"]) == ["by", "provenance", "sbom", "signature"]
    assert set(outputs["extraTags"]) == {"torch", "extras"}
    platform = {"ref": f"r.example/x/torch@{DIGEST}", "digest": DIGEST}
    assert outputs["images"]["torch"] == {
        "ref": ref,
        "digest": f"sha256:{'b' * 64}",
        "tag": "abc1234-base",
        "platforms": {name: {**platform, "tag": "abc1234-base"} for name in platforms},
    }
    _, values = run(indexed=True, platforms=platforms, publish=False)
    unpushed = values["outputs"]["images"]["torch"]
    assert (unpushed["merged"], unpushed.get("ref"), [*unpushed["platforms"]]) == (False, None, platforms)


def test_supply_chain_left_out_declares_nothing() -> None:
    recorder, values = run(signing={"key": KEY, "sbom": False, "provenance": False})
    assert sorted(supply_chain(recorder)) == ["extras-signature", "torch-signature"]
    assert "extraTags" not in values["outputs"]
    recorder, values = run(signing={"key": KEY}, extraTags=["latest"], publish=False)
    assert not supply_chain(recorder)
    assert "signed" not in values["outputs"]


@every("publish", [True, False])
@every(
    "config, signer, trusted",
    [
        ({}, None, False),
        ({"trustRegistry": True}, None, True),
        ({"signing": {"key": KEY}}, {"publicKey": KEY, "transparencyLog": False}, False),
        ({"registry": {"kind": "local", "address": "127.0.0.1:1"}}, None, True),
        ({"registry": {"kind": "local", "address": "r.example"}}, None, False),
    ],
)
def test_product_needs_its_own_signature_or_a_trusted_registry(
    publish: bool, config: dict[str, Any], signer: Any, trusted: bool
) -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": "hunter2"}
    recorder, _ = run(products=("torch",), publish=publish, **{"registry": registry, **config})
    product = recorder.of_type("pulumi-python:dynamic/image:Published")["torch-published"]
    assert (product.get("signer"), product["trusted"]) == (signer, trusted)
    assert product["annotations"] == {"tag": "abc1234-base", "fingerprint": "f" * 64}


@every("publish", [True, False])
def test_product_is_looked_up_before_its_build(publish: bool) -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": "hunter2"}
    there = f"r.example/x/torch@{DIGEST}"
    answers = {"torch-published": {"found": there}}
    recorder, _ = run(products=("torch",), publish=publish, registry=registry, answers=answers)
    assert recorder.image("torch")["build"]["args"]["PRODUCT_IMAGE"] == there
    assert "PRODUCT_IMAGE" not in recorder.image("extras")["build"]["args"]
    (inputs,) = supply_chain(recorder).values()
    assert inputs["ref"] == "r.example/x/torch:abc1234-base"
    assert (inputs["needed"], "signer" in inputs) == (publish, False)
    assert ("hunter2" in repr(inputs)) == publish


CHECKED = {"torch": {"torch/checks/10-one": "1" * 64}}


CHECKED_TAG = "pulumi-python:dynamic/image:CheckedTag"


def test_checks_are_a_build_from_the_pushed_image() -> None:
    recorder, values = run(checks=CHECKED)
    image = planned("torch", checks=CHECKED["torch"])
    files = {"torch/Dockerfile": digest(b"FROM checks\n")[:12], "torch/checks/10-one": "1" * 12}
    assert recorder.of_type("slipway:checks:Checks") == {"torch-checks": {"args": {}, "files": files}}
    checks, built = recorder.image("torch-checks"), recorder.image("torch")
    assert (built["skipPush"], built["imageName"]) == (False, "r.example/x/torch:unchecked--abc1234-base")
    digits = DIGEST.removeprefix("sha256:")
    assert (checks["skipPush"], checks["imageName"]) == (True, f"r.example/x/torch_checks:{digits}")
    assert image.content.checks
    assert checks["build"]["context"] == image.content.checks.folder != built["build"]["context"]
    arguments = {"V": "1", "CHECKED_IMAGE": f"r.example/x/torch@{DIGEST}"}
    assert (checks["build"]["target"], checks["build"]["args"]) == ("checks", arguments)
    assert values["outputs"]["checkFiles"] == {"torch": file_list(files)}
    assert "torch/checks/10-one" not in repr(values["outputs"]["planFiles"])


def test_image_with_checks_is_tagged_after_them() -> None:
    recorder, values = run(checks=CHECKED)
    tagged = recorder.of_type(CHECKED_TAG)["torch-tag"]
    ref = f"r.example/x/torch@{DIGEST}"
    assert {key: tagged[key] for key in ("ref", "tag", "checked")} == {
        "ref": ref,
        "tag": "abc1234-base",
        "checked": DIGEST.removeprefix("sha256:"),
    }
    assert values["outputs"]["images"]["torch"] == {"ref": ref, "digest": DIGEST, "tag": "abc1234-base"}
    assert recorder.image("extras")["imageName"] == "r.example/x/extras:abc1234-base"
    order = [name for typ, name in recorder.resources if typ in {"docker:index/image:Image", CHECKED_TAG}]
    assert order == ["torch", "torch-checks", "torch-tag", "extras"]


def test_unpushed_image_is_checked_under_its_local_name() -> None:
    recorder, values = run(checks=CHECKED, publish=False)
    assert recorder.image("torch")["imageName"] == "r.example/x/torch:abc1234-base"
    given = recorder.image("torch-checks")["build"]["args"]
    assert given == {"V": "1", "CHECKED_IMAGE": "r.example/x/torch:abc1234-base", "CHECKED_IMAGE_ID": DIGEST}
    assert not recorder.of_type(CHECKED_TAG)
    assert values["outputs"]["images"]["torch"]["ref"] == DIGEST
    names = [name for typ, name in recorder.resources if typ == "docker:index/image:Image"]
    assert names == ["torch", "torch-checks", "extras"]


def test_scan_before_the_tag_is_attested() -> None:
    signing = {"key": KEY, "sbom": False, "provenance": False}
    record = {"scanner": {"result": {"matches": [], "notListed": 0}}}
    answers = {"torch-tag": {"scan": record}}
    recorder, values = run(checks=CHECKED, signing=signing, vulnerabilities={"severity": "high"}, answers=answers)
    registered = supply_chain(recorder)
    assert sorted(registered) == ["extras-signature", "torch-loading", "torch-scan", "torch-signature", "torch-tag"]
    scan = registered["torch-scan"]
    policy = {"severity": "high", "fixedOnly": True, "maxAge": 5, "exceptions": []}
    assert (scan["ref"], scan["evidence"], scan["policy"]) == (f"r.example/x/torch@{DIGEST}", record, policy)
    assert sorted(values["outputs"]["signed"]["torch"]) == ["by", "loading", "scan", "signature"]
    recorder, _ = run(checks=CHECKED, signing=signing)
    assert "torch-scan" not in supply_chain(recorder)


UNPUSHED = "pulumi-python:dynamic/image:UnpushedImage"
RUNNERS = {
    "kind": "kubernetes",
    "profile": "eks-p5",
    "github": {"url": "https://github.com/acme", "secret": "github"},
    "build": {"address": "build.example:2376", "nodeSelector": {"acme.example/pool": "builds"}},
}


@every(
    "values, engine",
    [
        ({}, ""),
        ({"engines": {"linux/amd64": "ssh://b"}}, "unix://.slipway/engines/t-amd64.sock"),
        ({"inspection": {"gate": False}}, None),
        ({"products": ("torch",)}, None),
        (
            {
                "platforms": ["linux/arm64", "linux/amd64"],
                "buildOn": "runners",
                "runners": {**RUNNERS, "profile": "eks-p6e-gb200"},
                "engines": {"linux/amd64": "ssh://b"},
            },
            "unix://.slipway/engines/t-amd64.sock",
        ),
        ({"publish": True}, None),
    ],
)
def test_unpushed_image_is_inspected_on_its_engine(values: dict[str, Any], engine: str | None) -> None:
    row = {"files": "/opt/*", "missing": "libgone.so.1", "reason": "the host mounts it"}
    recorder, _ = run(**{"checks": CHECKED, "publish": False, "inspection": {"exceptions": [row]}, **values})
    inspected: dict[str, Any] = {
        "ref": DIGEST,
        "name": "r.example/x/torch:abc1234-base",
        "platform": "linux/amd64",
        "engine": engine,
        "ssh": [],
        "tls": {},
        "exceptions": [row],
        "compiled": {},
    }
    declared = {
        name: {key: value for key, value in inputs.items() if key != "__provider"}
        for name, inputs in recorder.of_type(UNPUSHED).items()
    }
    assert declared == ({} if engine is None else {"torch-inspection": inspected})
    if engine is not None:
        order = [name for typ, name in recorder.resources if typ in {"docker:index/image:Image", UNPUSHED}]
        assert order == ["torch", "torch-checks", "torch-inspection", "extras"]


def test_unpushed_image_of_build_service_is_read_with_its_key() -> None:
    recorder, _ = run(checks=CHECKED, publish=False, buildOn="runners", runners=RUNNERS)
    unpushed = recorder.of_type(UNPUSHED)["torch-inspection"]
    (provider,) = recorder.of_type("pulumi:providers:docker").values()
    assert unpushed["engine"] == provider["host"] == "tcp://build.example:2376"
    assert unpushed["tls"][SECRET]
    assert unpushed["tls"]["value"] == {
        "ca": provider["caMaterial"],
        "cert": provider["certMaterial"],
        "key": provider["keyMaterial"]["value"],
    }


def test_official_provider_has_one_engine_beside_a_build_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds at DOCKER_HOST instead, with the service's certificates. Replicas have a socket without any."""
    several = {**RUNNERS, "build": {"nodeSelector": {"acme.example/pool": "builds"}, "replicas": 2}}
    for provider, engine, runners, refused in (
        ("official", "unix:///run/docker.sock", RUNNERS, True),
        ("official", "", RUNNERS, False),
        ("official", "unix:///run/docker.sock", several, False),
        ("embedded", "unix:///run/docker.sock", RUNNERS, False),
    ):
        monkeypatch.setenv("SLIPWAY_DOCKER_PROVIDER", provider)
        monkeypatch.setenv("DOCKER_HOST", engine)
        line = (
            "slipway:buildOn: the official docker provider cannot build on the runners while DOCKER_HOST is set: use the "
            "embedded one (set SLIPWAY_DOCKER_PROVIDER=embedded, then `slipway up` again), or unset that"
        )
        with pytest.raises(pulumi.RunError, match=f"^{re.escape(line)}$") if refused else nullcontext():
            run(publish=False, buildOn="runners", runners=runners)


@every(
    "values, exceptions, policy",
    [
        (
            {"vulnerabilities": {"severity": "high"}},
            [],
            {"severity": "high", "fixedOnly": True, "maxAge": 5, "exceptions": []},
        ),
        (
            {"vulnerabilities": {}, "inspection": {"gate": False}},
            None,
            {"severity": "critical", "fixedOnly": True, "maxAge": 5, "exceptions": []},
        ),
        ({}, [], None),
    ],
)
def test_unpushed_image_goes_through_the_gates_of_its_stack(
    values: dict[str, Any], exceptions: list[Any] | None, policy: dict[str, Any] | None
) -> None:
    recorder, _ = run(checks=CHECKED, publish=False, signing={"key": KEY}, **values)
    (unpushed,) = recorder.of_type(UNPUSHED).values()
    assert (unpushed.get("exceptions"), unpushed.get("vulnerabilities")) == (exceptions, policy)
    assert [*supply_chain(recorder)] == ["torch-inspection"]  # nothing is attested of an image without a registry


def test_unpushed_image_without_gates_is_only_checked() -> None:
    recorder, _ = run(checks=CHECKED, publish=False, inspection={"gate": False})
    assert not recorder.of_type(UNPUSHED)
    recorder, _ = run(publish=False, vulnerabilities={})
    assert not recorder.of_type(UNPUSHED)


def test_stack_without_checks_declares_none() -> None:
    recorder, values = run()
    assert not recorder.of_type("slipway:checks:Checks")
    assert not recorder.of_type(CHECKED_TAG)
    assert "checkFiles" not in values["outputs"]


@every(
    "parent, asks",
    [("r.example/base/cuda", ("me", True)), ("r.example:5000/base/cuda", ()), ("docker.io/acme/cuda", ())],
)
def test_parent_in_own_registry_is_verified_with_its_login(parent: str, asks: tuple[object, ...]) -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": "hunter2"}
    trust = {parent: {"publicKey": KEY}}
    recorder, values = run(registry=registry, base=f"{parent}@{DIGEST}", trust=trust)
    ((name, inputs),) = supply_chain(recorder).items()
    assert (name, inputs["ref"]) == (parent, f"{parent}@{DIGEST}")
    given: list[Any] = [inputs[key] for key in ("username", "password") if key in inputs]
    assert tuple(one if isinstance(one, str) else bool(one[SECRET]) for one in given) == asks
    assert "hunter2" not in repr(values["outputs"])


def test_run_after_a_failed_resource_registers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mocks' own: what a failed run leaves would fail or hang the next one."""

    def refuse(*_: Any) -> Any:
        raise RuntimeError("no such image")

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "new_resource", refuse)
        with pytest.raises(RuntimeError, match="no such image"):
            run()
    recorder, _ = run()
    assert sorted(recorder.of_type("docker:index/image:Image")) == ["extras", "torch"]
