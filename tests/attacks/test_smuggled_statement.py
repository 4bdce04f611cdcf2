"""A build that is made to lie, and a caller that forges what the job ``attest`` is given. By the real cosign."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from ci import arguments
from cli.verify import Evidence
from stacks.config.signing import SigningConfig
from tests.attacks.test_claimed_level import CLAIMS, COMMIT, ISSUER, MAIN, PROVENANCE, SOURCE
from tests.fakes.loopback import LoopbackServer, run_server
from tests.helpers import pushed_image
from tests.helpers.fulcio import Fulcio
from tests.provider.conftest import private_registry

pytestmark = pytest.mark.slow

WORKFLOW = "acme/builder/.github/workflows/attest.yml@refs/tags/v1.2.0"
IDENTITY = f"https://github.com/{WORKFLOW}"
HOSTED, OWN = "GitHub Actions", "Default"


class Attesting:
    """The job ``attest``, its run's other jobs, and the statements that it is given."""

    def __init__(self, folder: Path, address: str, jobs: list[dict[str, Any]]) -> None:
        self._folder, self.address, self.jobs = folder, address, jobs
        self.ref = pushed_image.push(f"{address}/acme/torch:1")
        (folder / "stacks").mkdir()
        registry = {"kind": "generic", "repository": f"{address}/acme"}
        signing = {"identity": IDENTITY, "issuer": ISSUER, "repository": "acme/images", "ref": MAIN}
        config = {"slipway:flavor": "local", "slipway:registry": registry, "slipway:signing": signing}
        (folder / "stacks/Pulumi.local.yaml").write_text(json.dumps({"config": config}))

    def run(self, *statements: dict[str, Any], digest: str = "") -> int:
        text = "".join(json.dumps(statement) + "\n" for statement in statements)
        file = self._folder / "statements"
        file.write_text(text)
        digest = digest or hashlib.sha256(text.encode()).hexdigest()
        words = ["attest", "local", "--statements", str(file), "--digest", digest, "--source", str(self._folder)]
        return arguments.main([*words, "--runner", '["ubuntu-24.04"]'])

    def provenance(self, **more: Any) -> dict[str, Any]:
        """Return the statement of a build that lies about all that GitHub knows better."""
        states = copy.deepcopy(dict(PROVENANCE))
        definition = states["buildDefinition"]
        definition["externalParameters"]["configSource"]["uri"] = "git+https://github.com/acme/reviewed"
        definition["externalParameters"]["configSource"]["digest"] = {"sha1": "d" * 40}
        definition["externalParameters"]["inputs"] = {"stack": "other", "image": "other"}
        definition["internalParameters"] |= {"ref": "refs/tags/v9", "isolation": {"workflow": "x", "machine": "x"}}
        definition["resolvedDependencies"] = []
        states["runDetails"]["builder"]["id"] = "https://github.com/acme/other/.github/workflows/x.yml@refs/tags/v1"
        return {"ref": self.ref, "kind": "provenance", "states": states, **more}

    def level(self) -> str:
        """Return what `slipway verify` prints of the image's level."""
        signing = {"identity": IDENTITY, "issuer": ISSUER, "repository": "acme/images", "ref": MAIN, "sbom": False}
        return Evidence(self.ref, SigningConfig.model_validate(signing), None, ()).facts()[-1][1]


@pytest.fixture
def attesting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attesting]:
    """The job in a run of acme/images, whose build ran on a machine of GitHub's."""
    fulcio = Fulcio.trusted(tmp_path, monkeypatch)
    fulcio.certify({**CLAIMS, "workflow": IDENTITY, "signer": IDENTITY})
    jobs = [{"labels": ["ubuntu-24.04"], "runner_group_name": HOSTED}]

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path.startswith("/repos/acme/images/actions/runs/7/attempts/1/jobs?")
            content = json.dumps({"total_count": len(jobs), "jobs": jobs}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: object) -> None:
            return

    (tmp_path / "registry").mkdir()
    (tmp_path / "source").mkdir()
    with private_registry(tmp_path / "registry") as registry, run_server(LoopbackServer(Api)) as server:
        for name, value in {
            "GITHUB_API_URL": server.url, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/images",
            "GITHUB_SHA": COMMIT, "GITHUB_REF": MAIN, "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_TOKEN": "t", "SLIPWAY_WORKFLOW": WORKFLOW,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield Attesting(tmp_path / "source", registry.address, jobs)


def test_lying_build_gets_what_github_knows(attesting: Attesting) -> None:
    signature = {"ref": attesting.ref, "kind": "signature", "states": {"tag": "1", "fingerprint": "f"}}
    assert attesting.run(signature, attesting.provenance()) == 0
    assert attesting.level() == (
        f"build level 3: attested by a job that builds nothing, of {IDENTITY}, which {SOURCE} cannot change"
    )


@pytest.mark.parametrize(
    "more",
    [
        [{"labels": ["ubuntu-24.04"], "runner_group_name": OWN}],  # any label can be given to a runner of one's own
        [{"labels": ["ubuntu-24.04"], "runner_group_name": None}],
    ],
)
def test_runner_of_ones_own_with_github_label_is_level_one(attesting: Attesting, more: list[dict[str, Any]]) -> None:
    attesting.jobs += more
    assert attesting.run(attesting.provenance()) == 0
    assert "build level 1: it was built on a runner of one's own" in attesting.level()


def test_statements_that_the_build_did_not_output_are_refused(
    attesting: Attesting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attesting.run(attesting.provenance(), digest="0" * 64) == 1
    assert "this is not what the job that built the stack has output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ref": "ghcr.io/mallory/x@sha256:" + "a" * 64}, "is not an image of "),
        ({"ref": "/acme/torch:1"}, "is not an image of "),
        ({"kind": "custom"}, "is not a kind of statement"),
        ({"states": {}}, "another shape"),
        ({"states": None}, "another shape"),
    ],
)
def test_statement_of_another_image_or_shape_is_refused(
    attesting: Attesting, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    assert attesting.run(attesting.provenance(**change)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_stack_that_requires_another_signer_is_refused(
    attesting: Attesting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_WORKFLOW", "mallory/builder/.github/workflows/attest.yml@refs/tags/v1.2.0")
    assert attesting.run(attesting.provenance()) == 1
    assert "which signs here" in capsys.readouterr().err
