"""The steps by which a repository's jobs may publish: each as commands, and as a question that changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cli.github import azure_setup, google_setup
from cli.github.setup_step import (
    BRANCH,
    ENVIRONMENT,
    ISSUER,
    NAME,
    SUBJECT,
    TITLE,
    Step,
    asked,
    asked_with,
    differs,
    document,
    identity,
    named,
    subject,
    variable,
)
from containers.errors import SlipwayError, one_line
from containers.registry.reference import Reference
from stacks.config.registries.acr import AcrRegistryConfig
from stacks.config.registries.ecr import EcrRegistryConfig
from stacks.config.registries.gar import GarRegistryConfig
from stacks.config.registries.registry_model import RegistryConfig

_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_REPOSITORY: Final = re.compile(rf"{_NAME}/{_NAME}")
_REMOTE: Final = re.compile(rf"(?:https://|ssh://git@|git@)github\.com[/:](?P<name>{_NAME}/{_NAME}?)(?:\.git)?/?")
_KEY_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):(?P<name>(key|alias)/[A-Za-z0-9/_-]+)"
)
_PLACES: Final = {
    "s3": re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()/-]*)?"),
    "awskms": re.compile(rf"/?({_KEY_ARN.pattern}|[A-Za-z0-9/_-]+)"),
    "azblob": re.compile(r"[a-z0-9-]{3,63}(/[A-Za-z0-9!_.'()/-]*)?"),
    "azurekeyvault": re.compile(r"[A-Za-z][A-Za-z0-9-]{2,23}(\.[a-z.]+)/keys/[A-Za-z0-9-]{1,127}"),
    "gs": re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()/-]*)?"),
    "gcpkms": re.compile(
        r"projects/[a-z][a-z0-9-]{5,29}/locations/[a-z0-9-]+/keyRings/[A-Za-z0-9_-]{1,63}/cryptoKeys/[A-Za-z0-9_-]{1,63}"
    ),
}
"""A bucket with a path in it, and a key or an alias ("Bucket naming rules", "Safe characters", "CreateAlias"); likewise
in Azure ("Naming rules and restrictions for Azure resources") and in Google ("About Cloud Storage buckets")."""
_AUDIENCE: Final = "sts.amazonaws.com"
_PROVIDER: Final = f"arn:aws:iam::${{account}}:oidc-provider/{ISSUER}"
"""The one provider that an account can have of this issuer. zsh takes `$account:oidc` for a changed `$account`."""
_ECR: Final[Mapping[str, tuple[str, ...]]] = {
    "Repositories": (
        *("CreateRepository", "DeleteLifecyclePolicy", "DeleteRepository", "DescribeRepositories"),
        *("GetLifecyclePolicy", "ListTagsForResource", "PutImageScanningConfiguration", "PutImageTagMutability"),
        "PutLifecyclePolicy",
    ),
    "Images": (
        *("BatchCheckLayerAvailability", "BatchGetImage", "CompleteLayerUpload", "DescribeImages"),
        *("GetDownloadUrlForLayer", "InitiateLayerUpload", "PutImage", "UploadLayerPart"),
    ),
}
"""The actions of ECR that a stack needs on its repositories, as `docs/guides/ecr-policy.json` has them."""


def repository_of(remote: str) -> str:
    """Return ``owner/name`` of a remote's address or of itself. Raises SlipwayError: it is none of GitHub's."""
    match = _REMOTE.fullmatch(remote.strip())
    name = match["name"].removesuffix(".git") if match else remote.strip()
    if not _REPOSITORY.fullmatch(name):
        raise SlipwayError(
            f"github init: '{one_line(name)}' is not a repository at github.com: name it with --repository OWNER/NAME"
        )
    return name


def steps(
    repository: str,
    registries: Iterable[RegistryConfig],
    backend: str,
    secrets_provider: str = "",
    *,
    releases: bool = False,
) -> Iterator[Step]:
    """Yield the steps for a repository whose stacks push to ``registries`` and have their state in ``backend``.

    With ``releases``, it also has the workflow of Slipway's own releases, whose environment is for tags alone.

    Raises SlipwayError: the registries are in several accounts of AWS, which one role cannot push to; or an address has
    characters that are a pattern in a policy.
    """
    _check("--backend", backend)
    _check("--secrets-provider", secrets_provider)
    api = f"repos/{repository}"
    yield from _environment(api, ENVIRONMENT, "branch", BRANCH)
    if releases:
        yield from _environment(api, "release", "tag", "v*")
    yield Step(
        "pull requests of nightly",
        (_send("PUT", f"{api}/actions/permissions/workflow", _WORKFLOWS),),
        ("gh", "api", f"{api}/actions/permissions/workflow"),
        lambda answer: differs("permissions", {key: answer[key] for key in _WORKFLOWS}, _WORKFLOWS),
    )
    for name, value in (("PULUMI_BACKEND_URL", backend), ("PULUMI_SECRETS_PROVIDER", secrets_provider)):
        if value:
            yield variable(repository, name, value)
    pushed = [*registries]
    ecr = [each for each in pushed if isinstance(each, EcrRegistryConfig)]
    if ecr or urlsplit(backend).scheme == "s3":
        yield from _aws(repository, ecr, backend, secrets_provider)
    acr = [each for each in pushed if isinstance(each, AcrRegistryConfig)]
    yield from azure_setup.steps(repository, acr, backend, secrets_provider)
    gar = [each for each in pushed if isinstance(each, GarRegistryConfig)]
    yield from google_setup.steps(repository, gar, backend, secrets_provider)


def _environment(api: str, name: str, kind: str, pattern: str) -> Iterator[Step]:
    """Yield the steps of an environment that the branches or the tags of a pattern alone may use.

    A policy is for branches where its ``type`` is left out ("Create a deployment branch policy").
    """
    ours = f"{api}/environments/{name}"
    yield Step(
        f"environment {name}",
        (
            _send(
                "PUT", ours, {"deployment_branch_policy": {"protected_branches": False, "custom_branch_policies": True}}
            ),
        ),
        ("gh", "api", ours),
        lambda answer: (
            ""
            if (answer["deployment_branch_policy"] or {}).get("custom_branch_policies")
            else "every branch may use it, so that a pull request can publish"
        ),
    )
    policies = f"{ours}/deployment-branch-policies"
    yield Step(
        f"environment {name} for {kind} {pattern} alone",
        (_send("POST", policies, {"name": pattern, "type": kind}),),
        ("gh", "api", policies),
        lambda answer: differs(
            "policies",
            [f"{each.get('type', 'branch')} {each['name']}" for each in answer["branch_policies"]],
            [f"{kind} {pattern}"],
        ),
    )


_WORKFLOWS: Final = {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": True}


def _aws(
    repository: str, registries: Sequence[EcrRegistryConfig], backend: str, secrets_provider: str
) -> Iterator[Step]:
    accounts = sorted({each.account for each in registries})
    if len(accounts) > 1:
        raise SlipwayError(
            f"github init: the stacks push to the accounts {', '.join(accounts)} of AWS, and a repository has one "
            "role: name the stacks of one account with --stack"
        )
    account = accounts[0] if accounts else "*"
    number = "$(aws sts get-caller-identity --query Account --output text)"
    lookup = (f"account={accounts[0] if accounts else number}", identity(repository))
    create = f"aws iam create-open-id-connect-provider --url https://{ISSUER} --client-id-list {_AUDIENCE}"
    add = f'aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn "{_PROVIDER}"'
    yield Step(
        "AWS trusts GitHub's tokens",
        (lookup[0], f"{create} || {add} --client-id {_AUDIENCE}"),
        ("aws", "iam", "list-open-id-connect-providers", "--output", "json"),
        lambda answer: (
            ""
            if any(each["Arn"].endswith(f"/{ISSUER}") for each in answer["OpenIDConnectProviderList"])
            else "there is no such provider"
        ),
    )
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Federated": f"arn:aws:iam::{account}:oidc-provider/{ISSUER}"},
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Condition": {"StringEquals": {f"{ISSUER}:aud": _AUDIENCE, f"{ISSUER}:sub": SUBJECT}},
            }
        ],
    }
    policy = {"Version": "2012-10-17", "Statement": [*_statements(registries, account, backend, secrets_provider)]}
    create = f'aws iam create-role --role-name "{NAME}" --assume-role-policy-document "$trust"'
    update = f'aws iam update-assume-role-policy --role-name "{NAME}" --policy-document "$trust"'
    get = "aws iam get-role --output json --role-name"
    yield Step(
        f"role {TITLE}",
        (*lookup, subject(repository), f"trust={document(trust)}", f"{create} || {update}"),
        asked_with(f"{lookup[1]}; {subject(repository)}", SUBJECT, f'{get} "{NAME}"'),
        lambda answer: differs(
            "trust",
            _of_any_account(answer["there"][0]["Role"]["AssumeRolePolicyDocument"], accounts),
            named(trust, answer["name"]),
        ),
    )
    yield Step(
        f"policy of role {TITLE}",
        (
            *lookup,
            f'aws iam put-role-policy --role-name "{NAME}" --policy-name slipway --policy-document {document(policy)}',
        ),
        asked(f'{lookup[1]}; aws iam get-role-policy --role-name "{NAME}" --policy-name slipway --output json'),
        lambda answer: differs("policy", _of_any_account(answer["PolicyDocument"], accounts), policy),
    )
    yield variable(repository, "AWS_ROLE_ARN", f"arn:aws:iam::${{account}}:role/{NAME}", ENVIRONMENT, lines=lookup)
    if region := next((each.region for each in registries), _region(backend)):
        yield variable(repository, "AWS_REGION", region, ENVIRONMENT)


def _statements(
    registries: Sequence[EcrRegistryConfig], account: str, backend: str, secrets_provider: str
) -> Iterator[dict[str, Any]]:
    if registries:
        token = ["ecr:GetAuthorizationToken", "sts:GetCallerIdentity"]
        yield {"Sid": "Token", "Effect": "Allow", "Action": token, "Resource": "*"}
        places = {(each.region, Reference(each.repository).path) for each in registries}
        resources = [f"arn:aws:ecr:{region}:{account}:repository/{path}/*" for region, path in sorted(places)]
        for sid, names in _ECR.items():
            every = [f"ecr:{name}" for name in names]
            yield {"Sid": sid, "Effect": "Allow", "Action": every, "Resource": resources}
    address = urlsplit(backend)
    if address.scheme == "s3":
        bucket = f"arn:aws:s3:::{address.netloc}"
        yield {"Sid": "State", "Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": bucket}
        objects = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        where = f"{bucket}{address.path.rstrip('/')}/*"
        yield {"Sid": "Stacks", "Effect": "Allow", "Action": objects, "Resource": where}
    key = urlsplit(secrets_provider)
    if key.scheme == "awskms":
        name = f"{key.netloc}{key.path}".strip("/")
        arn = _KEY_ARN.fullmatch(name)  # with the alias or the key's id at its end
        region = arn["region"] if arn else _region(secrets_provider) or "*"
        owner, last = (arn["account"], arn["name"]) if arn else (account, name)
        alias = {"StringEquals": {"kms:RequestAlias": last}} if last.startswith("alias/") else {}
        resource = f"arn:aws:kms:{region}:{owner}:key/{'*' if alias else last.removeprefix('key/')}"
        actions = ["kms:Decrypt", "kms:Encrypt"]
        condition = {"Condition": alias} if alias else {}
        yield {"Sid": "Secrets", "Effect": "Allow", "Action": actions, "Resource": resource, **condition}


def _region(url: str) -> str:
    return parse_qs(urlsplit(url).query).get("region", [""])[0]


def _check(what: str, url: str) -> None:
    """Refuse an address from which a policy would be for more than it names: `*`, `?` and `${` are patterns in it.

    Raises SlipwayError: it is such an address, or none.
    """
    try:
        parts = urlsplit(url)
        place, form = f"{parts.netloc}{parts.path}", _PLACES.get(parts.scheme)
        valid = form is None or bool(form.fullmatch(place) and re.fullmatch("[a-z0-9-]*", _region(url)))
    except ValueError:
        valid = False
    if not valid:
        raise SlipwayError(
            f"github init: {what}: '{one_line(url)}': expected such as s3://acme-pulumi/path?region=eu-west-1 or "
            "awskms://alias/pulumi?region=eu-west-1, or azblob://pulumi?storage_account=acme and "
            "azurekeyvault://acme.vault.azure.net/keys/pulumi, or gs://acme-pulumi and "
            "gcpkms://projects/acme/locations/europe/keyRings/pulumi/cryptoKeys/state"
        )


def _send(method: str, path: str, body: Mapping[str, Any]) -> str:
    return f"gh api --method {method} {path} --input - <<'END'\n{json.dumps(body, indent=2)}\nEND"


def _of_any_account(document: Any, accounts: Sequence[str]) -> Any:
    text = json.dumps(document)
    return json.loads(text if accounts else re.sub(":[0-9]{12}:", ":*:", text))
