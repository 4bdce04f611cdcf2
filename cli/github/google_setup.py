"""The steps in Google: a pool that trusts GitHub's tokens, an account, its roles on registries and the state.

Commands and answers are as in Google's reference: `gcloud services`, `gcloud iam workload-identity-pools`,
`gcloud iam service-accounts`, and `get-iam-policy` of each resource.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from cli.github.setup_step import (
    BRANCH,
    ENVIRONMENT,
    ISSUER,
    NAME,
    TITLE,
    Step,
    asked,
    asked_with,
    differs,
    held,
    identity,
    variable,
)
from containers.errors import SlipwayError
from stacks.config.registries.gar import GarRegistryConfig

_APIS: Final = {f"{name}.googleapis.com" for name in ("artifactregistry", "iam", "iamcredentials", "sts")}
_PROVIDER: Final = "github"
_MAPPING: Final = {"google.subject": "assertion.repository_id + ':' + assertion.environment"}
_SUBJECT: Final = f"${{id}}:{ENVIRONMENT}"
"""Whom a token names, of claims of their own. The claim `sub` is of the repository's name, or for a repository made or
renamed since 2026-07-15 of ids too: repo:acme@1/images@2:... (docs.github.com, "OpenID Connect reference")."""
_USER: Final = "roles/iam.workloadIdentityUser"
_ACCOUNT: Final = f"{NAME}@$project.iam.gserviceaccount.com"
_POOL: Final = f"projects/$number/locations/global/workloadIdentityPools/{NAME}"
_NUMBER: Final = "number=$(gcloud projects describe \"$project\" --format 'value(projectNumber)')"


def steps(
    repository: str, registries: Sequence[GarRegistryConfig], backend: str, secrets_provider: str
) -> Iterator[Step]:
    """Yield the steps for stacks that push to ``registries``; none where Google has neither these nor the state.

    Raises SlipwayError: the registries are in several projects, of which a repository has one account.
    """
    roles = dict(_roles(registries, backend, secrets_provider))
    if not roles:
        return
    projects = sorted({each.place[1] for each in registries})
    if len(projects) > 1:
        raise SlipwayError(
            f"github init: the stacks push to the projects {', '.join(projects)} of Google, and a repository has one "
            "account: name the stacks of one project with --stack"
        )
    project = f"project={projects[0] if projects else '$(gcloud config get-value project)'}"
    whose = identity(repository)
    place = f"{project}; {whose}"
    enable = f'gcloud services enable {" ".join(sorted(_APIS))} --project "$project"'
    yield Step(
        "APIs of Google",
        (project, enable),
        asked(f'{project}; gcloud services list --enabled --project "$project" --format json'),
        lambda answer: held(_APIS, _APIS & {each["config"]["name"] for each in answer}),
    )
    pool = f'gcloud iam workload-identity-pools {{}} {NAME} --location global --project "$project"'
    yield Step(
        f"pool {TITLE} in Google",
        (project, whose, f"{pool.format('describe')} || {pool.format('create')}"),
        asked(f"{place}; {pool.format('describe')} --format json"),
        lambda answer: differs("pool", (answer["state"], answer.get("disabled", False)), ("ACTIVE", False)),
    )
    yield _trust(whose, project)
    account = 'gcloud iam service-accounts {} --project "$project"'
    yield Step(
        f"service account {TITLE}",
        (project, whose, f"{account.format(f'describe {_ACCOUNT}')} || {account.format(f'create {NAME}')}"),
        asked(f"{place}; {account.format(f'describe {_ACCOUNT}')} --format json"),
        lambda answer: "it is disabled" if answer.get("disabled") else "",
    )
    member = f"principal://iam.googleapis.com/{_POOL}/subject/{_SUBJECT}"
    yield Step(
        f"service account {TITLE} is for jobs of {ENVIRONMENT} alone",
        (project, _NUMBER, whose, f"{account.format(f'add-iam-policy-binding {_ACCOUNT}')} {_binding(member, _USER)}"),
        _question(f"{place}; {_NUMBER}", member, account.format(f"get-iam-policy {_ACCOUNT}")),
        lambda answer: held(
            {f"{_USER} of {answer['name']}"},
            {
                f"{_granted(each)} of {one}"
                for each in answer["there"][0].get("bindings", ())
                for one in each["members"]
            },
        ),
    )
    member = f"serviceAccount:{_ACCOUNT}"
    yield Step(
        f"roles of service account {TITLE}",
        (
            project,
            whose,
            *(
                f"gcloud {program} add-iam-policy-binding {resource} {_binding(member, role)}"
                for (program, resource), role in roles.items()
            ),
        ),
        _question(
            place,
            member,
            *(f"gcloud {program} get-iam-policy {resource}" for program, resource in roles),
            'gcloud projects get-iam-policy "$project"',
        ),
        lambda answer: _assigned(answer, roles),
    )
    for name, value in (
        ("GOOGLE_WORKLOAD_IDENTITY_PROVIDER", f"{_POOL}/providers/{_PROVIDER}"),
        ("GOOGLE_SERVICE_ACCOUNT", _ACCOUNT),
    ):
        yield variable(repository, name, value, ENVIRONMENT, lines=(project, whose, _NUMBER))


def _trust(whose: str, project: str) -> Step:
    """Return the step of the provider, which wants the id of the repository: another may get its name later."""
    claims = {"repository_id": "$id", "environment": ENVIRONMENT, "ref": f"refs/heads/{BRANCH}"}
    condition = " && ".join(f"assertion.{claim} == '{value}'" for claim, value in claims.items())
    mapping = ",".join(f"{key}={value}" for key, value in _MAPPING.items())
    providers = "gcloud iam workload-identity-pools providers"
    pool = f'--workload-identity-pool {NAME} --location global --project "$project"'
    given = f'{_PROVIDER} {pool} --issuer-uri https://{ISSUER} --attribute-mapping "{mapping}"'
    given += f' --attribute-condition "{condition}"'

    def fault(answer: Any) -> str:
        wanted = {
            "name": _PROVIDER,
            "oidc": {"issuerUri": f"https://{ISSUER}"},
            "attributeMapping": _MAPPING,
            "attributeCondition": condition.replace("$id", answer["name"]),
        }
        there = [
            {key: each.get(key) for key in (*wanted, "disabled") if key in each}
            | {"name": posixpath.basename(each["name"])}
            for each in answer["there"][0]
        ]
        return differs("providers", there, [wanted])

    return Step(
        f"pool {TITLE} trusts GitHub's tokens",
        (project, whose, f"{providers} create-oidc {given} || {providers} update-oidc {given}"),
        _question(f"{project}; {whose}", "$id", f"{providers} list {pool}"),
        fault,
    )


def _roles(
    registries: Sequence[GarRegistryConfig], backend: str, secrets_provider: str
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the command of a kind of resource and the words that name one, with the role on it."""
    for location, project, name in sorted({each.place for each in registries}):
        resource = f"{name} --location {location} --project {project}"
        yield ("artifacts repositories", resource), "roles/artifactregistry.writer"
    state, key = urlsplit(backend), urlsplit(secrets_provider)
    if state.scheme == "gs":
        yield ("storage buckets", f"gs://{state.netloc}"), "roles/storage.objectUser"
    if key.scheme == "gcpkms":
        project, location, ring, name = PurePosixPath(key.path).parts[1::2]
        resource = f"{name} --keyring {ring} --location {location} --project {project}"
        yield ("kms keys", resource), "roles/cloudkms.cryptoKeyEncrypterDecrypter"


def _binding(member: str, role: str) -> str:
    return f'--member "{member}" --role {role} --condition None'


def _question(first: str, name: str, *commands: str) -> tuple[str, ...]:
    return asked_with(first, name, *(f"{command} --format json" for command in commands))


def _granted(binding: Any) -> str:
    """Return the role of a binding in words. Under a condition it is another: its time may be over."""
    condition = binding.get("condition")
    return f"{binding['role']} under the condition '{condition['title']}'" if condition else str(binding["role"])


def _assigned(answer: Any, roles: Mapping[tuple[str, str], str]) -> str:
    places = [f"{program} {resource}" for program, resource in roles] + ["the project"]
    there = {
        f"{_granted(binding)} on {place}"
        for place, policy in zip(places, answer["there"], strict=True)
        for binding in policy.get("bindings", ())
        if answer["name"] in binding["members"]
    }
    return held({f"{role} on {place}" for role, place in zip(roles.values(), places, strict=False)}, there)
