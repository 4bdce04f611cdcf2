"""``EcrRegistry`` under Pulumi's mocks, and the pure parts below it."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from components.registry.ecr_registry import ATTACHED, lifecycle, manifests
from policies.stack_rules import RULES, Resource
from stacks.config.gates.inspection_gate import InspectionConfig
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from stacks.config.signing import SigningConfig
from stacks.config.stack_file import ROOT, read_stack
from stacks.plan import Plan, make
from stacks.tags import KEEP
from tests.fakes.pulumi_mocks import DIGEST, SECRET, TOKEN, run

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
ECR = {"kind": "ecr", "repository": f"{HOST}/ml"}
KMS_SIGNER = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
HUB = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:ecr-pullthroughcache/hub-AbCdEf"
PROVIDER = "pulumi:providers:aws"
REPOSITORY = "aws:ecr/repository:Repository"
POLICY = "aws:ecr/lifecyclePolicy:LifecyclePolicy"
CACHE = "aws:ecr/pullThroughCacheRule:PullThroughCacheRule"
EXTRA_TAG = "pulumi-python:dynamic/image:ExtraTag"


@pytest.fixture(autouse=True)
def _signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "ml")


def limits(inputs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return, by priority, what the rules of a policy count, and the most that each keeps."""
    rules = json.loads(inputs["policy"])["rules"]
    assert [rule["rulePriority"] for rule in rules] == [*range(1, len(rules) + 1)]
    selections = [rule["selection"] for rule in rules]
    return [(*one.get("tagPrefixList", ["any"]), one["countNumber"]) for one in selections]


def test_ecr_repository_of_image_has_its_settings() -> None:
    recorder, _ = run(registry=ECR)
    provider = recorder.of_type(PROVIDER)["registry-aws"]
    assert (provider["region"], json.loads(provider["allowedAccountIds"])) == ("eu-west-1", ["123456789012"])
    repositories = recorder.of_type(REPOSITORY)
    assert sorted(repositories) == ["registry-extras", "registry-torch"]
    assert repositories["registry-torch"] == {
        "name": "ml/torch",
        "imageTagMutability": "IMMUTABLE_WITH_EXCLUSION",
        "imageTagMutabilityExclusionFilters": [{"filter": "keep-*", "filterType": "WILDCARD"}],
        "imageScanningConfiguration": {"scanOnPush": True},
        "encryptionConfigurations": [{"encryptionType": "AES256"}],
        "forceDelete": False,
    }
    policies = recorder.of_type(POLICY)
    assert policies["registry-torch"]["repository"] == "ml/torch"
    assert limits(policies["registry-torch"]) == [("keep-", 1000), ("any", 30)]


def test_ecr_repository_of_product_has_tags_that_move() -> None:
    recorder, _ = run(registry=ECR, products=("torch",))
    repositories = recorder.of_type(REPOSITORY)
    assert {one["imageTagMutability"] for one in repositories.values()} == {"IMMUTABLE_WITH_EXCLUSION"}
    assert filters(repositories["registry-torch"]) == ["x*-*", "unchecked--*", "sha256-*"]
    assert filters(repositories["registry-extras"]) == ["keep-*"]


def filters(repository: Any) -> list[str]:
    return [one["filter"] for one in repository["imageTagMutabilityExclusionFilters"]]


def test_policy_pack_takes_what_the_registry_declares() -> None:
    """Of images and products, with everything that may move; each product's own tag is one that may."""
    recorder, _ = run(
        registry=ECR,
        products=("torch",),
        signing={"key": "awskms:///alias/x"},
        extraTags=["latest"],
        promotion={"tags": ["stable"]},
    )
    (rule,) = (rule for rule in RULES if rule.name == "repositories-immutable")
    repositories = recorder.of_type(REPOSITORY)
    assert len(repositories) == 2
    assert not list(
        rule.check([Resource(REPOSITORY, f"urn:{name}", name, it) for name, it in repositories.items()], {})
    )
    own = [image.tag for image in make("nccl-cu132", root=ROOT).images if image.spec.product]
    assert len(own) == 22
    assert all(any(fnmatch.fnmatchcase(tag, one) for one in filters(repositories["registry-torch"])) for tag in own)


def test_ecr_options_reach_aws() -> None:
    registry = {
        **ECR,
        "kmsKey": KEY,
        "keepNewest": "7",
        "forceDelete": "true",
        "pullThroughCache": {"docker.io": {"credential": HUB}, "quay.io": {"prefix": "quay"}},
    }
    recorder, _ = run(registry=registry)
    repository = recorder.of_type(REPOSITORY)["registry-torch"]
    assert repository["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": KEY}]
    assert repository["forceDelete"] is True
    assert limits(recorder.of_type(POLICY)["registry-torch"]) == [("keep-", 1000), ("any", 7)]
    assert recorder.of_type(CACHE) == {
        "registry-docker.io": {
            "ecrRepositoryPrefix": "docker.io",
            "upstreamRegistryUrl": "registry-1.docker.io",
            "credentialArn": HUB,
        },
        "registry-quay": {"ecrRepositoryPrefix": "quay", "upstreamRegistryUrl": "quay.io"},
    }


def test_ecr_repositories_of_other_stack_are_not_declared() -> None:
    caches = {"docker.io": {"credential": HUB}}
    recorder, _ = run(registry={**ECR, "create": "false", "pullThroughCache": caches})
    assert not recorder.of_type(REPOSITORY) | recorder.of_type(POLICY) | recorder.of_type(CACHE)
    assert len(recorder.of_type(EXTRA_TAG)) == 2
    assert recorder.calls


def secret(value: Any) -> Any:
    """Return what a secret holds."""
    assert value[SECRET], value
    return value["value"]


def test_ecr_push_has_a_secret_token_of_its_own() -> None:
    recorder, values = run(registry=ECR)
    assert all(args == {"registryId": "123456789012"} for _, args in recorder.calls)
    logins = [secret(image["registry"]) for image in recorder.of_type("docker:index/image:Image").values()]
    assert all(login["username"] == "AWS" and login["server"] == HOST for login in logins)
    tags = recorder.of_type(EXTRA_TAG)
    passwords = [login["password"] for login in logins] + [secret(tag["password"]) for tag in tags.values()]
    assert len(set(passwords)) == len(passwords) == 4
    assert all(password.startswith(TOKEN) for password in passwords)
    elsewhere = {
        key: value for key, value in recorder.resources.items() if key[0] not in {"docker:index/image:Image", EXTRA_TAG}
    }
    assert TOKEN not in repr(elsewhere) + repr(values["outputs"])


def test_ecr_token_of_child_follows_its_parent() -> None:
    """12 hours of it must not pass with its parents' compilation."""
    recorder, _ = run(registry=ECR)
    order = [key[1] for key in recorder.resources if key[0] == "docker:index/image:Image"]
    assert order == ["torch", "extras"]
    tokens = {name: secret(recorder.image(name)["registry"])["password"] for name in order}
    assert int(tokens["torch"].removeprefix(TOKEN)) < int(tokens["extras"].removeprefix(TOKEN))


def test_ecr_exported_digest_has_a_tag_of_its_stack() -> None:
    recorder, values = run(registry=ECR)
    tags = recorder.of_type(EXTRA_TAG)
    assert {name: (tag["ref"], tag["tag"]) for name, tag in tags.items()} == {
        f"{name}-keep": (f"r.example/x/{name}@{DIGEST}", "keep-t") for name in ("torch", "extras")
    }
    assert {tag["ref"] for tag in tags.values()} == {image["ref"] for image in values["outputs"]["images"].values()}


def test_ecr_preview_requests_no_token() -> None:
    recorder, _ = run(registry=ECR, preview=True)
    assert not recorder.calls
    assert recorder.image("torch")["registry"] == {"server": HOST}
    assert "accessKey" not in recorder.of_type(PROVIDER)["registry-aws"]
    assert sorted(recorder.of_type(REPOSITORY)) == ["registry-extras", "registry-torch"]


def test_ecr_preview_without_credentials_skips_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.registry.aws_environment.signed", lambda: False)
    provider = run(registry=ECR, preview=True)[0].of_type(PROVIDER)["registry-aws"]
    assert "allowedAccountIds" not in provider
    assert provider["skipCredentialsValidation"] == provider["skipRequestingAccountId"] == "true"
    for_real = run(registry=ECR)[0].of_type(PROVIDER)["registry-aws"]
    assert "accessKey" not in for_real


def test_ecr_unpublished_declares_nothing_of_aws() -> None:
    recorder, _ = run(registry={**ECR, "pullThroughCache": {"docker.io": {"credential": HUB}}}, publish=False)
    assert not recorder.calls
    assert not [typ for typ, _ in recorder.resources if "aws" in typ]
    assert not recorder.of_type(EXTRA_TAG)
    assert recorder.image("torch")["registry"] == {"server": HOST}


def test_ecr_lifecycle_keeps_exported_and_newest_images() -> None:
    """By the ECR user guide: unique priorities, ``any`` last and without a prefix list, counts of 1 and more."""
    policy = lifecycle(5)
    first, last = policy["rules"]
    assert (first["rulePriority"], last["rulePriority"]) == (1, 2)
    assert first["selection"]["tagPrefixList"] == [KEEP]
    assert last["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 5}
    assert 100 <= len(json.dumps(policy)) <= 30720  # bounds of LifecyclePolicyText


def test_ecr_with_signing_keeps_signatures_and_extra_tags() -> None:
    recorder, _ = run(registry=ECR, signing={"key": KMS_SIGNER}, extraTags=["latest"])
    repository = recorder.of_type(REPOSITORY)["registry-torch"]
    filters = [entry["filter"] for entry in repository["imageTagMutabilityExclusionFilters"]]
    assert filters == ["keep-*", f"{ATTACHED}*", "*latest"]
    # 30 times the image, its signature, SBOM and provenance
    assert limits(recorder.of_type(POLICY)["registry-torch"]) == [("keep-", 1000), ("sha256-", 1000), ("any", 120)]


def test_ecr_policy_counts_manifests_of_a_version() -> None:
    """A repository has the images of both platforms and their index, or products, of which sources are shared."""
    platforms = ["linux/amd64", "linux/arm64"]
    plan = make("nccl-cu132", {**read_stack("nccl-cu132", ROOT), "platforms": platforms}, search=False)
    assert {*manifests(plan, product=False).values()} == {2 + 1}
    products = manifests(plan, product=True)
    assert {*products.values()} == {1, 2}
    sources = {image.spec.name for image in plan.images if image.spec.product and not image.spec.repository}
    assert {name for name, count in products.items() if count == 1} == sources

    def signed(*, gate: bool = True, **values: bool) -> Plan:
        signing, inspection = SigningConfig(key=KMS_SIGNER, **values), InspectionConfig(gate=gate)
        return replace(plan, config=plan.config.model_copy(update={"signing": signing, "inspection": inspection}))

    # Of each image: itself, its signature, SBOM, provenance, and what loads in it.
    assert {*manifests(signed(), product=False).values()} == {2 * 5 + 2}
    assert {*manifests(signed(gate=False), product=False).values()} == {2 * 4 + 2}
    assert {*manifests(signed(sbom=False, provenance=False), product=False).values()} == {2 * 3 + 2}
    # With a gate of vulnerabilities also the scan, and what its exceptions mean.
    row = {"id": "CVE-2026-1", "reason": "no TLS here", "until": "2026-12-31"}
    for rows, each in (((), 6), ((row,), 7)):
        rules = {"vulnerabilities": VulnerabilitiesConfig.model_validate({"exceptions": rows})}
        scanned = replace(plan, config=signed().config.model_copy(update=rules))
        assert {*manifests(scanned, product=False).values()} == {2 * each + 2}
    assert manifests(signed(), product=True) == {name: 2 * count for name, count in products.items()}
