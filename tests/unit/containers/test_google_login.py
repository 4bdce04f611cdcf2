"""Logins to Google Artifact Registry, against a Google that may lie, requested just before a push."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci import identity
from containers.errors import SlipwayError
from containers.registry.credentials import Login
from containers.registry.logins import google_login, stack_login, token_request
from stacks import flavors
from stacks.config.registries.gar import GarRegistryConfig
from tests.fakes.google import ACCOUNT, CLAIMS, FOREIGN, PROVIDER, Google, jwt
from tests.fakes.loopback import serving
from tests.fakes.pulumi_mocks import SECRET, run

HOST = "europe-docker.pkg.dev"
GAR = {"kind": "gar", "repository": f"{HOST}/acme-ml/images"}
CONDITION = " && ".join(f"assertion.{claim} == '{CLAIMS[claim]}'" for claim in ("repository_id", "environment", "ref"))
PERSON = {"type": "authorized_user", "client_id": "id", "client_secret": "hush", "refresh_token": "1//mine"}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any login; return the folder of gcloud's settings."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    for name in (*google_login.VARIABLES, "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(google_login, "_PRODUCT", tmp_path / "product_name")
    return tmp_path


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Google on loopback; return its address."""
    monkeypatch.setattr(token_request, "_PAUSE", 0.01)
    for name, value in {"condition": CONDITION, "requests": [], "lies": {}, "issued": set()}.items():
        monkeypatch.setattr(Google, name, value)
    with serving(Google) as address:
        iam = google_login.IMPERSONATE.removeprefix("https://iamcredentials.googleapis.com")
        monkeypatch.setattr(google_login, "STS", f"http://{address}/v1/token")
        monkeypatch.setattr(google_login, "IMPERSONATE", f"http://{address}{iam}")
        monkeypatch.setattr(google_login, "_OAUTH", f"http://{address}/token")
        yield address


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: str) -> Path:  # noqa: ARG001 - its addresses
    """A job of GitHub with the credentials that `ci` writes; return the file of its token."""
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", ACCOUNT)
    token = tmp_path / "token"
    token.write_text(jwt())
    file = tmp_path / "credentials"
    file.write_text(json.dumps(identity._of_google(PROVIDER, str(token))))
    monkeypatch.setenv(google_login.VARIABLES[0], str(file))
    return token


def refused(*hidden: str) -> str:
    with pytest.raises(SlipwayError, match="^slipway:registry: ") as caught:
        google_login.login(HOST)
    message = str(caught.value)
    assert message.isprintable()
    assert not [each for each in hidden if each in message]
    return message


@pytest.mark.usefixtures("job")
def test_google_login_of_a_job_is_its_service_accounts() -> None:
    assert google_login.login(HOST) == ("oauth2accesstoken", "access-1")
    assert [path for path, _ in Google.requests] == [
        "/v1/token",
        f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken",
    ]
    assert google_login.login("us-docker.pkg.dev")[1] == "access-3"


@pytest.mark.parametrize("whose", FOREIGN)
def test_google_login_with_a_foreign_token_is_refused(job: Path, whose: str) -> None:
    job.write_text(token := jwt(**FOREIGN[whose]))
    assert refused(token).endswith("The given credential is rejected by the attribute condition.")
    assert len(Google.requests) == 1


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "sts.amazonaws.com"}, "The audience in ID Token [sts.amazonaws.com] does not match the expected"),
        ({"exp": 1}, "ID Token is stale to sign-in."),
    ],
)
def test_google_login_with_a_wrong_token_says_why(job: Path, claims: dict[str, Any], reason: str) -> None:
    job.write_text(token := jwt(**claims))
    assert reason in refused(token)


def test_google_login_as_an_account_of_others_is_refused(job: Path) -> None:
    file = job.with_name("credentials")
    file.write_text(file.read_text().replace(ACCOUNT, "owner@acme-ml.iam.gserviceaccount.com"))
    assert "Permission 'iam.serviceAccounts.getAccessToken' denied" in refused(job.read_text(), "federated-0")


IMPERSONATION = f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"


@pytest.mark.parametrize("path", ["/v1/token", IMPERSONATION])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((403, b"<html><h1>Error 403 (Forbidden)"), "JSONDecodeError: Expecting value"),
        ((200, b"<html>Sign in to the portal"), "JSONDecodeError: Expecting value"),
        ((200, {}), "KeyError: "),
        ((200, {"access_token": None, "accessToken": 1}), "ValueError: what it gives is no token"),
        ((200, {"access_token": "a\r\nX: b", "accessToken": "a b"}), "ValueError: what it gives is no token"),
        ((307, {}), "KeyError: "),
        ((400, {"error": "invalid_grant"}), "invalid_grant"),
        ((400, {"error": {"message": {"a": "\x1b[2J"}}}), "{'a': "),
        ((503, {"error": {"message": "later"}}), "later"),
        ((400, []), "AttributeError: "),
    ],
)
def test_google_lying_is_one_line_without_secrets(job: Path, path: str, answer: tuple[int, Any], reason: str) -> None:
    Google.lies[path] = answer
    assert reason in refused(job.read_text(), "federated-0")


@pytest.mark.parametrize("path", ["/v1/token", IMPERSONATION])
def test_google_repeating_a_secret_is_not_repeated(job: Path, path: str) -> None:
    echo = f"bad token {job.read_text()}, federated-0"
    Google.lies[path] = 400, {"error_description": echo}
    assert "bad token " in refused("federated-0" if path == IMPERSONATION else job.read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"token_url": "https://evil.example/v1/token"},
        {"token_url": "https://sts.googleapis.com.evil.example/v1/token"},
        {"service_account_impersonation_url": "https://evil.example/x:generateAccessToken"},
        {"service_account_impersonation_url": google_login.IMPERSONATE.format("a/../b")},
        {"service_account_impersonation_url": 5},
        {"credential_source": {"url": "http://169.254.169.254/"}},
        {"credential_source": {"executable": {"command": "id"}}},
        {"credential_source": {"file": "/nowhere"}},
        {"credential_source": None},
        {"audience": None},
        {"type": "service_account", "private_key": "hush"},
        {"type": None},
    ],
)
def test_google_credentials_of_another_kind_ask_nobody(job: Path, change: dict[str, Any]) -> None:
    """The job's token goes to Google alone, and no program or address of the file is used."""
    file = job.with_name("credentials")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    message = refused(job.read_text(), "hush")
    assert str(file) in message or "/nowhere" in message or "audience" in change
    assert [path for path, _ in Google.requests] == (["/v1/token"] if "audience" in change else [])


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", "\x00", '{"type": "external_account"}', "[" * 100_000])
def test_google_credentials_malformed_are_one_line(job: Path, text: str) -> None:
    job.with_name("credentials").write_text(text)
    assert "credentials: expected credentials of Google as JSON: " in refused()


def test_google_credentials_that_are_not_there_are_one_line(job: Path) -> None:
    job.with_name("credentials").unlink()
    assert refused().endswith("/credentials: No such file or directory")


def test_token_in_json_is_read_as_its_format_says(job: Path) -> None:
    job.write_text(json.dumps({"value": job.read_text()}))
    file = job.with_name("credentials")
    credentials = json.loads(file.read_text())
    credentials["credential_source"]["format"] = {"type": "json", "subject_token_field_name": "value"}
    del credentials["service_account_impersonation_url"]
    file.write_text(json.dumps(credentials))
    assert google_login.login(HOST)[1] == "federated-0"


@pytest.mark.usefixtures("cloud")
def test_google_login_of_a_person_is_gclouds(machine: Path) -> None:
    assert not google_login.available()
    file = machine / "application_default_credentials.json"
    file.write_text(json.dumps(PERSON))
    assert google_login.available()
    assert google_login.login(HOST) == ("oauth2accesstoken", "access-0")
    file.write_text(json.dumps({**PERSON, "refresh_token": "1//old"}))
    message = refused("hush", "1//old")
    assert message.startswith(f"slipway:registry: login with {file} failed: ")
    assert message.endswith("/token: Token has been expired or revoked.")


@pytest.mark.usefixtures("job")
def test_google_login_sends_no_password_of_a_netrc(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "netrc").write_text("default login me password hush\n")
    monkeypatch.setenv("NETRC", str(machine / "netrc"))
    assert google_login.login(HOST)[1] == "access-1"


@pytest.mark.usefixtures("cloud")
def test_google_login_is_looked_for_without_a_home(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", "~nobody-of-this-name/gcloud")
    assert not google_login.available()
    (machine / "product_name").write_text("Google Compute Engine\n")
    assert google_login.available()


def test_google_login_of_a_machine_is_its_own(machine: Path, cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "product_name").write_text("Google Compute Engine\n")
    assert google_login.available()
    monkeypatch.setenv("GCE_METADATA_HOST", cloud)
    assert google_login.login(HOST) == ("oauth2accesstoken", "access-0")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where a proxy would be asked for the token, and nobody is
    assert google_login.login(HOST) == ("oauth2accesstoken", "access-1")
    Google.lies[google_login._METADATA.format("")[len("http://") :]] = 404, {"error": "not found"}
    assert refused().startswith("slipway:registry: login with this machine's identity failed: http://")


def registry(**given: str) -> GarRegistryConfig:
    loaded = flavors.load({"flavor": "local", "registry": {**GAR, **given}}, "stack t").registry
    assert isinstance(loaded, GarRegistryConfig)
    return loaded


def test_google_login_is_wanted_where_there_is_no_other(machine: Path) -> None:
    with pytest.raises(
        SlipwayError, match=rf"no credentials for {HOST}: .*set \$GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud"
    ):
        stack_login.check(registry())
    key = registry(username="_json_key_base64", password="hush")
    stack_login.check(key)
    (machine / "application_default_credentials.json").write_text(json.dumps(PERSON))
    stack_login.check(registry())
    assert stack_login.short_lived(registry())
    assert stack_login.short_lived(key) is None
    (machine / "docker").mkdir()
    auth = base64.b64encode(b"_json_key:x").decode()
    (machine / "docker/config.json").write_text(json.dumps({"auths": {HOST: {"auth": auth}}}))
    assert stack_login.short_lived(registry()) is None


@pytest.mark.usefixtures("job")
def test_google_login_is_secret_and_of_each_image(capfd: pytest.CaptureFixture[str]) -> None:
    recorder, values = run(registry=GAR)
    given = [recorder.image(name)["registry"] for name in ("torch", "extras")]
    assert all(one[SECRET] for one in given)
    passwords = {one["value"]["password"] for one in given}
    assert len(passwords) == 2
    assert all(one["value"]["username"] == google_login.USER for one in given)
    assert all(one["value"]["shortLived"] for one in given)
    assert "access-" not in repr(values["outputs"]) + "".join(capfd.readouterr())
    Google.requests.clear()
    recorder, _ = run(registry={**GAR, "username": google_login.USER, "password": "of another"})
    assert "shortLived" not in recorder.image("torch")["registry"]["value"]
    run(registry=GAR, preview=True)
    run(registry=GAR, publish=False)
    assert not Google.requests


@pytest.mark.usefixtures("job")
def test_login_is_renewed_for_registries_of_google_alone() -> None:
    old = Login(HOST, google_login.USER, "old")
    assert stack_login.renewed(old).password == "access-1"
    for other in (Login("evil.example", google_login.USER, "old"), Login(HOST, "_json_key_base64", "key")):
        assert stack_login.renewed(other) is other
    Google.lies["/v1/token"] = 403, {}
    assert stack_login.renewed(old) is old
