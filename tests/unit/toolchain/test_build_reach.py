"""The Dockerfile that an engine gets: without mounts of secrets that nobody gave."""

from __future__ import annotations

from pathlib import Path

from containers.dockerfile.instructions import parse
from containers.engine.connection import Address
from containers.engine.engine import Engine
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every
from tests.unit.dockerfiles.test_dockerfile_arguments import DOCKERFILES
from toolchain.provider import build, build_reach, inputs

MOUNT = "--mount=type=secret,id=netrc,target=/dev/netrc,mode=0444"


def written(folder: Path, text: str) -> inputs.ImageInputs:
    """Write a Dockerfile; return the image that it is of."""
    (folder / "Dockerfile").write_text(text)
    return inputs.image(
        {"imageName": "a:b", "build": {"context": str(folder), "dockerfile": str(folder / "Dockerfile")}}
    )


def sent(folder: Path, text: str, *given: str) -> str | None:
    """Return what an engine gets in place of a Dockerfile."""
    content = build_reach.for_hashing_engine(written(folder, text), str(folder), "Dockerfile", given)
    return None if content is None else " ".join(content.decode().split())


@every("dockerfile", DOCKERFILES)
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


@every("step", ["COPY . /", "RUN --mount=type=bind,target=/m cp /m/Dockerfile /"])
def test_dockerfile_that_its_steps_read_is_sent_as_it_is(tmp_path: Path, step: str) -> None:
    (tmp_path / "Dockerfile.dockerignore").write_text("Dockerfile\n")
    assert sent(tmp_path, f"FROM scratch\n{step}\nRUN {MOUNT} a\n") is None


def test_source_that_is_missing_is_the_engines_to_refuse(tmp_path: Path) -> None:
    """The secrets and the logins are known all the same, and nothing is warned of."""
    text = f"FROM scratch\nCOPY missing /\nRUN {MOUNT} a\n"
    found = build_reach.of(written(tmp_path, text), tmp_path / "Dockerfile")
    assert found == build_reach.BuildReach(frozenset(), frozenset({"netrc"}))
    assert sent(tmp_path, text) is None


@every(
    "step",
    [
        f'"{MOUNT}" a',
        f"a {MOUNT}",
        "--mount=type=secret,id=a,env=A a",  # which sets A to nothing without a secret
        "--mount=type=secret,id=a,REQUIRED a",
        "--mount=type=secret,ID=given a",
        "--mount=type=secret,src=given a",
    ],
)
def test_mount_of_another_meaning_stays(step: str) -> None:
    text = f"FROM scratch\nRUN {step}\n".encode()
    assert build_reach.without_secrets(text, "Dockerfile", ["given"]) == text


def test_engines_that_hash_below_secrets_get_another_file() -> None:
    class Told(Engine):
        def json(self, *_: object, **__: object) -> dict[str, object]:
            return {"Version": self.address.host}

    releases = [
        "20.10.24+dfsg1",
        "25.0.3",
        "26.0.0",
        "26.1.5+dfsg1",
        "27.2.1",
        "27.3.0",
        "29.1.2",
        "5.4.2-podman",
        "dev",
    ]
    told = [each for each in releases if build._hashes_below_secrets(Told(Address(each)))]
    assert told == ["26.0.0", "26.1.5+dfsg1", "27.2.1"]
