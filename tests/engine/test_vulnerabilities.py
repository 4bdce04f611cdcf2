"""The gate of known vulnerabilities on real updates: real Grype, a small database, real cosign."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.engine.project import Project
from tests.engine.test_checks import DOCKERFILE, tags
from tests.engine.test_signing import Keys, keys, programs
from tests.fakes.vulnerability_database import Row, write
from tests.images.engine import base_image
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

__all__ = ["keys", "programs"]

BASE = "debian:bookworm-slim"
ROWS = [Row("CVE-2026-0001", "dpkg", "critical", "99"), Row("CVE-2026-0002", "bash", "critical")]
"""A package of every Debian image that a newer one mends, and one that nothing mends."""


@pytest.mark.slow
def test_vulnerable_image_gets_its_tag_with_an_exception(project: Project, keys: Keys, tmp_path: Path) -> None:
    base_image()
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE.replace("PATH", project.path))
    project.write("dockerfiles/link0/checks/10-made", "test -s /made\n")
    database = str(write(tmp_path / "database.tar.gz", ROWS))
    stack = {"base": BASE, "length": 2, "signing": keys.signing(sbom=False, provenance=False)}
    project.configure(**stack, vulnerabilities={"database": database})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "CVE-2026-0001 (critical): dpkg" in failed.output
    assert "fixed in 99" in failed.output
    assert "CVE-2026-0002" not in failed.output
    assert "Traceback" not in failed.output
    assert (tags(project, "link0"), tags(project, "link1")) == ([], [])

    until = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    row = {"id": "CVE-2026-0001", "packages": "dpkg", "reason": "nobody unpacks here", "until": until}
    justified = {**row, "justification": "vulnerable_code_not_in_execute_path"}
    project.configure(**stack, vulnerabilities={"database": database, "exceptions": [justified]})
    project.up()
    outputs = project.outputs()
    ref = outputs["images"]["link0"]["ref"]
    for name in ("link0", "link1"):
        assert [tag for tag in tags(project, name) if not tag.startswith("sha256-")] == [outputs["images"][name]["tag"]]
    text = project.stacks("scan", "t", "link0")
    assert "excepted    CVE-2026-0001 (critical): dpkg" in text
    assert f"until {until}: nobody unpacks here" in text

    words = ["cosign", "verify-attestation", "--type", "https://openvex.dev/ns/v0.2.0", "--insecure-ignore-tlog=true"]
    public = str(keys.private.parent / "cosign.pub")
    answer = subprocess.run([*words, "--key", public, ref], env=project.environment, check=True, capture_output=True)
    (statement,) = json.loads(base64.b64decode(json.loads(answer.stdout)["payload"]))["predicate"]["statements"]
    assert (statement["status"], statement["vulnerability"]) == ("not_affected", {"name": "CVE-2026-0001"})
    assert outputs["signed"]["link0"]["vex"]["attestation"] == ref.replace("@sha256:", ":sha256-") + ".att"

    words[3] = "vuln"
    answer = subprocess.run([*words, "--key", public, ref], env=project.environment, check=True, capture_output=True)
    statement = json.loads(base64.b64decode(json.loads(answer.stdout)["payload"]))
    assert statement["predicateType"] == "https://cosign.sigstore.dev/attestation/vuln/v1"
    matches = statement["predicate"]["scanner"]["result"]["matches"]
    assert {match["vulnerability"]["id"] for match in matches} == {"CVE-2026-0001", "CVE-2026-0002"}
    assert statement["predicate"]["invocation"]["parameters"]["exceptions"] == [justified]
    assert re.search(r"^  scan        \d+ known vulnerabilities on 20", project.stacks("verify", "t"), re.MULTILINE)

    project.configure(**stack, vulnerabilities={"database": database})
    project.up()  # an image that has its tag is not scanned again
    words = [sys.executable, "-m", "stacks", "scan", "t", "link0"]
    refused = subprocess.run(words, cwd=project.root, env=project.environment, check=False, capture_output=True)
    assert refused.returncode == 1
    assert b"refused     CVE-2026-0001 (critical): dpkg" in refused.stdout

    old = str(write(tmp_path / "old.tar.gz", ROWS, days_old=30))
    project.configure(**stack, vulnerabilities={"database": old})
    assert "max allowed age is 5 days" in project.stacks("scan", "t", code=1)


@pytest.fixture
def scanner() -> str:
    """Have Grype, which is all that an unpushed image needs; return a PATH with it."""
    checkout = Checkout.here()
    (tool,) = (tool for tool in supply_chain_programs.TOOLS if tool.name == "grype")
    with golang.caches(checkout):
        folders = supply_chain_programs.get(checkout, tool).path
    return os.pathsep.join([*folders, os.environ["PATH"]])


@pytest.mark.slow
def test_vulnerable_unpushed_image_ends_the_update(project: Project, scanner: str, tmp_path: Path) -> None:
    base_image()
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE.replace("PATH", project.path))
    project.write("dockerfiles/link0/checks/10-made", "test -s /made\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    project.environment |= {"PATH": scanner, "TMPDIR": str(temporary)}
    database = str(write(tmp_path / "database.tar.gz", ROWS))
    stack = {"base": BASE, "length": 2, "publish": False}
    project.configure(**stack, vulnerabilities={"database": database})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "link0:" in failed.output
    assert "ends the update because of a vulnerability, by the database of 20" in failed.output
    assert "CVE-2026-0001 (critical): dpkg" in failed.output
    assert "CVE-2026-0002" not in failed.output
    assert "Traceback" not in failed.output
    state = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)["deployment"]["resources"]
    assert "link1" not in {each["urn"].rpartition("::")[2] for each in state if each["type"].startswith("docker:")}
    assert not [each.name for each in temporary.iterdir() if each.name.startswith(("slipway-", "stereoscope-"))]

    until = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    row = {"id": "CVE-2026-0001", "packages": "dpkg", "reason": "nobody unpacks here", "until": until}
    project.configure(**stack, vulnerabilities={"database": database, "exceptions": [row]})
    project.up()
    assert project.outputs()["images"]["link1"]["ref"].startswith("sha256:")
    assert not project.published("link0")
    project.configure(**stack, vulnerabilities={"database": database})
    project.up()  # an image that is not built again is not scanned again
