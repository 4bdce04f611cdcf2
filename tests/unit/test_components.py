"""Components under Pulumi's mocks: what is asked of docker.Image, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pytest

from components.stack import deploy
from stacks import flavors
from stacks.plan import Plan, PlannedImage
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix

DIGEST = "sha256:" + "a" * 64
SECRET = "4dabf18193072939515e22adb298388d"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_REGISTRY", "SLIPWAY_MIRRORS"):
        monkeypatch.delenv(name, raising=False)


class Recorder(pulumi.runtime.Mocks):
    """Keeps every resource that is registered, and answers images as the provider does."""

    def __init__(self) -> None:
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        assert (args.typ, args.name) not in self.resources
        self.resources[args.typ, args.name] = args.inputs
        if args.typ != "docker:index/image:Image":
            return args.name, args.inputs
        name = args.inputs["imageName"]
        pushed = f"{name.rpartition(':')[0]}@{DIGEST}"
        return name, {**args.inputs, "repoDigest": DIGEST if args.inputs["skipPush"] else pushed}

    def call(self, _: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        raise AssertionError("no component calls a function")

    def image(self, name: str) -> dict[str, Any]:
        return self.resources["docker:index/image:Image", name]

    def variant(self, name: str) -> dict[str, Any]:
        return self.resources["slipway:image:ImageVariant", name]


def planned(name: str, **parents: str) -> PlannedImage:
    spec = ImageSpec(
        name=name,
        dockerfile=f"{name}/Dockerfile",
        args={"V": "1"},
        parents={a: Sibling(image=p) for a, p in parents.items()} or {"BASE_IMAGE": Outside(reference="debian:12")},
        description="d",
        licenses="MIT",
        suffix=Suffix(variant="base"),
    )
    return PlannedImage(
        spec=spec,
        repository=f"r.example/x/{name}",
        tag="abc1234-base",
        args={"V": "1"},
        siblings=parents,
        files={f"{name}/Dockerfile": "f" * 64},
    )


def run(**config: Any) -> tuple[Recorder, dict[str, Any]]:
    """Deploy a chain of two images; return what was registered and the outputs' values."""
    recorder = Recorder()
    values: dict[str, Any] = {}

    async def go() -> None:
        pulumi.runtime.set_mocks(recorder, project="slipway", stack="t", preview=False)
        plan = Plan(
            "t",
            flavors.load({"flavor": "local", **config}, "stack t"),
            (planned("torch"), planned("extras", BASE_IMAGE="torch")),
        )
        outputs = deploy(plan)
        values["outputs"] = await pulumi.Output.from_input(outputs).future()
        values["secret"] = await pulumi.Output.from_input(outputs).is_secret()

    asyncio.run(go())
    return recorder, values


def test_a_child_is_built_on_its_parents_digest() -> None:
    recorder, values = run()
    build = recorder.image("extras")["build"]
    labels = {key: value for key, value in build["args"].items() if key.startswith("LABEL_")}
    assert labels["LABEL_TITLE"] == "extras"
    assert build["args"] == {"V": "1", "BASE_IMAGE": f"r.example/x/torch@{DIGEST}", **labels}
    assert build["context"] == "dockerfiles"
    assert build["dockerfile"] == "dockerfiles/extras/Dockerfile"
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
        f"{name}/Dockerfile": {f"{name}/Dockerfile": "f" * 12} for name in ("torch", "extras")
    }


def test_without_pushing_a_child_names_its_parent_and_follows_its_id() -> None:
    recorder, values = run(publish=False)
    args = recorder.image("extras")["build"]["args"]
    assert args["BASE_IMAGE"] == "r.example/x/torch:abc1234-base"
    assert args["BASE_IMAGE_ID"] == DIGEST
    assert recorder.image("torch")["skipPush"] is True
    assert values["outputs"]["images"]["torch"] == {"ref": DIGEST, "digest": DIGEST, "tag": "abc1234-base"}


def test_a_variants_own_inputs_are_what_a_preview_compares() -> None:
    recorder, values = run()
    plan = {key: value for key, value in values["outputs"]["plan"]["extras"].items() if value is not None}
    assert recorder.variant("extras") == plan | {"files": values["outputs"]["planFiles"]["extras/Dockerfile"]}


def test_a_registrys_password_is_a_secret_and_stands_nowhere_else() -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "me", "password": "hunter2"}
    recorder, values = run(registry=registry)
    given = recorder.image("torch")["registry"]
    assert given[SECRET]
    assert given["value"] == {"server": "r.example", "username": "me", "password": "hunter2"}
    rest = {key: value for key, value in recorder.resources.items() if key[0] != "docker:index/image:Image"}
    assert "hunter2" not in repr(rest) + repr(values["outputs"])


@pytest.mark.parametrize("typ", ["slipway:image:ImageVariant", "slipway:registry:LocalRegistry"])
def test_components_are_registered_under_their_types(typ: str) -> None:
    recorder, _ = run()
    assert typ in {key[0] for key in recorder.resources}
