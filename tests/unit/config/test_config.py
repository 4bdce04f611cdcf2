"""Configuration: what is accepted, and the one line for each mistake."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, get_args

import pytest
from pydantic import Field

from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks import flavors, plan
from stacks.config import torch as torch_config
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.load import FORMS, build, from_pulumi
from stacks.config.model import Model
from stacks.config.registries.ghcr import GhcrRegistryConfig
from stacks.config.registries.this_machine import LocalRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT
from stacks.flavors.torch_family.family_config import FamilyExtrasConfig
from stacks.versions.pytorch import torch_release
from tests.helpers import refusals
from tests.helpers.every import every
from tests.helpers.registry_kinds import LISTED


def camel(model: type[Model]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def patterns(value: Any) -> Iterator[str]:
    """Yield the patterns of the keys in a schema."""
    if isinstance(value, dict):
        yield from [value["pattern"]] if isinstance(value.get("pattern"), str) else []
        value = [*value.values()]
    for item in value if isinstance(value, list) else []:
        yield from patterns(item)


def test_form_of_each_pattern_is_said_in_words() -> None:
    schema = json.loads((ROOT / "stacks/stack.schema.json").read_text())
    assert {*patterns(schema)} - {"^slipway:"} == {*FORMS}


@every(
    "values, message",
    [
        ({"cpu": "22 cores"}, "cpu: '22 cores': expected CPUs, such as 4, or 500m for half of one"),
        ({"maxRunners": "4 machines"}, "maxRunners: '4 machines': expected a whole number"),
        ({"gpus": 1.5}, "gpus: '1.5': expected a whole number"),
    ],
)
def test_text_of_another_form_is_refused_in_words(values: dict[str, Any], message: str) -> None:
    runners = {"kind": "kubernetes", "github": {"url": "https://github.com/acme", "secret": "github"}, **values}
    with pytest.raises(SlipwayError) as caught:
        flavors.load({"flavor": "runners", "runners": runners}, "stack x")
    assert str(caught.value) == f"stack x: slipway:runners.{message}"


class _OwnConfig(StackConfig):
    """Of a flavor of one's own, with a pattern that no key of Slipway's has."""

    size: str = Field(pattern="^(small|large)$")


def test_pattern_of_an_own_flavor_is_said_as_it_is() -> None:
    with pytest.raises(SlipwayError) as caught:
        build(_OwnConfig, {"flavor": "own", "size": "tall"}, "stack x")
    assert str(caught.value) == "stack x: slipway:size: 'tall': expected text that matches ^(small|large)$"


def switches(model: type[Model]) -> Iterator[str]:
    """Yield the keys that can be switched off, and are not left to what follows from others."""
    for name, field in model.model_fields.items():
        key, kinds = field.alias or name, get_args(field.annotation)
        if Literal[False] in kinds and field.default is not None:
            yield key
        elif isinstance(field.default_factory, type) and issubclass(field.default_factory, Model):
            yield from (f"{key}.{inner}" for inner in switches(field.default_factory))


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTOR", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def load(**values: Any) -> Any:
    return flavors.load({"flavor": "local", **values}, "stack x")


refusal = partial(refusals.refusal, load)


def test_config_of_flavor_alone_loads() -> None:
    config = load()
    assert isinstance(config.registry, LocalRegistryConfig)
    assert config.registry.repository == "127.0.0.1:5000/slipway"
    assert config.publish
    assert config.platform == "linux/amd64"


@every(
    "values, line",
    [
        ({"tocrh": {}}, "stack x: config: unknown key 'tocrh' (did you mean 'torch'?); the keys here are: flavor, "),
        *(
            ({"promotion": {"tags": ["a"], "gpuChecks": {key: value}}}, f"stack x: slipway:promotion.gpuChecks{error}")
            for key, value, error in (
                ("firstStep", True, ": firstStep: expected a number, and not true"),
                ("firstStep", "20 s", ".firstStep: '20 s': input should be a valid number"),
                ("firstStep", float("nan"), ".firstStep: 'nan': input should be a finite number"),
                ("busBandwidth", float("inf"), ".busBandwidth: 'inf': input should be a finite number"),
                ("gpus", True, ": gpus: expected a number, and not true"),
            )
        ),
        ({"torch": {"vison": "1"}}, "stack x: slipway:torch: unknown key 'vison' (did you mean 'vision'?)"),
        ({"images": [{"name": "own", "target": "t"}]}, "stack x: slipway:images.0: unknown key 'target'; the keys"),
        ({"torch": "2.15.0"}, "stack x: slipway:torch: '2.15.0': "),
        (
            {"runsOn": ["self-hosted", "a,b"]},
            "stack x: slipway:runsOn.1: 'a,b': expected a runner's label, such as gpu",
        ),
        ({"publish": "maybe"}, "stack x: slipway:publish: 'maybe': "),
        (
            {"inspection": {"exceptions": [{"files": "opt/a.so", "reason": "none"}]}},
            "stack x: slipway:inspection.exceptions.0.files: 'opt/a.so': expected a path in the image that begins with / ",
        ),
        (
            {"inspection": {"exceptions": [{"files": "*", "reason": " "}]}},
            "stack x: slipway:inspection.exceptions.0.reason: ' ': expected why this is no fault",
        ),
        (
            {"inspection": {"exceptions": [{"files": "/*", "missing": "**", "reason": "all"}]}},
            "stack x: slipway:inspection.exceptions.0: expected a pattern of files or of what they miss: this excepts every ",
        ),
        ({"inspection": {"exceptions": [{"files": "*"}]}}, "stack x: slipway:inspection.exceptions.0.reason: "),
        ({"platform": "linux/arm"}, "stack x: slipway:platform: 'linux/arm': "),
        ({"base": "debian"}, "stack x: slipway:base: 'debian': expected an image reference with a tag or a digest"),
        ({"base": "debian:a b"}, "stack x: slipway:base: 'debian:a b': expected an image reference"),
        ({"torch": {"version": "2;rm -rf /"}}, "stack x: slipway:torch.version: '2;rm -rf /': expected a version"),
        ({"torch": {"version": "2\n3"}}, "stack x: slipway:torch.version: '2\\n3': expected a version"),
        ({"torch": {"version": "２"}}, "stack x: slipway:torch.version: '２': expected a version"),
        (
            {"torch": {"version": "2.0.1", "vision": "0.16.0"}},
            "stack x: slipway:torch.vision: '0.16.0' does not go with torch",
        ),
        ({"torch": {"version": "2.99.0"}}, "stack x: slipway:torch.version: '2.99.0' is not a known torch release"),
        ({"torch": {"version": "2.15.0"}}, "stack x: slipway:torch.audio: '2.11.0' is compiled with CUDA 13.0"),
        ({"registry": {"kind": "local", "address": "x y"}}, "stack x: slipway:registry.address: 'x y': expected host"),
        (
            {"registry": {"kind": "ghrc"}},
            f"stack x: slipway:registry.kind: 'ghrc': expected one of {LISTED} (did you mean 'ghcr'?)",
        ),
        ({"registry": {"path": "x"}}, "stack x: slipway:registry: 'kind' is required"),
        ({"torch": None}, "stack x: slipway:torch: has no value: give one, or leave the key out"),
        ({"mirrors": {"images": "x"}}, "stack x: slipway:mirrors.images: 'x': expected a mapping of keys to values"),
        ({"registry": {"kind": "ghcr"}}, "stack x: slipway:registry.repository: is required"),
        (
            {"registry": {"kind": "ghcr", "repository": "acme/x"}},
            "stack x: slipway:registry.repository: 'acme/x': expect",
        ),
        ({"mirrors": {"apt": "http://x:99999"}}, "stack x: slipway:mirrors.apt: 'http://x:99999': port out of range"),
        ({"mirrors": {"apt": "ftp://x"}}, "stack x: slipway:mirrors.apt: 'ftp://x': expected an http:// or https://"),
        ({"mirrors": {"images": {"docker.io:x": "y"}}}, "stack x: slipway:mirrors.images: "),
        (
            {"mirrors": {"caCertificate": "none"}},
            "stack x: slipway:mirrors.caCertificate: 'none': expected one or more PEM",
        ),
    ],
)
def test_load_of_mistake_fails_with_one_line_that_names_it(values: dict[str, Any], line: str) -> None:
    message = refusal(**values)
    assert message.startswith(line)
    assert "\n" not in message


SWITCHES = {
    "efa": ("nccl.version", "nccl.tests", "openmpi.pmix", "extras.xformers"),
    "megatron": ("doca", "transformerEngine"),
    "base": ("transformerEngine", "flashAttention3", *(f"extras.{name}" for name in camel(FamilyExtrasConfig))),
    "universal": ("cuda",),
}
"""Switches with a default of their own, by flavor: what stands there without a value is not one that is switched off."""


@every("flavor, key", [(flavor, key) for flavor, keys in SWITCHES.items() for key in keys])
def test_switch_without_value_is_refused(flavor: str, key: str) -> None:
    outer, _, inner = key.partition(".")
    with pytest.raises(SlipwayError) as caught:
        flavors.load({"flavor": flavor, outer: {inner: None} if inner else None}, "stack x")
    assert str(caught.value) == f"stack x: slipway:{key}: has no value: give one, or leave the key out"


def test_switches_with_default_are_all_listed() -> None:
    for flavor, keys in SWITCHES.items():
        assert set(switches(flavors.flavor(flavor).Config)) == set(keys)


@every("key", ["torch.audio", "torch.text", "magma"])
def test_switch_with_derived_default_may_be_null(key: str) -> None:
    outer, _, inner = key.partition(".")
    planned = flavors.load({"flavor": "universal", outer: {inner: None} if inner else None}, "stack x")
    assert planned == flavors.load({"flavor": "universal"}, "stack x")


@every(
    "flavor, values, line",
    [
        ("efa", {"efa": {1: 2}}, "slipway:efa: the key '1' is not text: quote it"),
        ("efa", {"nccl": {1: 2}}, "slipway:nccl: the key '1' is not text: quote it"),
        ("efa", {"openmpi": {None: 2}}, "slipway:openmpi: the key 'None' is not text: quote it"),
        ("efa", {"extras": {True: 2}}, "slipway:extras: the key 'True' is not text: quote it"),
        ("megatron", {"launcher": {24.12: 2}}, "slipway:launcher: the key '24.12' is not text: quote it"),
        ("megatron", {"topology": {1: 2}}, "slipway:topology: the key '1' is not text: quote it"),
        ("universal", {"train": [{}, {"env": {1: "2"}}]}, "slipway:train.1.env: the key '1' is not text: quote it"),
        ("local", {1: 2}, "config: the key '1' is not text: quote it"),
    ],
)
def test_load_of_key_that_is_not_text_fails_with_one_line(flavor: str, values: dict[Any, Any], line: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        plan.make("local", {"flavor": flavor, **values})
    assert str(caught.value) == f"stack local: {line}"


def test_torch_release_candidate_without_build_is_refused() -> None:
    with pytest.raises(SlipwayError) as caught:
        load(torch={"version": "2.0.0-rc1", "vision": "0.15.0-rc2", "audio": False})
    assert str(caught.value) == (
        "stack x: slipway:torch: version '2.0.0-rc1': there are no wheels of release candidates; use 2.0.0"
    )


def test_torch_without_audio_loads() -> None:
    (image,) = flavors.flavor("local").images(load(torch={"version": "2.15.0", "vision": "0.29.2", "audio": False}))
    assert image.args["TORCHAUDIO_VERSION"] == ""
    assert image.suffix.render() == "local-torch2.15.0-vision0.29.2"


def test_load_of_several_mistakes_fails_with_a_line_each() -> None:
    assert len(refusal(publish="maybe", platform="x", torch={"version": "?"}).splitlines()) == 3


def test_flavor_unknown_error_names_nearest_and_all() -> None:
    with pytest.raises(
        SlipwayError, match=r"stack x: slipway:flavor: 'lcal' is not a flavor \(did you mean 'local'\?\)"
    ):
        flavors.load({"flavor": "lcal"}, "stack x")
    with pytest.raises(SlipwayError, match="flavor is required; allowed: .*; rename 'flavour'$"):
        flavors.load({"flavour": "local"}, "stack x")
    for values in ({}, {"flavor": ""}, {"flavor": 3}):
        with pytest.raises(SlipwayError, match="slipway:flavor is required; allowed: .*local"):
            flavors.load(values, "stack x")


def test_address_with_credential_is_refused_and_hidden() -> None:
    message = refusal(mirrors={"pythonIndex": "https://user:hunter2@mirror.example/simple"})
    assert "must not carry user:password@" in message
    assert "hunter2" not in message


def test_password_in_error_is_hidden() -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "password": "hunter2"}
    message = refusal(registry=registry)
    assert "'username' is missing" in message
    assert "hunter2" not in message
    assert "hunter2" not in refusal(registry={**registry, "username": "u", "password": ["hunter2"]})
    config = load(registry={**registry, "username": "u"})
    assert "hunter2" not in repr(config) + str(config.registry) + config.model_dump_json()


def test_ghcr_in_job_takes_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "octocat")
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    registry = load(registry={"kind": "ghcr", "repository": "ghcr.io/acme/images"}).registry
    assert isinstance(registry, GhcrRegistryConfig)
    assert registry.username == "octocat"
    assert registry.password is not None
    assert registry.password.get_secret_value() == "t0ken"


@every("there", ["GITHUB_ACTOR", "GITHUB_TOKEN"])
def test_ghcr_with_half_of_job_credentials_has_none(monkeypatch: pytest.MonkeyPatch, there: str) -> None:
    """A fork's job has an actor and no token; a developer's shell may have a token and no actor."""
    monkeypatch.setenv(there, "x")
    registry = load(registry={"kind": "ghcr", "repository": "ghcr.io/acme/images"}).registry
    assert (registry.username, registry.password) == (None, None)


@every("url", ["https://user:hunt/er2@host/simple", "https://user:hunt er2@h", "https://u:hunt@er2@h"])
def test_address_with_any_credential_is_refused_and_hidden(url: str) -> None:
    message = refusal(mirrors={"pythonIndex": url})
    assert "must not carry user:password@" in message
    assert "hunt" not in message
    assert "er2" not in message


def test_encrypted_value_outside_program_is_a_placeholder() -> None:
    registry = {"kind": "generic", "repository": "r.example/x", "username": "u", "password": {"secure": "v1:abc"}}
    assert load(registry=registry).registry.password.get_secret_value() == "[secret]"


def test_from_pulumi_values_equal_the_file() -> None:
    values = from_pulumi(
        {
            "slipway:flavor": "local",
            "slipway:torch": '{"version": "2.14.1"}',
            "slipway:publish": "false",
            "aws:region": "x",
        }
    )
    assert values == {"flavor": "local", "torch": {"version": "2.14.1"}, "publish": "false"}
    assert load(**values).publish is False
    with pytest.raises(SlipwayError, match="slipway:torch: '{oops' is not JSON"):
        from_pulumi({"slipway:torch": "{oops"})


@every(
    "reference, full",
    [
        ("debian:x", "docker.io/library/debian:x"),
        ("nvidia/cuda:x", "docker.io/nvidia/cuda:x"),
        ("nvcr.io/nvidia/pytorch:x", "nvcr.io/nvidia/pytorch:x"),
        ("localhost/a:x", "localhost/a:x"),
    ],
)
def test_reference_is_parsed_as_docker_does(reference: str, full: str) -> None:
    assert str(Reference.of(reference).in_full) == full


@every(
    "reference, normal",
    [
        ("debian", "docker.io/library/debian"),
        ("index.docker.io/debian:x", "docker.io/library/debian:x"),
        ("registry-1.docker.io/library/debian:x", "docker.io/library/debian:x"),
        ("Registry-1.Docker.IO:443/acme/x", "docker.io/acme/x"),
        ("GHCR.io/acme/x:A", "ghcr.io/acme/x:A"),
        ("ghcr.io:443/acme/x", "ghcr.io/acme/x"),
        ("ghcr.io:8443/acme/x", "ghcr.io:8443/acme/x"),
        ("localhost:443/x", "localhost:443/x"),
        ("quay.io/debian", "quay.io/debian"),
    ],
)
def test_names_of_one_registry_have_one_normal_form(reference: str, normal: str) -> None:
    assert str(Reference.of(reference).normal) == normal


def test_mirror_image_takes_longest_prefix_of_whole_segments() -> None:
    mirrors = MirrorsConfig(
        images={"docker.io": "m.example/hub", "docker.io/nvidia": "m.example/nv", "docker.io/lib": "no.example"}
    )
    assert mirrors.image("nvidia/cuda:12") == "m.example/nv/cuda:12"
    assert mirrors.image("debian:12") == "m.example/hub/library/debian:12"
    assert mirrors.image("Registry-1.docker.io:443/library/debian:12") == "m.example/hub/library/debian:12"
    assert mirrors.image("ghcr.io/a/b:1") == "ghcr.io/a/b:1"


def test_mirrors_of_environment_apply_below_those_of_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    below = {"images": {"docker.io": "low.example", "ghcr.io": "low.example/g"}, "apt": "http://low.example"}
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps(below))
    mirrors = load(mirrors={"images": {"docker.io": "own.example"}, "caCertificate": PEM}).mirrors
    assert mirrors.images == {"docker.io": "own.example", "ghcr.io": "low.example/g"}
    assert mirrors.apt == "http://low.example"
    assert mirrors.ca_certificate == PEM
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps({"images": {"docker.io/library/debian": "low.example/debian"}}))
    assert load(mirrors={"images": {"debian": "own.example/debian"}}).mirrors.images == {"debian": "own.example/debian"}
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps({"downloads": {"http://a.example": "http://low.example/a"}}))
    assert load().mirrors.downloads == {"http://a.example": "http://low.example/a"}
    digests = [{name: f"sha256:{digit * 64}"} for name, digit in (("low.example/d:1", "a"), ("own.example/d:1", "b"))]
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps({"imageDigests": digests[0]}))
    assert load(mirrors={"imageDigests": digests[1]}).mirrors.image_digests == digests[0] | digests[1]
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps({"downloads": {"http://a.example": "http://low.example/a"}}))
    private = load(mirrors={"downloads": {"http://b.example": "http://own.example"}}).mirrors
    assert private.downloads == {"http://a.example": "http://low.example/a", "http://b.example": "http://own.example"}
    monkeypatch.setenv("SLIPWAY_MIRRORS", "{oops")
    assert "$SLIPWAY_MIRRORS: config: '{oops': invalid JSON" in refusal()
    monkeypatch.setenv("SLIPWAY_MIRRORS", '{"images": 7}')
    assert refusal() == "$SLIPWAY_MIRRORS: slipway:images: '7': expected a mapping of keys to values"


def test_mirror_that_states_digests_has_these_tags_alone() -> None:
    at, digest = "m.example:5000/debian", f"sha256:{'a' * 64}"
    mirrors = MirrorsConfig.model_validate({"images": {"debian": at}, "imageDigests": {f"{at}:12": digest}})
    assert mirrors.image("debian:12") == f"{at}:12"
    assert mirrors.image("debian:13") == "debian:13"


@every("entry", [{"m.example/debian": "sha256:" + "a" * 64}, {"m.example/debian:12": "sha256:a"}])
def test_image_digest_of_another_form_is_refused(entry: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="imageDigests"):
        MirrorsConfig.model_validate({"imageDigests": entry})


@every(
    "engine, said",
    [("tcp://10.0.0.1:2375", True), ("tcp://127.0.0.1:2375", False), ("ssh://builder", False), ("unix:///d", False)],
)
def test_engine_in_clear_is_warned_of(engine: str, said: bool) -> None:
    config, _ = plan.specs({"flavor": "local", "engines": {"linux/amd64": [engine]}}, "stack t")
    assert (f"slipway:engines: {engine}: no TLS: whoever reaches it is root there" in " ".join(config.warnings)) == said


def test_torch_without_a_companion_wants_one_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a release that the table has no torchaudio for, a stack says which, or that it has none."""
    without = dataclasses.replace(torch_release("2.9.0"), audio=None)
    monkeypatch.setattr(torch_config, "torch_release", lambda _: without)
    with pytest.raises(ValueError, match=r"no torchaudio goes with torch 2\.9\.0; choose another release of torch"):
        torch_config.TorchConfig.model_validate({"version": "2.9.0"})
    for audio, expected in ((False, None), ("2.9.0", "2.9.0")):
        config = torch_config.TorchConfig.model_validate({"version": "2.9.0", "audio": audio})
        assert config.companion("audio") == expected
