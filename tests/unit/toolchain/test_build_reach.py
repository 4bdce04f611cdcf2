"""The Dockerfile that an engine gets: without mounts of secrets that nobody gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.dockerfile.instructions import parse
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.unit.dockerfiles.test_dockerfile_arguments import DOCKERFILES
from toolchain.provider import build_reach, inputs

MOUNT = "--mount=type=secret,id=netrc,target=/dev/netrc,mode=0444"


def sent(folder: Path, text: str, *given: str) -> str | None:
    """Return what an engine gets in place of a Dockerfile."""
    (folder / "Dockerfile").write_text(text)
    image = inputs.image(
        {"imageName": "a:b", "build": {"context": str(folder), "dockerfile": str(folder / "Dockerfile")}}
    )
    content = build_reach.of(image, str(folder), "Dockerfile", given).sent
    return None if content is None else " ".join(content.decode().split())


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_shipped_dockerfile_is_sent_without_its_secrets(dockerfile: str) -> None:
    content = (ROOT / CONTEXT / dockerfile).read_bytes()
    result = build_reach.without_secrets(content, dockerfile, ())
    assert b"type=secret" not in result
    before, after = (parse(each, dockerfile).instructions for each in (content, result))
    assert [(each.line, each.keyword, each.rest) for each in before] == [
        (each.line, each.keyword, each.rest) for each in after
    ]


def test_secret_that_is_given_or_required_stays(tmp_path: Path) -> None:
    steps = (
        f"RUN {MOUNT} \\\n  --mount=type=secret,id=b --mount=type=secret,id=c,required --mount=type=tmpfs,target=/t a"
    )
    left = "--mount=type=secret,id=c,required --mount=type=tmpfs,target=/t a"
    assert sent(tmp_path, f"FROM scratch\n{steps}\n", "netrc") == f"FROM scratch RUN {MOUNT} \\ {left}"
    assert sent(tmp_path, f"FROM scratch\n{steps}\n", "netrc", "b", "c") is None


@pytest.mark.parametrize("step", ["COPY . /", "RUN --mount=type=bind,target=/m cp /m/Dockerfile /"])
def test_dockerfile_that_its_steps_read_is_sent_as_it_is(tmp_path: Path, step: str) -> None:
    (tmp_path / "Dockerfile.dockerignore").write_text("Dockerfile\n")
    assert sent(tmp_path, f"FROM scratch\n{step}\nRUN {MOUNT} a\n") is None


def test_mount_in_quotes_or_in_a_command_stays() -> None:
    text = f'FROM scratch\nRUN "{MOUNT}" a\nRUN a {MOUNT}\n'
    assert build_reach.without_secrets(text.encode(), "Dockerfile", ()) == text.encode()
