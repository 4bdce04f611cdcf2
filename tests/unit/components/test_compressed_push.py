"""The push of an image with zstd from an engine, where the docker provider makes none."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.registry import engine_push
from components.registry.compressed_push import PushCompressed
from containers.engine import engine, zstd_push
from containers.registry.credentials import Login
from tests.fakes import tls_engine
from tests.helpers.refusals import refusal

BUILT = f"sha256:{'1' * 64}"
IMAGE = {"ref": "r.example/x/torch:abc", "built": BUILT, "level": 3.0, "engine": "", "ssh": [], "tls": {}}


def test_lost_image_is_built_again_as_the_error_says(tmp_path: Path) -> None:
    """The state has its build, so that an update alone would fail for ever."""
    with tls_engine.on_socket(tmp_path / "engine.sock") as there:
        there.status, there.body = 404, json.dumps({"message": f"No such image: {BUILT}"}).encode()
        line = refusal(lambda: PushCompressed().run({**IMAGE, "engine": f"unix://{tmp_path}/engine.sock"}))
        there.status = 500
        other = refusal(lambda: PushCompressed().run({**IMAGE, "engine": f"unix://{tmp_path}/engine.sock"}))
    assert "pulumi state taint" in line
    assert "the next run pushes it" not in line
    assert other.endswith("The image is built; the next run pushes it.")


class Engine:
    """Holds each image, and keeps the login by which it is to pull one."""

    login: dict[str, str]

    def json(self, _: str) -> dict[str, Any]:
        return {"RootFS": {"Layers": []}}

    @contextmanager
    def request(self, *_: str, headers: Mapping[str, str], **__: Any) -> Iterator[Any]:
        self.login = json.loads(base64.urlsafe_b64decode(headers["X-Registry-Auth"]))
        yield type("Answer", (), {"messages": lambda _: iter(())})()


def test_engine_pulls_with_an_identity_token_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docker login` has one from Azure, without a password."""
    holder, token = Engine(), Login("r.example", "0000", "", "token")
    monkeypatch.setattr(engine.Engine, "at", lambda _: holder)
    monkeypatch.setattr(zstd_push, "push", lambda *_: (BUILT, BUILT, ()))
    engine_push.push(IMAGE, token)
    assert holder.login["identitytoken"] == "token"
