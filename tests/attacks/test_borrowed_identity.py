"""A stranger calls the public workflow that publishes, to sign images of its own as the repository that it belongs to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from containers.evidence import cosign
from stacks.config.signing import SignerConfig
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import WORKFLOWS, Actions, Event, Run
from tests.helpers import pushed_image
from tests.helpers.fulcio import Fulcio
from tests.provider.conftest import private_registry

ISSUER = "https://token.actions.githubusercontent.com"
WORKFLOW = "https://github.com/acme/slipway/.github/workflows/up.yml@refs/heads/main"
MAIN = "refs/heads/main"


def called_by(folder: Path, name: str, ref: str, workflow: str = "up.yml") -> Run:
    """Run a workflow of acme/slipway's main branch, called by a repository whose checkout has a program of its own."""
    repository, remote = folder / "work", folder / "remote.git"
    shutil.copytree(ROOT / WORKFLOWS, repository / WORKFLOWS)
    for file in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, repository)
    (repository / "toolchain").mkdir()
    (repository / "toolchain/__init__.py").touch()
    (repository / "toolchain/__main__.py").write_text("print('whatever I sign is signed as up.yml')\n")
    git = ["git", "-C", str(repository), "-c", "user.name=m", "-c", "user.email=m@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "mine"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", repository, remote], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "actions").mkdir()
    actions = Actions(folder / "actions", remote, {}, name=name, workflows=f"acme/slipway@{MAIN}")
    return actions.run(workflow, Event("push", ref, sha), inputs={"stack": "local", "runner": '["mine"]'})


@pytest.mark.parametrize(
    ("name", "ref"), [("mallory/copy", MAIN), ("acme/slipway", "refs/heads/topic"), ("acme/slipway-2", MAIN)]
)
def test_foreign_caller_of_up_runs_nothing(tmp_path: Path, name: str, ref: str) -> None:
    run = called_by(tmp_path, name, ref)
    assert "whatever I sign" not in run.log
    assert run.results == {"caller": "failure", "native": "skipped", "up": "skipped"}


@pytest.mark.parametrize(("name", "ref"), [("mallory/copy", MAIN), ("acme/slipway", "refs/heads/topic")])
def test_foreign_caller_of_attest_at_a_branch_signs_nothing(tmp_path: Path, name: str, ref: str) -> None:
    run = called_by(tmp_path, name, ref, "attest.yml")
    assert "whatever I sign" not in run.log
    assert run.results == {
        "build / caller": "failure",
        "build / native": "skipped",
        "build / up": "skipped",
        "attest": "skipped",
    }


def test_caller_of_attest_runs_its_program_in_the_build_alone(tmp_path: Path) -> None:
    run = called_by(tmp_path, "acme/slipway", MAIN, "attest.yml")
    assert "whatever I sign" in run.job("build / up").log
    assert run.results["attest"] == "skipped"  # it states nothing to be signed


def test_own_caller_of_up_runs_its_program(tmp_path: Path) -> None:
    assert "whatever I sign" in called_by(tmp_path, "acme/slipway", MAIN).job("up").log


@pytest.mark.slow
def test_identity_counts_with_its_repository_and_ref(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fulcio = Fulcio.trusted(tmp_path, monkeypatch)
    (tmp_path / "registry").mkdir()
    signer = SignerConfig.model_validate({"identity": WORKFLOW, "issuer": ISSUER})
    own = {"workflow": WORKFLOW, "issuer": ISSUER, "repository": "acme/slipway", "ref": MAIN}
    with private_registry(tmp_path / "registry") as registry:
        image = pushed_image.push(f"{registry.address}/mine/image:1")
        for foreign in (
            {"repository": "mallory/copy"},
            {"ref": "refs/pull/1/merge"},
            {"issuer": "https://issuer.mallory.example"},
            {"workflow": WORKFLOW.replace("acme", "mallory")},
        ):
            fulcio.sign(image, {**own, **foreign})
            with pytest.raises(cosign.Unsigned):
                cosign.verify(image, signer, None)
        fulcio.sign(image, own)
        cosign.verify(image, signer, None)
        shared = {"identity": WORKFLOW, "issuer": ISSUER, "repository": "acme/other"}
        with pytest.raises(cosign.Unsigned):
            cosign.verify(image, SignerConfig.model_validate(shared), None)
