"""What `slipway prune` says of the engine's images and build cache, and has the engine delete."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolchain import json_answer
from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine, docker_registry, unused_space

NAMED, USED, COPIED, BARE = (
    {"Repository": repository, "Tag": tag, "ID": f"sha256:{number}", "Size": f"{number}GB"}
    for number, (repository, tag) in enumerate(
        [
            ("r.example/slipway/torch", "1"),
            ("r.example/slipway/torch", "0"),
            ("r.example/docker.io/library/debian", "12"),
            ("<none>", "<none>"),
        ],
        1,
    )
)
NAMED_TAG = "r.example/slipway/torch:1"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the engine is asked, which has four images, of which a container uses one."""
    words: list[list[str]] = []

    def docker(_: Checkout, *given: str) -> str:
        words.append([*given])
        if given[1] == "rm" and given[2].endswith(":0"):
            raise ToolchainError("a container uses it")
        if given[1] == "rm" and given[2] == BARE["ID"]:
            raise ToolchainError(f"Error response from daemon: No such image: {BARE['ID']}")
        return "\n".join(map(json.dumps, (NAMED, USED, COPIED, BARE))) if given[1] == "ls" else ""

    monkeypatch.setattr(unused_space, "_docker", docker)
    monkeypatch.setattr(docker_engine, "daemon", lambda _: SimpleNamespace(pid=lambda: 1))
    monkeypatch.setattr(docker_registry, "own_address", lambda _: None)
    return words


def repository(folder: Path, **outputs: Any) -> Checkout:
    """Return a repository with the state of one stack."""
    checkout = Checkout(folder)
    file = checkout.backend / ".pulumi/stacks/slipway/local.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(outputs))
    return checkout


@pytest.mark.parametrize("deployed", [True, False])
def test_prune_keeps_new_build_cache_while_a_stack_has_images(
    deployed: bool, asked: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository(tmp_path, **({"repoDigest": "r.example/slipway/torch:1"} if deployed else {}))
    unused = {"r.example/slipway/torch:0": "2GB", "sha256:4": "4GB"}
    kept = [["image", "rm", "r.example/slipway/torch:0"]]
    if not deployed:
        unused = {"r.example/slipway/torch:1": "1GB", **unused}
    cache = "build cache that no build used for a week" if deployed else "all build cache, as no stack has images"
    assert unused_space.prune(checkout, delete=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("image ", "engine "))] == [
        *(f"image     {name}  {size}" for name, size in unused.items()),
        f"engine    {len(unused)} images; {cache}",
    ]
    assert lines[-1].endswith("; nothing is deleted: `slipway prune --yes` deletes what is listed")
    assert [words[1] for words in asked] == ["ls"]
    asked.clear()
    assert unused_space.prune(checkout, delete=True) == 0
    filters = ["--filter", "until=168h"] if deployed else []
    assert asked[1:] == [
        *(["image", "rm", name] for name in unused),
        *kept,
        ["builder", "prune", "--all", "--force", *filters],
    ]
    printed = capsys.readouterr().out
    assert "r.example/slipway/torch:0: a container uses it" in printed
    assert "No such image" not in printed, "it went with an image that was built on it"


def test_prune_deletes_an_image_after_those_on_it(
    monkeypatch: pytest.MonkeyPatch, asked: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine lists images of the same second, or of a fixed time, in any order."""
    listed, gone = unused_space._docker, set[str]()

    def docker(checkout: Checkout, *given: str) -> str:
        if given[1] == "rm" and given[2] == NAMED_TAG and BARE["ID"] not in gone:
            raise ToolchainError("conflict: unable to delete 1 (cannot be forced) - image has dependent child images")
        if given[1] == "rm":
            gone.add(given[2])
        return "" if given[1] == "rm" else listed(checkout, *given)

    monkeypatch.setattr(unused_space, "_docker", docker)
    assert unused_space.prune(repository(tmp_path), delete=True) == 0
    assert NAMED_TAG in gone
    assert asked[-1][:2] == ["builder", "prune"]
    assert "dependent child" not in capsys.readouterr().out


def test_prune_as_json_names_what_it_is_to_delete(
    asked: list[list[str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkout = repository(tmp_path, repoDigest="r.example/slipway/torch:1")
    (context := checkout.state / "contexts/0123456789abcdef").mkdir(parents=True)
    with json_answer.apart():
        unused_space.prune(checkout, delete=False, as_json=True)
    listed = json.loads(capfd.readouterr().out)
    assert context.exists()
    assert listed["engine"] == {
        "images": [{"name": "r.example/slipway/torch:0", "size": "2GB"}, {"name": "sha256:4", "size": "4GB"}],
        "cache": "unused for a week",
    }
    assert (listed["registry"], listed["contexts"]["count"], listed["bytesAfter"]) == (None, 1, None)
    assert listed["contexts"]["bytes"] > 0
    asked.clear()
    with json_answer.apart():
        unused_space.prune(checkout, delete=True, as_json=True)
    assert json.loads(capfd.readouterr().out)["bytesAfter"] < listed["bytes"]
    assert not context.exists()
    assert asked


def test_size_of_a_folder_is_told_while_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `du` says it then: a total, and a failure."""
    du = tmp_path / "du"
    du.write_text("#!/bin/sh\necho 'du: cannot access x: No such file or directory' >&2\necho 4096 .\nexit 1\n")
    du.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert unused_space.folder_size(tmp_path) == 4096
    du.unlink()
    assert unused_space.folder_size(tmp_path / "none") == 0
