"""The job of one stack leaves files that speak for another, or files that are no record: `record` believes none."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.verbs import record
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import workflow
from tests.helpers.sample_repository import Checkout

HOSTILE = "hostile"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout with the stacks ``hostile`` and ``victim``, and a remote."""
    created = Checkout(tmp_path / "work")
    for stack in (HOSTILE, "victim"):
        created.write(f"stacks/Pulumi.{stack}.yaml", "config: {}\n")
    created.git("init", "-q", "-b", "main")
    created.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    created.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    created.commit("README.md", "one")
    monkeypatch.setattr(record, "ROOT", created.root)
    return created


def state(checkout: Checkout, word: str) -> str:
    return json.dumps({"commit": checkout.git("rev-parse", "HEAD"), "outputs": {"word": word}})


def download(artifacts: dict[str, Path], target: Path) -> None:
    """Lay artifacts out as the workflow's steps do: GitHub's action puts a single one, or merged ones, into the folder itself."""
    steps = workflow(ROOT, "publish.yml")["jobs"]["record"]["steps"]
    options = [step["with"] for step in steps if "actions/download-artifact" in step.get("uses", "")]
    for step in steps:
        if "actions/upload-artifact" in step.get("uses", ""):
            own = target.parent / "own"
            own.mkdir()
            (own / step["with"]["path"]).write_text("one")
            artifacts = {**artifacts, step["with"]["name"]: own}
    (into,) = options
    flat = into.get("merge-multiple") or len(artifacts) == 1
    for name, folder in artifacts.items():
        place = target if flat else target / name
        place.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            entry.rename(place / entry.name)


def run(checkout: Checkout, tmp_path: Path, *, victim: str | None = "victim", result: str = "success") -> int:
    """Record the artifacts of both jobs, and return the exit status; ``victim`` is what its job says, None if it failed."""
    artifacts = {f"published-{HOSTILE}": tmp_path / "artifact"}
    if victim:
        honest = tmp_path / "honest"
        honest.mkdir()
        (honest / "victim.json").write_text(state(checkout, victim))
        artifacts["published-victim"] = honest
    download(artifacts, tmp_path / "published")
    return record.run(argparse.Namespace(folder=tmp_path / "published", result=result))


def published(checkout: Checkout) -> dict[str, str]:
    checkout.git("fetch", "-q", "origin", "published")
    names = checkout.git("ls-tree", "-r", "--name-only", "FETCH_HEAD").splitlines()
    return {name: checkout.git("show", f"FETCH_HEAD:{name}") for name in names}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "name",
    ["victim.json", "published-victim/victim.json", "stacks/victim.json", "victim", "commit", "VICTIM.json"],
)
def test_job_never_records_another_stack(name: str, checkout: Checkout, artifact: Path, tmp_path: Path) -> None:
    (artifact / name).parent.mkdir(exist_ok=True)
    (artifact / name).write_text(state(checkout, "forged"))
    (artifact / f"{HOSTILE}.json").write_text(state(checkout, "own"))
    assert run(checkout, tmp_path) == 0
    branch = published(checkout)
    assert set(branch) == {"commit", "stacks/hostile.json", "stacks/victim.json"}
    assert branch["commit"] == checkout.git("rev-parse", "HEAD")
    assert json.loads(branch["stacks/victim.json"])["outputs"] == {"word": "victim"}


@pytest.mark.parametrize("name", ["victim.json", "published-victim/victim.json"])
def test_single_artifact_never_records_another_stack(
    name: str, checkout: Checkout, artifact: Path, tmp_path: Path
) -> None:
    """The other stack's job has failed, so that one artifact is all there is."""
    (artifact / name).parent.mkdir(exist_ok=True)
    (artifact / name).write_text(state(checkout, "forged"))
    (artifact / f"{HOSTILE}.json").write_text(state(checkout, "own"))
    assert run(checkout, tmp_path, victim=None, result="failure") == 0
    assert set(published(checkout)) == {"stacks/hostile.json"}


def secret(checkout: Checkout) -> Path:
    file = checkout.root.parent / "secret"
    file.write_text(state(checkout, "secret"))
    return file


def sparse(file: Path) -> None:
    """A file of 20 GB that takes no space."""
    with file.open("wb") as opened:
        opened.truncate(20_000_000_000)


REFUSED: dict[str, Callable[[Path, Checkout], object]] = {
    "link": lambda file, checkout: file.symlink_to(secret(checkout)),
    "link to a folder": lambda file, checkout: file.symlink_to(checkout.root),
    "link to nothing": lambda file, _: file.symlink_to("nothing"),
    "pipe": lambda file, _: os.mkfifo(file),
    "folder": lambda file, _: file.mkdir(),
    "huge": lambda file, _: sparse(file),
    "deep": lambda file, _: file.write_text("[" * 1_000_000),
    "text": lambda file, _: file.write_text("\x1b[2Jnone"),
    "bytes": lambda file, _: file.write_bytes(b"\xff\xfe"),
    "digits": lambda file, _: file.write_text("9" * 100_000),
    "list": lambda file, _: file.write_text("[]"),
    "option": lambda file, _: file.write_text('{"commit": "--upload-pack=x"}'),
    "another commit": lambda file, _: file.write_text(json.dumps({"commit": "0" * 40})),
    "no commit": lambda file, _: file.write_text("{}"),
    "nothing": lambda *_: None,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_record_stops_no_other_stack(
    kind: str, checkout: Checkout, artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    REFUSED[kind](artifact / f"{HOSTILE}.json", checkout)
    assert run(checkout, tmp_path) == 1
    assert set(published(checkout)) == {"stacks/victim.json"}
    error = capsys.readouterr().err
    assert error.startswith("stack hostile: its job left no record of ")
    assert len(error.splitlines()) == 1
    assert "\x1b" not in error


def test_linked_artifact_is_no_record(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{HOSTILE}.json").write_text(state(checkout, "elsewhere"))
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / f"published-{HOSTILE}").symlink_to(elsewhere)
    assert record.run(argparse.Namespace(folder=tmp_path / "published", result="failure")) == 1
