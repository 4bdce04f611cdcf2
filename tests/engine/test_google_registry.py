"""A stack of the kind `gar`, from its YAML to the push: a real registry takes the tokens of a stand-in of Google alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import requests

from ci import identity
from containers.registry.logins import google_login
from tests.engine.project import Project
from tests.fakes.google import ACCOUNT, CLAIMS, FOREIGN, PROVIDER, Google, jwt
from tests.fakes.loopback import serving
from tests.provider.conftest import _HTPASSWD, PASSWORD, USER, private_registry


class OneToken(Google):
    """A Google whose tokens for registries are the one that the registry takes."""

    condition = f"assertion.repository_id == '{CLAIMS['repository_id']}' && assertion.environment == 'publish'"

    def _issue(self, kind: str) -> str:
        token = PASSWORD if kind == "access" else kind
        self.issued.add(token)
        return token


def move(project: Project, google: str, token: Path) -> None:
    """Put the copied program's Google on loopback, and the job's credentials beside its token."""
    iam = google_login.IMPERSONATE.replace("https://iamcredentials.googleapis.com", f"http://{google}")
    addresses = {"STS": f"http://{google}/v1/token", "IMPERSONATE": iam}
    module = project.root / "containers/registry/logins/google_login.py"
    host = 'HOSTS = re.compile(r"(?P<multi>127[.]0[.]0[.]1):(?P<region>[0-9]+)")'
    lines = [host, *(f"{name} = {address!r}" for name, address in addresses.items())]
    module.write_text("\n".join([module.read_text(), *lines, ""]))
    credentials = json.dumps(identity._of_google(PROVIDER, str(token)))
    credentials = credentials.replace(google_login.STS, addresses["STS"])
    file = token.with_name("credentials")
    file.write_text(credentials.replace("https://iamcredentials.googleapis.com", f"http://{google}"))
    project.environment[google_login.VARIABLES[0]] = str(file)


def test_stack_of_google_is_pushed_by_the_jobs_own_token(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setattr(Google, "requests", [])
    token = tmp_path / "token"
    token.write_text(jwt())
    (tmp_path / "registry").mkdir()
    with (
        serving(OneToken) as google,
        private_registry(tmp_path / "registry", htpasswd=_HTPASSWD.replace(USER, google_login.USER)) as registry,
    ):
        move(project, google, token)
        place = f"{registry.address}/acme-ml/images"
        project.configure(registry={"kind": "gar", "repository": place})
        assert "GarRegistry" in project.preview().output
        assert not Google.requests
        printed = project.up().output
        ref = next(iter(re.findall(rf"{re.escape(place)}/link0@sha256:[0-9a-f]+", json.dumps(project.outputs()))))
        name, _, digest = ref.partition("/")[2].partition("@")
        url = f"http://{registry.address}/v2/{name}"
        login = (google_login.USER, PASSWORD)
        assert requests.get(f"{url}/manifests/{digest}", timeout=10).status_code == 401
        assert requests.get(f"{url}/manifests/{digest}", auth=login, timeout=10).ok
        for text in (printed, project.pulumi("stack", "export", "-s", "t").stdout):
            assert not [secret for secret in (PASSWORD, token.read_text()) if secret in text]

        tags = requests.get(f"{url}/tags/list", auth=login, timeout=10).json()
        token.write_text(foreign := jwt(**FOREIGN["a pull request in a fork"]))
        project.configure(registry={"kind": "gar", "repository": place}, word="two")
        refused = project.up(check=False)
        assert refused.returncode
        assert "failed: " in refused.output
        assert "The given credential is rejected by the attribute condition." in refused.output
        assert foreign not in refused.output
        assert "Traceback" not in refused.output
        assert requests.get(f"{url}/tags/list", auth=login, timeout=10).json() == tags
