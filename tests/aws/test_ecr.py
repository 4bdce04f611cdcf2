"""A stack that pushes to ECR, by the real engine: API calls go to moto, layers to a registry that wants ECR's token."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.aws.conftest import ACCOUNT, NO_SIGN, OTHER_PASSWORD, REGION, TOKEN, AwsProject
from tests.engine.project import MANIFESTS
from tests.engine.test_products import FLAVOR
from tests.provider.conftest import Registry, private_registry
from tests.provider.plugin import CHECKOUT

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PRODUCT = """ARG BASE_IMAGE
ARG PRODUCT_IMAGE=""
FROM ${BASE_IMAGE} AS product
ARG WORD
COPY link0/file.txt /link0-${WORD}.txt
FROM ${PRODUCT_IMAGE:-product}
"""
HUB = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ecr-pullthroughcache/hub-AbCdEf"


def fetched(project: AwsProject, path: str, name: str, password: str = TOKEN) -> bytes:
    """Return the manifest that the registry holds under a name, asked as who has ECR's token."""
    request = urllib.request.Request(
        f"http://{project.host}/v2/{path}/manifests/{name}",
        headers={
            "Accept": MANIFESTS,
            "Authorization": f"Basic {base64.b64encode(f'AWS:{password}'.encode()).decode()}",
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        content: bytes = answer.read()
    return content


def manifest(project: AwsProject, image: str, name: str, password: str = TOKEN) -> str:
    """Return the digest of what the registry holds of one of the project's images under a name."""
    return f"sha256:{hashlib.sha256(fetched(project, f'{project.path}/{image}', name, password)).hexdigest()}"


def fetch(project: AwsProject, ref: str) -> Any:
    """Return the manifest of ``host/path@digest``, asked as who has ECR's token."""
    path, _, digest = ref.partition("/")[2].partition("@")
    return json.loads(fetched(project, path, digest))


def operations(output: str) -> dict[str, str]:
    """Return what a run did, by type and name of the resource; what stayed as it was, or was but read, is left out."""
    changes = re.findall(r"^ *([~+-]+) +(?:[│├└─ ]*)(\S+:\S+:\S+) +(\S+) (?!refreshing)", output, re.MULTILINE)
    return {f"{typ.rpartition(':')[2]} {name}": sign for sign, typ, name in changes}


def kept(most: int, said: str = "") -> dict[str, Any]:
    """Return the policy of a repository: what is exported, and so many other manifests."""
    return {
        "rules": [
            {
                "rulePriority": 1,
                "description": "Keep what a stack exports.",
                "selection": {
                    "tagStatus": "tagged",
                    "tagPrefixList": ["keep-"],
                    "countType": "imageCountMoreThan",
                    "countNumber": 1000,
                },
                "action": {"type": "expire"},
            },
            {
                "rulePriority": 2,
                "description": f"Keep the newest {said or most}.",
                "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": most},
                "action": {"type": "expire"},
            },
        ]
    }


def test_ecr_stack_life_shows_no_token(project: AwsProject) -> None:
    project.configure(length=2)
    outputs = [project.preview("--diff").output, project.up().output, project.exported()]
    repositories = project.repositories()
    assert sorted(repositories) == ["link0", "link1"]
    for repository in repositories.values():
        assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
        assert repository["imageTagMutabilityExclusionFilters"] == [{"filterType": "WILDCARD", "filter": "keep-*"}]
        assert repository["imageScanningConfiguration"] == {"scanOnPush": True}
        assert repository["encryptionConfiguration"] == {"encryptionType": "AES256"}
        name = repository["repositoryName"]
        policy = project.ecr.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"]
        assert json.loads(policy) == kept(30)
    first = project.outputs()["images"]
    for name, image in first.items():
        assert image["ref"].startswith(f"{project.host}/{project.path}/{name}@sha256:")
        assert manifest(project, name, "keep-t") == manifest(project, name, image["tag"]) == image["digest"]

    again = project.up().output
    assert UNCHANGED.search(again), again
    read = project.refresh().output
    assert UNCHANGED.search(read), read

    project.configure(length=2, word="two", registry={"keepNewest": 5})
    preview = project.preview().output
    assert re.search(r'~ WORD *: *"one" => "two"', preview), preview
    changes = operations(preview)
    # The plugin puts a lifecycle policy in the place of another, and deletes that first.
    assert changes.pop("LifecyclePolicy registry-link0") == changes.pop("LifecyclePolicy registry-link1") == "++"
    assert not [change for change in changes if change.startswith(("Repository", "aws"))], preview
    outputs += [again, preview, project.up().output, project.exported(), json.dumps(project.outputs())]
    policy = project.ecr.get_lifecycle_policy(repositoryName=f"{project.path}/link0")["lifecyclePolicyText"]
    assert json.loads(policy) == kept(5)
    second = project.outputs()["images"]
    for name, image in second.items():
        assert image["digest"] != first[name]["digest"]
        assert manifest(project, name, "keep-t") == image["digest"]
        assert manifest(project, name, first[name]["tag"]) == first[name]["digest"]

    encoded = base64.b64encode(f"AWS:{TOKEN}".encode()).decode()
    assert not [text for text in outputs if TOKEN in text or encoded in text]
    everything = project.pulumi("stack", "export", "-s", "t", "--show-secrets").stdout
    assert TOKEN in everything  # so the search would have found it

    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert not project.repositories()
    assert not json.loads(project.exported())["deployment"].get("resources")


def test_ecr_product_calls_the_documented_actions(project: AwsProject) -> None:
    """A product's repository from its creation to its end, as who has the policy of docs/guides/ecr-policy.json."""
    calls = project.root.with_name("calls")
    project.environment["AWS_CALLS"] = str(calls)
    flavor = (project.root / FLAVOR).read_text()
    project.write(FLAVOR, flavor.replace('args={"WORD"', 'product=number == 0, args={"WORD"'))
    project.write("dockerfiles/link0/Dockerfile", PRODUCT)
    project.configure(length=2)
    project.up()
    product = project.repositories()["link0"]
    filters = [one["filter"] for one in product["imageTagMutabilityExclusionFilters"]]
    assert (product["imageTagMutability"], filters) == (
        "IMMUTABLE_WITH_EXCLUSION",
        ["x*-*", "unchecked--*", "sha256-*"],
    )
    put(project, product["repositoryName"], project.outputs()["products"]["link0"]["tag"], "first")
    put(project, product["repositoryName"], project.outputs()["products"]["link0"]["tag"], "second")
    project.configure(length=2, registry={"keepNewest": 5, "forceDelete": True}, extraTags=["newest"])
    project.up()
    assert UNCHANGED.search(project.refresh().output)
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert not project.repositories()
    policy = json.loads((CHECKOUT / "docs/guides/ecr-policy.json").read_text())
    documented = {action for statement in policy["Statement"] for action in statement["Action"]}
    called = set(calls.read_text().splitlines())
    assert sorted(called - documented) == []
    assert {"ecr:CreateRepository", "ecr:PutLifecyclePolicy", "ecr:DeleteLifecyclePolicy"} <= called


@pytest.mark.slow
def test_ecr_keeps_index_of_platforms_with_its_parts(project: AwsProject) -> None:
    project.configure(platforms=["linux/amd64", "linux/arm64"])
    project.up()
    policy = project.ecr.get_lifecycle_policy(repositoryName=f"{project.path}/link0")["lifecyclePolicyText"]
    assert json.loads(policy) == kept(90, "30, of 3 manifests each")
    output = project.outputs()["images"]["link0"]
    assert manifest(project, "link0", "keep-t") == output["digest"]
    index = json.loads(fetched(project, f"{project.path}/link0", "keep-t"))
    assert [part["digest"] for part in index["manifests"]] == [part["digest"] for part in output["platforms"].values()]


def test_ecr_preview_needs_no_credentials(project: AwsProject) -> None:
    preview = project.preview(**NO_SIGN).output
    assert operations(preview)["Repository registry-link0"] == "+"
    assert not project.repositories()
    failed = project.up(check=False, **NO_SIGN)
    assert failed.returncode != 0
    assert "No valid credential sources found." in failed.output
    assert "Traceback" not in failed.output
    assert not project.repositories()
    project.up()
    again = project.preview(**NO_SIGN).output
    assert set(operations(again)) <= {"aws registry-aws"}, again


def test_ecr_unpublished_needs_no_credentials_or_plugin(project: AwsProject) -> None:
    path = ":".join(folder for folder in project.environment["PATH"].split(":") if not folder.endswith("/plugins"))
    project.configure(length=2, publish=False)
    for run in (project.preview, project.up):
        run(PATH=path, AWS_ENDPOINT_URL="http://127.0.0.1:9", **NO_SIGN)
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", image["ref"]) for image in project.outputs()["images"].values())
    assert not project.repositories()


def test_ecr_refused_token_is_one_line(project: AwsProject, tmp_path: Any) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    with private_registry(
        folder, htpasswd="AWS:$2b$05$abcdefghijklmnopqrstuuZ0Fx87Pb/Aqb0E90lfvCwzXnaFKUHpS\n"
    ) as other:
        project.configure(registry={"repository": f"{other.address}/{project.path}"})
        failed = project.up(check=False)
    assert failed.returncode != 0
    assert re.search(
        rf"error pushing image {other.address}/\S+: .*unauthorized.*: check registry.username", failed.output
    )
    assert "Traceback" not in failed.output
    assert TOKEN not in failed.output


def test_ecr_other_account_is_refused_before_any_change(project: AwsProject) -> None:
    project.configure(registry={"account": "999999999999"})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert f"AWS account ID not allowed: {ACCOUNT}" in failed.output
    assert "Traceback" not in failed.output
    assert not project.repositories()


def check_only_extra_tags_move(project: AwsProject, repository: str) -> None:
    """By AWS's own API: the registry that stands in for its layers knows nothing of immutability."""

    for tag in ("abc1234-base", "keep-t"):
        put(project, repository, tag, "first")
    put(project, repository, "keep-t", "second")
    with pytest.raises(project.ecr.exceptions.ClientError, match="tag 'abc1234-base' already exists"):
        put(project, repository, "abc1234-base", "third")


def put(project: AwsProject, repository: str, tag: str, content: str) -> None:
    """Push by AWS's own API."""
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFESTS.split(", ")[0], "content": content})
    project.ecr.put_image(repositoryName=repository, imageManifest=manifest, imageTag=tag)


def test_ecr_changed_key_is_previewed_as_replacement(project: AwsProject) -> None:
    caches = {"ghcr.io": {"credential": HUB}, "quay.io": {"prefix": "quay"}}
    project.configure(registry={"kmsKey": KEY, "pullThroughCache": caches})
    project.up()
    encrypted = project.repositories()["link0"]["encryptionConfiguration"]
    assert encrypted == {"encryptionType": "KMS", "kmsKey": KEY}
    check_only_extra_tags_move(project, f"{project.path}/link0")
    project.configure(registry={"pullThroughCache": caches})
    changes = operations(project.preview().output)
    assert changes["Repository registry-link0"] == "++"
    assert not [change for change in changes if change.startswith("PullThrough")]
    # Another registry below the same prefix: ECR takes no second rule for it.
    caches["registry.k8s.io"] = caches.pop("quay.io")
    calls = project.root.with_name("calls")
    project.environment["AWS_CALLS"] = str(calls)
    project.configure(registry={"kmsKey": KEY, "pullThroughCache": caches})
    project.up()
    rules = [line for line in calls.read_text().splitlines() if "PullThroughCacheRule" in line]
    assert rules == ["ecr:DeletePullThroughCacheRule", "ecr:CreatePullThroughCacheRule"]


def test_ecr_parent_is_pulled_through_with_registry_token(project: AwsProject) -> None:
    """What ECR would have fetched from quay.io is pushed there beforehand."""
    project.configure(registry={"repository": f"{project.host}/quay/{project.path}"})
    project.up()
    parent = project.outputs()["images"]["link0"]
    cache = {"pullThroughCache": {"quay.io": {"prefix": "quay"}}}
    project.configure(registry=cache, base=f"quay.io/{project.path}/link0:{parent['tag']}", word="two")
    preview = project.preview().output
    assert f'"{project.host}/quay/{project.path}/link0:{parent["tag"]}"' in preview
    project.up()
    child = project.outputs()["images"]["link0"]
    layers = {path: fetch(project, path)["layers"] for path in (parent["ref"], child["ref"])}
    assert layers[child["ref"]][:-1] == layers[parent["ref"]]


def test_ecr_existing_repositories_outlive_the_stack(project: AwsProject) -> None:
    project.ecr.create_repository(repositoryName=f"{project.path}/link0")
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "RepositoryAlreadyExistsException" in failed.output
    project.configure(registry={"create": False})
    failed = project.up(check=False, **NO_SIGN)
    assert f"error: slipway:registry: {project.host}: no token: No valid credential sources found." in failed.output
    assert "Traceback" not in failed.output
    project.up()
    assert manifest(project, "link0", "keep-t") == project.outputs()["images"]["link0"]["digest"]
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert sorted(project.repositories()) == ["link0"]


def test_registry_changed_credentials_change_nothing(project: AwsProject, registry: Registry) -> None:
    """The same registry, said to be a generic one: a user and password that the environment gives."""
    generic = {"kind": "generic", "repository": f"{registry.address}/{project.path}"}
    super(AwsProject, project).configure(registry=generic)
    first: dict[str, Any] = {"SLIPWAY_REGISTRY_USERNAME": "AWS", "SLIPWAY_REGISTRY_PASSWORD": TOKEN}
    second: dict[str, Any] = {"SLIPWAY_REGISTRY_USERNAME": "other", "SLIPWAY_REGISTRY_PASSWORD": OTHER_PASSWORD}
    project.up(**first)
    output = project.exported()
    assert TOKEN not in output
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)
    assert UNCHANGED.search(project.up(**second).output)
