"""Components under Pulumi's mocks: what is asked of docker.Image, and what comes back."""

from __future__ import annotations

import pytest

from tests.unit.mocks import DIGEST, SECRET, run


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_REGISTRY", "SLIPWAY_MIRRORS"):
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.parametrize(
    ("registry", "typ"),
    [
        ({"kind": "generic", "repository": "r.example/x"}, "GenericRegistry"),
        ({"kind": "ghcr", "repository": "ghcr.io/acme/x"}, "GhcrRegistry"),
        ({"kind": "acr", "repository": "acme1.azurecr.io/x"}, "AcrRegistry"),
    ],
)
def test_a_password_goes_along_only_where_something_is_pushed(registry: dict[str, str], typ: str) -> None:
    login = {"username": "me", "password": "hunter2"}
    for publish in (True, False):
        recorder, _ = run(registry={**registry, **login}, publish=publish)
        assert recorder.of_type(f"slipway:registry:{typ}") == {"registry": {"repository": registry["repository"]}}
        given = recorder.image("torch")["registry"]
        server = {"server": registry["repository"].partition("/")[0]}
        assert given.get("value", given) == (server | login if publish else server)
        assert ("hunter2" in repr(recorder.resources)) == publish


@pytest.mark.parametrize("typ", ["slipway:image:ImageVariant", "slipway:registry:LocalRegistry"])
def test_components_are_registered_under_their_types(typ: str) -> None:
    recorder, _ = run()
    assert typ in {key[0] for key in recorder.resources}
