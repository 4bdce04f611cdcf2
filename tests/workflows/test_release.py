"""A release as its workflow publishes it: what `slipway init` and `slipway upgrade` then expect of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import workflow
from toolchain import verbs
from toolchain.release import own_repository
from toolchain.release.upgrade import ReleaseWheel


@pytest.fixture(autouse=True)
def github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/slipway")


def test_release_has_the_names_that_upgrade_and_init_pin(tmp_path: Path) -> None:
    version = own_repository.version()
    assert verbs.main(["release", f"v{version}", str(tmp_path)]) == 0
    pinned = own_repository._PIN.fullmatch((tmp_path / "requirements.txt").read_text().rstrip("\n"))
    assert pinned
    (file,) = tmp_path.glob("*.whl")
    address = pinned["release"]
    assert address == f"https://github.com/acme/slipway/releases/download/v{version}/{file.name}"
    wheel = ReleaseWheel.read(file, address)
    assert (wheel.version, wheel.digest, wheel.source) == (version, pinned["hash"], f"slipway @ {address}")
    assert f"/slipway-{version}-" in address  # as `check_pin` reads the version, where pip records no hash


def test_release_of_another_version_builds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verbs.main(["release", "v9.9.9", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"slipway: release: the tag 'v9.9.9' is not v{own_repository.version()}, which "
    )
    assert not [*tmp_path.iterdir()]


def test_release_publishes_what_was_built_and_tested() -> None:
    jobs = workflow(ROOT, "release.yml")["jobs"]
    built, sent = jobs["wheel"]["steps"], jobs["release"]["steps"]
    assert jobs["release"]["needs"] == ["test", "wheel"]
    assert built[-1]["with"]["name"] == sent[0]["with"]["name"]
    assert {built[-1]["with"]["path"], sent[0]["with"]["path"]} == {"dist"}
    assert [step["uses"].partition("@")[0] for step in sent[:-1]] == [
        "actions/download-artifact",
        "actions/attest-build-provenance",
    ]
    assert sent[-1]["run"].endswith(" dist/*")
