"""The inputs of the embedded provider's image: what is filled in, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from toolchain.provider import inputs
from toolchain.provider.build_context import Digests


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    monkeypatch.chdir(tmp_path)


def checked(**build: Any) -> Any:
    return inputs.check({"imageName": "127.0.0.1:5000/a:1", "build": build}, Digests())


def test_check_without_platform_fills_in_this_machines() -> None:
    assert checked()["build"]["platform"] == inputs.host_platform()
    assert "platform" not in checked(platform="linux/arm64")["build"]


@pytest.mark.parametrize(
    ("build", "line"),
    [
        ({"builderVersion": "3"}, "invalid Docker Builder version '3'; it is one of BuilderV1, BuilderBuildKit"),
        ({"args": {"A": 1}}, "build.args.A: expected a string; quote it"),
        ({"args": "A=1"}, "build.args: expected an object of strings"),
        ({"cacheFrom": {}}, "build.cacheFrom: cacheFrom requires an `images` field"),
        ({"dockerfile": "missing"}, 'could not open dockerfile at relative path "missing": No such file'),
        ({"context": 1}, "context: expected a string, got 1"),
    ],
)
def test_check_of_a_wrong_input_names_it(build: dict[str, Any], line: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        checked(**build)
    assert line in str(caught.value)


def test_check_of_a_flag_that_is_a_text_is_refused() -> None:
    with pytest.raises(SlipwayError, match=r"skipPush: expected true or false, got 'yes'"):
        inputs.check({"imageName": "127.0.0.1:5000/a:1", "skipPush": "yes"}, Digests())


def test_image_of_inputs_has_their_values_or_defaults() -> None:
    image = inputs.image({"imageName": "127.0.0.1:5000/a:1", "build": {}})
    assert (image.skip_push, image.build.builder, image.build.context) == (False, "2", ".")
    image = inputs.image(
        {"imageName": "127.0.0.1:5000/a:1", "skipPush": True, "build": {"builderVersion": "BuilderV1"}}
    )
    assert (image.skip_push, image.build.builder) == (True, "1")
