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
    ROLE,
    SUBJECT,
    Step,
    asked,
    asked_with,
    differs,
    document,
    held,
    named,
    subject,
    variable,
)
from containers.errors import SlipwayError
from containers.registry.reference import Reference
from stacks.config.registries.acr import AcrRegistryConfig

_AUDIENCE: Final = "api://AzureADTokenExchange"
_APPS: Final = f"az ad app list --filter \"displayName eq '{ROLE}'\""
_APP: Final = f"app=$({_APPS} --query '[0].appId' --output tsv)"
_ACCOUNT: Final = "az account show --query {} --output tsv"


@dataclass(frozen=True)
class _Role:
    """A role on a resource: its ``kind`` in a resource's id, its name, and what stands below it in the id."""

    name: str
    program: str
    kind: str
    resource: str
    below: str = ""

    @property
    def scope(self) -> str:
        """The id of the resource in a shell."""
        return f'"$({self.program} --name {self.resource} --query id --output tsv){self.below}"'

    @property
    def end(self) -> tuple[str, str]:
        """The role, and how the resource's id ends; Azure writes ids in capital letters or not."""
        return self.name, f"/{self.kind}/{self.resource}{self.below}".lower()


def steps(
    repository: str, registries: Sequence[AcrRegistryConfig], backend: str, secrets_provider: str
) -> Iterator[Step]:
    """Yield the steps for stacks that push to ``registries``; none where Azure has neither these nor the state.

    Raises:
        SlipwayError: the address of the state names no storage account.
    """
    roles = [*_roles(registries, backend, secrets_provider)]
    if not roles:
        return
    yield Step(
        f"app {ROLE} in Azure",
        (f"az ad app create --display-name {ROLE}", _APP, 'az ad sp show --id "$app" || az ad sp create --id "$app"'),
        asked(f"{_APPS} --output json"),
        lambda answer: "" if len(answer) == 1 else f"there are {len(answer)} of this name, expected one",
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
        f"app {ROLE} trusts GitHub's tokens",
        (
            _APP,
            subject(repository),
            f"{credential} create {given} || {credential} update --federated-credential-id {ROLE} {given}",
        ),
        asked_with(f"{_APP}; {subject(repository)}", SUBJECT, f'{credential} list --id "$app" --output json'),
        lambda answer: differs(
            "credentials",
            [{key: each[key] for key in trust} for each in answer["there"][0]],
            [named(trust, answer["name"])],
        ),
    )
    assign = 'az role assignment create --role "{}" --assignee "$app" --scope {}'
    yield Step(
        f"roles of app {ROLE}",
        (_APP, *(assign.format(role.name, role.scope) for role in roles)),
        asked(f'{_APP}; az role assignment list --assignee "$app" --all --output json'),
        lambda answer: _assigned(answer, roles),
    )
    for name, command in (
        ("AZURE_CLIENT_ID", f'{_APPS} --query "[0].appId" --output tsv'),
        ("AZURE_TENANT_ID", _ACCOUNT.format("tenantId")),
        ("AZURE_SUBSCRIPTION_ID", _ACCOUNT.format("id")),
    ):
        yield variable(repository, name, environment=ENVIRONMENT, command=command)
    if account := _storage_account(backend):
        yield variable(repository, "AZURE_STORAGE_ACCOUNT", account, environment=ENVIRONMENT)


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


def _assigned(answer: Any, roles: Sequence[_Role]) -> str:
    there = [(each["roleDefinitionName"], each["scope"].lower()) for each in answer]
    wanted = [role.end for role in roles]
    missing = [end for end in wanted if not any(name == end[0] and scope.endswith(end[1]) for name, scope in there)]
    more = [each for each in there if not any(each[0] == end[0] and each[1].endswith(end[1]) for end in wanted)]
    return held({f"{name} on {scope}" for name, scope in missing}, {f"{name} on {scope}" for name, scope in more})
