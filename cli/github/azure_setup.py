"""The steps in Azure: an app that trusts GitHub's tokens, and its roles on registries, the state and its key.

Commands and answers are as in Microsoft's reference: `az ad app`, `az ad app federated-credential`, `az ad sp`,
`az role assignment`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cli.github.setup_step import (
    ENVIRONMENT,
    ISSUER,
    NAME,
    ROLE,
    SUBJECT,
    TITLE,
    Step,
    asked,
    asked_with,
    differs,
    document,
    held,
    identity,
    named,
    subject,
    variable,
)
from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks.config.registries.acr import AcrRegistryConfig

_AUDIENCE: Final = "api://AzureADTokenExchange"
_APPS: Final = "az ad app list --filter \"displayName eq '{}'\""
_APP: Final = f"""app=$({_APPS.format(NAME)} --query '[].appId' --output tsv)
: "${{app:?there is no app of the name {NAME}}}"
case $app in *[!0-9a-f-]*)
  echo "{NAME}: several apps have this name, delete what is not yours:" $app >&2
  exit 1
esac"""
"""In a shell, the app's id. A name is no identity: whoever may register an app in the directory may choose it."""
_ACCOUNT: Final = "value=$(az account show --query {} --output tsv)"


@dataclass(frozen=True)
class _Role:
    """A role on a resource: its ``kind`` in a resource's id, its name, and what stands below it in the id."""

    name: str
    program: str
    kind: str
    resource: str
    below: str = ""

    @property
    def commands(self) -> tuple[str, str]:
        """The lines of a shell that give the app the role; the first asks for the resource's id."""
        return (
            f"scope=$({self.program} --name {self.resource} --query id --output tsv){self.below}",
            f'az role assignment create --role "{self.name}" --assignee "$app" --scope "$scope"',
        )

    @property
    def end(self) -> tuple[str, str]:
        """The role, and how the resource's id ends; Azure writes ids in capital letters or not."""
        return self.name, f"/{self.kind}/{self.resource}{self.below}".lower()


def steps(
    repository: str, registries: Sequence[AcrRegistryConfig], backend: str, secrets_provider: str
) -> Iterator[Step]:
    """Yield the steps for stacks that push to ``registries``; none where Azure has neither these nor the state.

    Raises SlipwayError: the address of the state names no storage account.
    """
    roles = [*_roles(registries, backend, secrets_provider)]
    if not roles:
        return
    whose = identity(repository)
    yield Step(
        f"app {TITLE} in Azure",
        (
            whose,
            f'az ad app create --display-name "{NAME}"',
            _APP,
            'az ad sp show --id "$app" || az ad sp create --id "$app"',
        ),
        asked_with(whose, NAME, f"{_APPS.format(NAME)} --output json"),
        lambda answer: _one(answer["there"][0]),
    )
    trust = {
        "name": ROLE,
        "subject": SUBJECT,  # before the address: what follows one up to an @ reads as its password, and is hidden
        "issuer": f"https://{ISSUER}",
        "audiences": [_AUDIENCE],
    }
    credential = "az ad app federated-credential"
    given = f'--id "$app" --parameters {document(trust)}'
    yield Step(
        f"app {TITLE} trusts GitHub's tokens",
        (
            whose,
            _APP,
            subject(repository),
            f"{credential} create {given} || {credential} update --federated-credential-id {ROLE} {given}",
        ),
        asked_with(f"{whose}; {_APP}; {subject(repository)}", SUBJECT, f'{credential} list --id "$app" --output json'),
        lambda answer: differs(
            "credentials",
            [{key: each[key] for key in trust} for each in answer["there"][0]],
            [named(trust, answer["name"])],
        ),
    )
    yield Step(
        f"roles of app {TITLE}",
        (whose, _APP, *(line for role in roles for line in role.commands)),
        asked(f'{whose}; {_APP}; az role assignment list --assignee "$app" --all --output json'),
        lambda answer: _assigned(answer, roles),
    )
    yield variable(repository, "AZURE_CLIENT_ID", "$app", ENVIRONMENT, lines=(whose, _APP))
    for name, key in (("AZURE_TENANT_ID", "tenantId"), ("AZURE_SUBSCRIPTION_ID", "id")):
        yield variable(repository, name, "$value", ENVIRONMENT, lines=(_ACCOUNT.format(key),))
    if account := _storage_account(backend):
        yield variable(repository, "AZURE_STORAGE_ACCOUNT", account, ENVIRONMENT)


def _roles(registries: Sequence[AcrRegistryConfig], backend: str, secrets_provider: str) -> Iterator[_Role]:
    names = {Reference(each.repository).host.partition(".")[0].partition("-")[0] for each in registries}
    for name in sorted(names):
        yield _Role("AcrPush", "az acr show", "registries", name)
    if account := _storage_account(backend):
        container = f"/blobServices/default/containers/{urlsplit(backend).netloc}"
        yield _Role("Storage Blob Data Contributor", "az storage account show", "storageAccounts", account, container)
    key = urlsplit(secrets_provider)
    if key.scheme == "azurekeyvault":
        vault = key.netloc.partition(".")[0]
        yield _Role("Key Vault Crypto User", "az keyvault show", "vaults", vault, key.path)


def _storage_account(backend: str) -> str:
    address = urlsplit(backend)
    if address.scheme != "azblob":
        return ""
    account = parse_qs(address.query).get("storage_account", [""])[0]
    if not (account.isascii() and account.isalnum()):
        raise SlipwayError(
            f"github init: --backend: '{backend}' names no storage account: expected such as "
            f"azblob://{address.netloc}?storage_account=acme"
        )
    return account


def _one(there: Sequence[Any]) -> str:
    return "" if len(there) == 1 else f"there are {len(there)} of this name, expected one"


def _assigned(answer: Any, roles: Sequence[_Role]) -> str:
    there = [(each["roleDefinitionName"], each["scope"].lower()) for each in answer]
    wanted = [role.end for role in roles]
    missing = [end for end in wanted if not any(name == end[0] and scope.endswith(end[1]) for name, scope in there)]
    more = [each for each in there if not any(each[0] == end[0] and each[1].endswith(end[1]) for end in wanted)]
    return held({f"{name} on {scope}" for name, scope in missing}, {f"{name} on {scope}" for name, scope in more})
