"""The defaults and errors of Check, as one table for both providers."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.provider.conftest import write
from tests.provider.plugin import SELECTED, Failure, Plugin, started
from toolchain.provider.provider_base import UNKNOWN, Secret, plain

FILES = {"app/Dockerfile": "FROM scratch\nCOPY f /\n", "app/f": "x", "app/other.Dockerfile": "FROM scratch\n"}
NAME = "registry.example/team/app:v1"
BUILD = {"context": "app", "dockerfile": "app/Dockerfile", "platform": "linux/amd64"}
DIGEST = "fdf846e115b1ef653348f16bbd3fb5bc3660311f276dd2bc1740f432fe5ad61f"
"""Of FILES with `app/Dockerfile`, as the official provider has it."""
CHECKED = {**BUILD, "contextDigest": DIGEST}
PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]


@pytest.fixture(scope="module")
def checked(program: Path, plugin: Plugin) -> Plugin:
    """The plugin, in a directory with FILES."""
    write(program, FILES)
    return plugin


@dataclass(frozen=True)
class Case:
    """A program's inputs without the name, and the checked ones: `build`, and the others."""

    id: str
    inputs: dict[str, Any]
    build: Any = field(default_factory=lambda: CHECKED)
    top: dict[str, Any] = field(default_factory=dict)


def build(**changes: Any) -> dict[str, Any]:
    return {"build": {**BUILD, **changes}}


ACCEPTED = [
    Case("all given", build()),
    Case("dockerfile from the context", {"build": {"context": "app", "platform": "linux/amd64"}}),
    Case("context as written", build(context="./app/"), {**CHECKED, "context": "./app/"}),
    Case("platform of this machine", {"build": {"context": "app"}}, {**CHECKED, "platform": PLATFORM}),
    Case("platform as written", build(platform="linux/ARM64"), {**CHECKED, "platform": "linux/ARM64"}),
    Case("args", build(args={"A": "1"}), {**CHECKED, "args": {"A": "1"}}),
    Case("unknown argument", build(args={"A": UNKNOWN}), {**CHECKED, "args": {"A": UNKNOWN}}),
    Case("unknown build", {"build": UNKNOWN}, UNKNOWN),
    Case("unknown dockerfile", build(dockerfile=UNKNOWN), {**BUILD, "dockerfile": UNKNOWN}),
    Case("unknown platform", build(platform=UNKNOWN), {**CHECKED, "platform": UNKNOWN}),
    Case("unknown name", {**build(), "imageName": UNKNOWN}, top={"imageName": UNKNOWN}),
    Case("unknown registry", {**build(), "registry": UNKNOWN}, top={"registry": UNKNOWN}),
    Case("unknown build on preview", {**build(), "buildOnPreview": UNKNOWN}),
    Case("build on preview", {**build(), "buildOnPreview": True}, top={"buildOnPreview": True}),
    Case("skip push", {**build(), "skipPush": False}, top={"skipPush": False}),
    Case(
        "short name without push",
        {**build(), "imageName": "app", "skipPush": True},
        top={"imageName": "app", "skipPush": True},
    ),
    Case(
        "short name with a server",
        {**build(), "imageName": "app", "registry": {"server": "https://r.example/v1/"}},
        top={"imageName": "app", "registry": {"server": "https://r.example/v1/"}},
    ),
    Case(
        "name on Docker Hub",
        {**build(), "imageName": "docker.io/library/app"},
        top={"imageName": "docker.io/library/app"},
    ),
    Case(
        "name with port",
        {**build(), "imageName": "localhost:5000/a/b_c:T.1"},
        top={"imageName": "localhost:5000/a/b_c:T.1"},
    ),
    Case("first builder", build(builderVersion="BuilderV1"), {**CHECKED, "builderVersion": "BuilderV1"}),
    Case(
        "cache",
        build(cacheFrom={"images": ["r.example/cache:x", UNKNOWN]}),
        {**CHECKED, "cacheFrom": {"images": ["r.example/cache:x", UNKNOWN]}},
    ),
    Case("unknown cache", build(cacheFrom={"images": UNKNOWN}), {**CHECKED, "cacheFrom": {"images": UNKNOWN}}),
    Case("hosts", build(addHosts=["db:10.0.0.1"]), {**CHECKED, "addHosts": ["db:10.0.0.1"]}),
    Case("nulls go", build(target=None, args={"A": None}), {**CHECKED, "args": {}}),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.id)
def test_check_of_valid_inputs_adds_defaults(checked: Plugin, case: Case) -> None:
    result = checked.check({"imageName": NAME, **case.inputs})
    assert result == {"imageName": NAME, "buildOnPreview": False, **case.top, "build": case.build}


REFUSED = [
    ("builder", build(builderVersion="V3"), "invalid Docker Builder version"),
    ("cache without images", build(cacheFrom={}), "cacheFrom requires an `images` field"),
    ("cache of text", build(cacheFrom={"images": "x"}), "the `images` field must be a list of strings"),
    (
        "dockerfile relative to the context",
        build(dockerfile="other.Dockerfile"),
        'Try setting `dockerfile` to "app/other.Dockerfile"',
    ),
    ("no dockerfile", build(dockerfile="app/No"), 'could not open dockerfile at relative path "app/No"'),
    (
        "no absolute dockerfile",
        build(dockerfile="/no/Dockerfile"),
        'expected a relative Dockerfile path; got "/no/Dockerfile"',
    ),
    ("no context", build(context="no"), "unable to hash build context"),
    ("context is a file", build(context="app/f"), "not a directory"),
    ("short name", {**build(), "imageName": "app"}, '"app": repository name must be canonical'),
    (
        "short name with a user",
        {**build(), "imageName": "team/app"},
        "This resource requires all image names to be fully",
    ),
    ("upper case", {**build(), "imageName": "r.example/App"}, "must be lowercase"),
    ("no name at all", {**build(), "imageName": "r.example/a b"}, "invalid reference format"),
    ("digest for a name", {**build(), "imageName": "a" * 64}, "64-byte hexadecimal string"),
    ("short cache's registry", {**build(cacheFrom={"images": ["x"]}), "imageName": "app"}, "must be canonical"),
]


@pytest.mark.parametrize(("inputs", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_check_of_wrong_input_is_refused(checked: Plugin, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure) as failure:
        checked.check({"imageName": NAME, **inputs})
    text = str(failure.value)
    assert message.lower() in text.lower()
    assert SELECTED == "official" or "\n" not in text


def test_check_without_build_uses_program_directory(program: Path, plugin: Plugin) -> None:
    """The program's directory is the context."""
    write(program, {"Dockerfile": "FROM scratch\n"})
    result = plugin.check({"imageName": NAME})["build"]
    (program / "Dockerfile").unlink()
    assert (result["context"], result["dockerfile"], result["platform"]) == (".", "Dockerfile", PLATFORM)


def test_check_without_platform_logs_default(checked: Plugin) -> None:
    checked.engine.lines.clear()
    checked.check({"imageName": NAME, **build(platform=None)})
    (line,) = checked.engine.lines
    assert f"Building your image for {PLATFORM} architecture" in line.message
    assert (line.severity, line.ephemeral) == ("INFO", False)


def test_check_with_platform_logs_nothing(checked: Plugin) -> None:
    checked.engine.lines.clear()
    checked.check({"imageName": NAME, **build()})
    assert not checked.engine.lines


SECRETS = [
    {**build(args={"TOKEN": Secret("hush")})},
    {**build(args=Secret({"TOKEN": "hush"}))},
    {"build": Secret({**BUILD, "args": {"TOKEN": "hush"}})},
    {**build(), "registry": {"server": "r.example", "password": Secret("hush")}},
    {**build(), "imageName": Secret(NAME)},
]


@pytest.mark.parametrize("inputs", SECRETS, ids=str)
def test_check_keeps_secrets_secret(checked: Plugin, inputs: dict[str, Any]) -> None:
    """The official provider has the engine mark them again; the embedded one keeps them itself."""
    result = checked.check_raw({"imageName": NAME, **inputs})
    assert plain(result)["build"].get("contextDigest") == DIGEST
    if SELECTED == "official":
        assert not checked.configure().acceptSecrets
        return

    def secret(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        if isinstance(value, Secret):
            return {path}
        items = value.items() if isinstance(value, dict) else ()
        return {secret_path for key, item in items for secret_path in secret(item, (*path, key))}

    assert secret(result) == secret(inputs) != set()


WHOLLY_UNKNOWN = ["args", "addHosts", "network", "builderVersion"]


@pytest.mark.parametrize("key", WHOLLY_UNKNOWN)
def test_check_of_unknown_value_passes(checked: Plugin, key: str, program: Path, docker_host: str) -> None:
    """The official provider crashes on these; the embedded one lets them through."""
    inputs = {"imageName": NAME, **build(**{key: UNKNOWN})}
    if SELECTED == "official":
        with started(program) as doomed:
            doomed.configure(host=docker_host)
            with pytest.raises(Failure):
                doomed.check(inputs)
            assert doomed.process.wait(timeout=10) != 0
    else:
        assert checked.check(inputs)["build"] == {**CHECKED, key: UNKNOWN}


def test_check_of_unknown_context_adds_no_digest(checked: Plugin) -> None:
    """The official provider digests the program's directory in its place; the embedded one leaves the digest out."""
    result = checked.check({"imageName": NAME, **build(context=UNKNOWN)})["build"]
    digest = result.pop("contextDigest", None)
    assert result == {**BUILD, "context": UNKNOWN}
    assert (digest is not None) == (SELECTED == "official")


WRONG_TYPES = [
    (build(dockerfile=1), "dockerfile: expected a string, got 1.0"),
    (build(context=True), "context: expected a string, got True"),
    ({"build": "app"}, "build: expected an object, got str"),
    ({**build(), "skipPush": "yes"}, "skipPush: expected true or false, got 'yes'"),
    (build(args={"CUDA": 12}), "build.args.CUDA: expected a string; quote it"),
    (build(args=["A=1"]), "build.args: expected an object of strings"),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG_TYPES, ids=[case[1] for case in WRONG_TYPES])
def test_check_of_wrong_type_is_one_line(program: Path, docker_host: str, inputs: dict[str, Any], message: str) -> None:
    """Programs without types get a line each; the official provider crashes on most."""
    with started(write(program, FILES), "embedded") as embedded:
        embedded.configure(host=docker_host)
        with pytest.raises(Failure) as failure:
            embedded.check({"imageName": NAME, **inputs})
    assert str(failure.value) == message
