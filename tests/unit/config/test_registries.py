"""Registries in a stack's configuration: what is accepted, the one line for each mistake, where parents come from."""

from __future__ import annotations

import importlib
import json
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from components.registry import aws_environment
from containers.errors import SlipwayError
from containers.registry.logins import stack_login
from stacks import flavors, lock, plan
from stacks.checks.secrets import check_clear_text
from stacks.config.registries.acr import AcrRegistryConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.registries.gar import GarRegistryConfig
from stacks.config.registries.generic import GenericRegistryConfig
from stacks.config.registries.ghcr import GhcrRegistryConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import ROOT
from tests.helpers import refusals
from tests.helpers.every import every
from tests.helpers.registry_kinds import KINDS, LISTED
from tests.unit.docs.pages import page, table

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
ECR = {"kind": "ecr", "repository": f"{HOST}/ml"}
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:ecr-pullthroughcache/hub-AbCdEf"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
HUB = {"docker.io": {"credential": SECRET}}
PASSWORDS = {"ghcr": "ghcr.io/acme/images", "acr": "acme1.azurecr.io/images", "generic": "r.example/x"}
GAR = {"kind": "gar", "repository": "europe-docker.pkg.dev/acme-ml/images"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for model in KINDS.values():
        if issubclass(model, GenericRegistryConfig):
            identity = importlib.import_module(model.IDENTITY).VARIABLES if model.IDENTITY else ()
            for name in (*model.VARIABLES.values(), *identity):
                monkeypatch.delenv(name, raising=False)


def load(registry: dict[str, Any], **values: Any) -> StackConfig:
    return flavors.load({"flavor": "local", "registry": registry, **values}, "stack x")


refusal = partial(refusals.refusal, load)


def ecr(**values: Any) -> EcrRegistryConfig:
    registry = load({**ECR, **values}).registry
    assert isinstance(registry, EcrRegistryConfig)
    return registry


def test_kind_has_its_component_and_its_row_on_the_page() -> None:
    others = [kind for kind, model in KINDS.items() if not issubclass(model, GenericRegistryConfig)]
    without = [kind for kind in others if not find_spec(f"components.registry.{kind}_registry")]
    assert not without, (
        f"write components/registry/<kind>_registry.py for {without}: they have no user name and password"
    )
    rows = {cells[0].strip("`") for cells in table(page("docs/guides/registries.md").text, "`kind`")}
    assert rows == {*KINDS}, (
        f"docs/guides/registries.md: give each kind a row of the first table: {sorted({*KINDS} - rows)} has none, "
        f"{sorted(rows - {*KINDS})} is no kind"
    )


@every(
    "host, account, region",
    [
        (HOST, "123456789012", "eu-west-1"),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "123456789012", "cn-north-1"),
        ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "123456789012", "us-gov-west-1"),
        ("123456789012.dkr-ecr.us-east-2.on.aws", "123456789012", "us-east-2"),
        ("000000000000.dkr.ecr.us-east-1.localhost.localstack.cloud:4566", "000000000000", "us-east-1"),
    ],
)
def test_ecr_host_gives_account_and_region(host: str, account: str, region: str) -> None:
    registry = ecr(repository=f"{host}/ml")
    assert (registry.account, registry.region) == (account, region)


def test_ecr_with_own_host_needs_account_and_region() -> None:
    registry = ecr(repository="images.acme.example/ml", account="123456789012", region="eu-west-1")
    assert registry.repository == "images.acme.example/ml"
    assert registry.pull_reference("debian:12") == "debian:12"


@every(
    "registry, line",
    [
        (
            {"kind": "ecrr"},
            f"slipway:registry.kind: 'ecrr': expected one of {LISTED} (did you mean",
        ),
        (
            {**ECR, "repository": "ghcr.io/acme"},
            "slipway:registry: repository 'ghcr.io/acme': expected <account>.dkr.ecr.",
        ),
        ({**ECR, "repository": HOST}, f"slipway:registry.repository: '{HOST}': expected a host and a lower-case path"),
        ({**ECR, "repository": f"{HOST}/ml:1"}, f"slipway:registry.repository: '{HOST}/ml:1': expected a host and"),
        ({**ECR, "account": "1234"}, "slipway:registry.account: '1234': expected 12 digits, in quotes"),
        (
            {**ECR, "account": "9" * 12},
            "slipway:registry: account '999999999999' is not the repository's, 123456789012",
        ),
        ({**ECR, "region": "us-east-1"}, "slipway:registry: region 'us-east-1' is not the repository's, eu-west-1"),
        ({**ECR, "keepNewest": "0"}, "slipway:registry.keepNewest: '0': input should be greater than or equal to 1"),
        ({**ECR, "keepNewest": "many"}, "slipway:registry.keepNewest: 'many': expected a whole number"),
        ({**ECR, "kmsKey": "alias/mine"}, "slipway:registry: kmsKey 'alias/mine': expected a key's ARN, arn:aws:kms:"),
        (
            {**ECR, "kmsKey": KEY.replace("eu-west-1", "us-east-1")},
            "slipway:registry: kmsKey is in us-east-1, but the repositories are in eu-west-1",
        ),
        ({**ECR, "scan": "x"}, "slipway:registry: unknown key 'scan'; the keys here are: kind, repository, account"),
        (
            {**ECR, "pullThroughCache": {"dockr.io": {}}},
            "slipway:registry.pullThroughCache: 'dockr.io' is not a registry that ECR",
        ),
        (
            {**ECR, "pullThroughCache": {"docker.io": {}}},
            "slipway:registry.pullThroughCache: docker.io: 'credential' is missing: ECR caches it only with a login",
        ),
        (
            {**ECR, "pullThroughCache": {"docker.io": {"credential": "hunter2"}}},
            "slipway:registry.pullThroughCache.docker.io.credential: 'hunter2': expected the ARN of a Secrets Manager",
        ),
        (
            {**ECR, "pullThroughCache": {"quay.io": {"prefix": "Q"}}},
            "slipway:registry.pullThroughCache.quay.io.prefix: 'Q': expected 2 to 30 lower-case letters",
        ),
        (
            {**ECR, "pullThroughCache": {"quay.io": {"prefix": "cached"}, "registry.k8s.io": {"prefix": "cached"}}},
            "slipway:registry.pullThroughCache: prefix 'cached' is used twice: each registry needs one of its own",
        ),
        (
            {"kind": "local", "address": "127.0.0.1:99999"},
            "slipway:registry.address: '127.0.0.1:99999': expected host:port, such as 127.0.0.1:5000",
        ),
        (
            {"kind": "ghcr", "repository": "docker.io/acme"},
            "slipway:registry.repository: 'docker.io/acme': expected ghcr.io/<owner>/<path>",
        ),
        (
            {"kind": "acr", "repository": "acme.example/x"},
            "slipway:registry.repository: 'acme.example/x': expected <registry>.azurecr.io/<path>; a registry at another",
        ),
        (
            {"kind": "acr", "repository": PASSWORDS["acr"], "username": "u"},
            "slipway:registry: 'password' is missing: give username and password (or $AZURE_CLIENT_SECRET, where",
        ),
        *(
            (
                {**GAR, "repository": repository},
                f"slipway:registry.repository: '{repository}': expected <location>-docker.pkg.dev/<project>/<repository>",
            )
            for repository in (
                "gcr.io/acme-ml/images",
                "docker.pkg.dev/acme-ml/images",
                "europe-docker.pkg.dev.evil.example/acme-ml/images",
                "europe-python.pkg.dev/acme-ml/images",
                "europe-docker.pkg.dev:5000/acme-ml/images",
                "europe-docker.pkg.dev/acme-ml",
                "europe-docker.pkg.dev/acme/images",
                "europe-docker.pkg.dev/1acme-ml/images",
                "europe-docker.pkg.dev/acme-ml/images_of_ours",
                "europe-docker.pkg.dev/acme-ml/9images",
                "europe-docker.pkg.dev/example.com/acme-ml/images",
            )
        ),
        ({**GAR, "repository": "europe-docker.pkg.dev/Acme/images"}, "slipway:registry.repository: 'europe-docker.pkg"),
        (
            {**GAR, "location": "europe"},
            "slipway:registry: unknown key 'location'; the keys here are: kind, repository",
        ),
        (
            {**GAR, "username": "_json_key_base64"},
            "slipway:registry: 'password' is missing: give username and password, or neither to use the machine's",
        ),
        ({**GAR, "password": "p"}, "slipway:registry: 'username' is missing: give username and password, or neither"),
        ({**GAR, "username": ""}, "slipway:registry.username: '': is empty: give a value, or leave it out"),
        ({"kind": "gar"}, "slipway:registry.repository: is required"),
        (
            {"kind": "generic", "repository": "r.example/x", "username": "u", "password": ""},
            "slipway:registry.password: is empty: give a value, or leave it out",
        ),
        (
            {"kind": "generic", "repository": "r.example/x", "username": "", "password": "p"},
            "slipway:registry.username: '': is empty: give a value, or leave it out",
        ),
    ],
)
def test_registry_mistake_fails_with_one_line_that_names_it(registry: dict[str, Any], line: str) -> None:
    message = refusal(registry)
    assert message.startswith(f"stack x: {line}"), message
    assert "\n" not in message


@every(
    "host",
    ["acme1.azurecr.io", "acme1-a1b2c3d4.azurecr.io", "acme1.westeurope.geo.azurecr.io", "acme1.azurecr.cn"],
)
def test_acr_host_has_several_forms(host: str) -> None:
    assert load({"kind": "acr", "repository": f"{host}/x"}).registry.repository == f"{host}/x"


@every(
    "repository, place",
    [
        ("europe-docker.pkg.dev/acme-ml/images", ("europe", "acme-ml", "images")),
        ("us-central1-docker.pkg.dev/acme-ml/images/team/x", ("us-central1", "acme-ml", "images")),
        ("docker.europe-west3.rep.pkg.dev/acme-ml/i", ("europe-west3", "acme-ml", "i")),
    ],
)
def test_gar_repository_says_where_it_is(repository: str, place: tuple[str, str, str]) -> None:
    registry = load({"kind": "gar", "repository": repository}).registry
    assert isinstance(registry, GarRegistryConfig)
    assert registry.place == place


def test_acr_login_comes_from_azure_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", "0-1")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "hunter2")
    config = load({"kind": "acr", "repository": PASSWORDS["acr"]})
    assert isinstance(config.registry, AcrRegistryConfig)
    assert (config.registry.username, config.registry.password) != (None, None)
    assert "hunter2" not in repr(config) + config.model_dump_json()


@every("kind", sorted(PASSWORDS))
def test_credentials_of_two_sources_are_not_combined(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KINDS[kind]
    assert issubclass(model, GenericRegistryConfig)
    variables = model.VARIABLES
    monkeypatch.setenv(variables["username"], "principal")
    monkeypatch.setenv(variables["password"], "hunter2")
    registry = {"kind": kind, "repository": PASSWORDS[kind]}
    assert "'password' is missing" in refusal({**registry, "username": "token"})
    assert "'username' is missing" in refusal({**registry, "password": "other"})
    stack_login.check(load({**registry, "username": "principal"}).registry)
    monkeypatch.delenv(variables["username"])
    stack_login.check(load({**registry, "username": "token"}).registry)


@every("kind", sorted(PASSWORDS))
def test_half_a_credential_without_publish_is_accepted(kind: str) -> None:
    registry = {"kind": kind, "repository": PASSWORDS[kind], "username": "u"}
    assert "'password' is missing" in refusal(registry)
    assert not load(registry, publish=False).publish


@every("kind", ["acr", "ghcr"])
def test_publish_without_login_is_refused(kind: str) -> None:
    registry = load({"kind": kind, "repository": PASSWORDS[kind]}).registry
    host = PASSWORDS[kind].partition("/")[0]
    with pytest.raises(SlipwayError) as caught:
        stack_login.check(registry)
    message = str(caught.value)
    assert message.startswith(f"slipway:registry: no credentials for {host}: set slipway:registry.username and")
    assert all(way in message for way in ("--secret", "docker login", "publish: false", "$"))
    assert "\n" not in message


@pytest.mark.parametrize("configured", ["auths", "credHelpers"])
def test_docker_login_of_registry_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configured: str) -> None:
    (tmp_path / "docker").mkdir()
    entry: Any = {"ghcr.io": {"auth": "dTpw"}} if configured == "auths" else {"ghcr.io": "not-installed-here"}
    (tmp_path / "docker/config.json").write_text(json.dumps({configured: entry}))
    stack_login.check(load({"kind": "ghcr", "repository": PASSWORDS["ghcr"]}).registry)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "empty"))
    stack_login.check(
        load({"kind": "ghcr", "repository": PASSWORDS["ghcr"], "username": "u", "password": "p"}).registry
    )


@every("registry", [{"kind": "local"}, ECR, {"kind": "generic", "repository": PASSWORDS["generic"]}])
def test_registry_without_login_needs_none_before_push(registry: dict[str, Any]) -> None:
    stack_login.check(load(registry).registry)
    assert stack_login.configured(load(registry).registry) is None


def test_password_in_clear_text_is_refused_and_hidden() -> None:
    registry = {"kind": "ghcr", "repository": PASSWORDS["ghcr"], "username": "u"}
    with pytest.raises(SlipwayError) as caught:
        check_clear_text({"registry": {**registry, "password": "hunter2"}}, "stack x")
    assert str(caught.value).startswith("stack x: slipway:registry.password: is in clear text in the stack's file")
    assert "hunter2" not in str(caught.value)
    check_clear_text({"registry": {**registry, "password": {"secure": "v1:abc"}}}, "stack x")
    check_clear_text({}, "stack x")


def test_ecr_cache_pulls_parents_after_mirrors() -> None:
    cached = {**ECR, "pullThroughCache": {**HUB, "quay.io": {"prefix": "quay"}}}
    config = load(cached)
    assert config.pulled("debian:12") == f"{HOST}/docker.io/library/debian:12"
    assert config.pulled("nvidia/cuda:12.1.1-base") == f"{HOST}/docker.io/nvidia/cuda:12.1.1-base"
    assert config.pulled("quay.io/a/b@sha256:" + "0" * 64) == f"{HOST}/quay/a/b@sha256:" + "0" * 64
    assert config.pulled("ghcr.io/a/b:1") == "ghcr.io/a/b:1"
    mirrored = load(cached, mirrors={"images": {"docker.io/nvidia": "own.example/nvidia"}})
    assert mirrored.pulled("nvidia/cuda:1") == "own.example/nvidia/cuda:1"
    assert mirrored.pulled("debian:12") == f"{HOST}/docker.io/library/debian:12"
    assert load(cached, publish=False).pulled("debian:12") == "debian:12"


def test_ecr_cache_of_each_registry_needs_a_login_or_none() -> None:
    for name in ("docker.io", "ghcr.io", "registry.gitlab.com"):
        assert "'credential' is missing" in refusal({**ECR, "pullThroughCache": {name: {}}})
    for name in ("public.ecr.aws", "quay.io", "registry.k8s.io"):
        load({**ECR, "pullThroughCache": {name: {}}})


def test_public_references_of_a_pulled_one_end_with_it() -> None:
    config = load({**ECR, "pullThroughCache": HUB}, mirrors={"images": {"nvcr.io": f"{HOST}/docker.io/nv"}})
    assert config.public(f"{HOST}/docker.io/nv/x:1") == ["docker.io/nv/x:1", "nvcr.io/x:1", f"{HOST}/docker.io/nv/x:1"]
    assert config.public("ghcr.io/a/b:1") == ["ghcr.io/a/b:1"]


def test_ecr_cache_keeps_digest_and_tag_of_parent(tmp_path: Path) -> None:
    """What ECR caches is the upstream's own; its lock is asked for there, where nobody has to log in."""
    root = tmp_path / "checkout"
    for folder in ("stacks", "dockerfiles"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "lock.toml"))
    digest = "sha256:" + "d" * 64
    lock.write(root, {"docker.io/library/debian:bookworm-slim": digest})
    values = {"flavor": "local", "registry": {**ECR, "pullThroughCache": HUB}}
    (cached,) = plan.make("local", values, root).images
    (bare,) = plan.make("local", {**values, "registry": ECR}, root).images
    assert cached.args["BASE_IMAGE"] == f"{HOST}/docker.io/library/debian:bookworm-slim@{digest}"
    assert bare.args["BASE_IMAGE"] == f"debian:bookworm-slim@{digest}"
    assert cached.tag == bare.tag


def test_ecr_created_repositories_are_of_the_stack() -> None:
    assert ecr().created_repositories(["torch", "wheel"]) == {f"{HOST}/ml/torch", f"{HOST}/ml/wheel"}
    assert not ecr(create=False).created_repositories(["torch"])
    assert not load({"kind": "ghcr", "repository": PASSWORDS["ghcr"]}).registry.created_repositories(["torch"])


def test_ghcr_without_secret_builds_without_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "octocat")
    registry = load({"kind": "ghcr", "repository": PASSWORDS["ghcr"]}, publish=False).registry
    assert isinstance(registry, GhcrRegistryConfig)
    assert registry.username is None


def test_aws_credentials_are_read_from_every_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*aws_environment._VARIABLES, *aws_environment._FILES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not aws_environment.signed()
    monkeypatch.setenv("AWS_PROFILE", "ml")
    assert aws_environment.signed()
    monkeypatch.delenv("AWS_PROFILE")
    (tmp_path / "credentials").write_text("[default]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert aws_environment.signed()
