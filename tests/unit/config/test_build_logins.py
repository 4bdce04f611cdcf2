"""``slipway:buildSecrets``: what is accepted, what each mistake says, and the file that builds read."""

from __future__ import annotations

import netrc
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.checks.secrets import check_clear_text, secret_keys
from stacks.config.fetching.build_logins import BuildLoginConfig, netrc_files, passwords
from stacks.config.fetching.build_logins import netrc as netrc_of
from stacks.config.model import ANY_NAME, keys
from tests.helpers.every import every

HOST = "pypi.example.com"
MIRRORS = {"pythonIndex": f"https://{HOST}/simple"}


def config(logins: Any, mirrors: Any = MIRRORS) -> Any:
    return plan.specs({"flavor": "local", "mirrors": mirrors, "buildSecrets": logins}, "stack t")[0]


def test_logins_become_a_netrc_that_python_reads(tmp_path: Path) -> None:
    logins = config(
        {
            HOST.upper(): {"username": "__token__", "password": "pypi-A.b_c/d+e=!$&%*"},
            "git.test": {"username": "u", "password": "p#"},
        }
    ).build_secrets
    file = tmp_path / "netrc"
    file.write_text(netrc_of(logins, passwords(logins)))
    read = netrc.netrc(str(file))
    assert read.authenticators(HOST) == ("__token__", "", "pypi-A.b_c/d+e=!$&%*")
    assert read.authenticators("git.test") == ("u", "", "p#")


def test_step_gets_logins_of_its_sources_alone() -> None:
    """An archive's own scripts run as root in the step that installs it, and the rest of that step may be another's."""
    hosts = {"apt.test", "get.test", "git.test", "pypi.test", "wheels.test", "files.test"}
    stack = config(
        {host: {"username": "u", "password": "p"} for host in hosts},
        {
            "apt": "https://apt.test:8443/debian",
            "downloads": {"https://developer.download.nvidia.com": "https://get.test/nvidia"},
            "git": "https://git.test",
            "pythonIndex": "https://pypi.test/simple",
            "torchIndex": "https://wheels.test/torch",
        },
    )
    files = netrc_files(stack.build_secrets, passwords(stack.build_secrets), stack.mirrors)
    lent = {name: {line.split()[1] for line in text.splitlines()} for name, text in files.items()}
    archives, index, elsewhere = {"apt.test", "get.test"}, {"pypi.test", "wheels.test"}, {"files.test"}
    assert lent == {
        "netrc": hosts,
        "netrc-downloads": archives | elsewhere,
        "netrc-git": {"git.test"} | elsewhere,
        "netrc-index": index | elsewhere,
        "netrc-downloads-git": archives | {"git.test"} | elsewhere,
        "netrc-downloads-index": archives | index | elsewhere,
        "netrc-git-index": index | {"git.test"} | elsewhere,
        "netrc-downloads-git-index": hosts,
    }
    (line,) = [line for line in stack.warnings if "buildSecrets" in line]
    assert line == (
        "slipway:buildSecrets: files.test: no address in slipway:mirrors is of that host: "
        "each step that fetches gets the login"
    )


def test_source_without_a_login_has_no_secret() -> None:
    stack = config({HOST: {"username": "u", "password": "p"}}, {"pythonIndex": f"https://{HOST}/simple"})
    files = netrc_files(stack.build_secrets, passwords(stack.build_secrets), stack.mirrors)
    assert files.keys() == {
        "netrc", "netrc-index", "netrc-downloads-index", "netrc-git-index", "netrc-downloads-git-index"
    }  # fmt: skip


def test_password_is_read_from_variable_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("INDEX_TOKEN", "from-variable")
    logins = {
        "a.test": BuildLoginConfig(username="u", variable="INDEX_TOKEN"),
        "b.test": BuildLoginConfig(username="u", file=str(tmp_path / "token")),
    }
    assert passwords(logins) == {"a.test": "from-variable", "b.test": "from-file"}


@every(
    "logins, message",
    [
        (
            {f"{HOST}:8443": {"username": "u", "password": "p"}},
            f"a login is that of a host, whatever the port: write {HOST}",
        ),
        ({f"https://{HOST}": {"username": "u", "password": "p"}}, "expected a host's name, such as pypi.example.com"),
        ({"a b": {"username": "u", "password": "p"}}, "expected a host's name"),
        ({"a\nmachine": {"username": "u", "password": "p"}}, "expected a host's name"),
        ({HOST: {"password": "p"}}, "is required"),
        ({HOST: {"username": "u"}}, "expected one of password, variable and file, not none of them"),
        ({HOST: {"username": "u", "password": "p", "file": "f"}}, "not password and file"),
        ({HOST: {"username": "u v", "password": "p"}}, "a user name of ASCII without blanks"),
        ({HOST: {"username": "u", "variable": "canary-value"}}, "the name of an environment variable"),
        ({HOST: {"username": "u", "passwort": "canary-value"}}, "did you mean 'password'?"),
        ({HOST: "canary-value"}, "expected a mapping"),
        (
            {name: {"username": "u", "password": "canary-value"} for name in (HOST, HOST.upper())},
            "two logins of one host",
        ),
    ],
)
def test_login_mistake_is_one_line_without_secret(logins: Any, message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        config(logins)
    text = str(caught.value)
    assert message in text
    assert "slipway:buildSecrets" in text
    assert "\n" not in text
    assert "canary-value" not in text


def test_login_over_plain_http_is_refused() -> None:
    logins = {HOST: {"username": "u", "password": "canary-value"}}
    with pytest.raises(SlipwayError, match=r"would be sent in clear text to http://pypi\.example\.com") as caught:
        config(logins, {"pythonIndex": f"http://{HOST}/simple", "torchIndex": f"https://{HOST}/torch"})
    assert "canary-value" not in str(caught.value)
    config({"127.0.0.1": {"username": "u", "password": "p"}}, {"pythonIndex": "http://127.0.0.1:8080/simple"})


def test_login_of_host_without_mirror_is_a_warning() -> None:
    logins = {HOST: {"username": "u", "password": "p"}, "other.test": {"username": "u", "password": "p"}}
    assert [line for line in config(logins).warnings if "other.test" in line and HOST not in line]


@every("value", ["two words", "new\nmachine x login y password z", 'qu"ote', "#comment", "ü", "back\\slash"])
def test_password_that_netrc_has_not_is_refused(value: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        passwords({HOST: BuildLoginConfig(username="u", password=value)})
    assert HOST in str(caught.value)
    assert value not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_password_source_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDEX_TOKEN", raising=False)
    for login, message in (
        (BuildLoginConfig(username="u", variable="INDEX_TOKEN"), "$INDEX_TOKEN is not set"),
        (BuildLoginConfig(username="u", file=str(tmp_path / "none")), "No such file or directory"),
        (BuildLoginConfig(username="u", file=str(tmp_path)), "Is a directory"),
        (BuildLoginConfig(username="u", file="~nobody-such/token"), "there is no home directory of ~nobody-such/token"),
    ):
        with pytest.raises(SlipwayError) as caught:
            passwords({HOST: login})
        assert str(caught.value).startswith(f"slipway:buildSecrets: {HOST}: ")
        assert message in str(caught.value)


def test_password_in_clear_text_below_host_is_refused() -> None:
    written = {"buildSecrets": {HOST: {"username": "u", "password": "hunter2"}}}
    with pytest.raises(SlipwayError) as caught:
        check_clear_text(written, "stack t")
    key = f'slipway:buildSecrets["{HOST}"].password'
    assert key in str(caught.value)
    assert f"`pulumi config set --secret --path '{key}'`" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    check_clear_text({"buildSecrets": {HOST: {"username": "u", "password": {"secure": "v1:abc"}}}}, "stack t")
    assert "buildSecrets.*.password" in secret_keys()


def test_secret_in_any_other_key_is_refused() -> None:
    """A program has it decrypted, and the state would show it: only keys that hold a secret, or go with one, keep it."""
    taken = set()
    for model in {flavors.flavor(name).Config for name in flavors.names()}:
        for key, _ in keys(model):
            written: Any = {"secure": "v1:abc"}
            for part in reversed(key.split(".")):
                written = {"a.example" if part == ANY_NAME else part: written}
            try:
                check_clear_text(written, "stack t")
                taken.add(key)
            except SlipwayError as error:
                shown = key.replace(ANY_NAME, "a.example")
                assert str(error).startswith(f"stack t: slipway:{shown}: is a secret, which the state would hold in"), (
                    key
                )
    assert taken == {
        "registry.password",
        "buildSecrets.*.password",
        "runners.github.app.id",
        "runners.github.app.installation",
        "runners.github.app.privateKey",
        "runners.github.token",
    }
    for written in ({"labels": ["a", {"secure": "v1:abc"}]}, {"environment": {"API_TOKEN": {"secure": "v1:abc"}}}):
        with pytest.raises(SlipwayError, match="is a secret, which the state would hold in clear text"):
            check_clear_text(written, "stack t")


def test_login_is_no_part_of_an_image() -> None:
    values = {"flavor": "local", "mirrors": MIRRORS}
    plain = plan.make("local", values, search=False)
    closed = plan.make("local", {**values, "buildSecrets": {HOST: {"username": "u", "password": "p"}}}, search=False)
    assert [image.contents for image in plain.images] == [image.contents for image in closed.images]
