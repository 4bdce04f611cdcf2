"""The commands `gh`, `aws`, `az` and `gcloud`: each is a few lines of a shell, which have this process do what it is called for.

A Python for each call, of which the tests make a thousand, would be a minute of the processor.
"""

from __future__ import annotations

import json
import os
import re
import socketserver
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, Final

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

_PROGRAM: Final = """\
#!/bin/bash
case " $* " in *" --input - "*) text=$(cat) ;; esac
exec 3<> /dev/tcp/127.0.0.1/{port}
printf '%s\\0' "$#" "$@" "${GH_TOKEN-} ${GH_HOST-} ${AWS_SECRET_ACCESS_KEY-}" "${text-}" >&3
IFS= read -r -d '' status <&3
IFS= read -r -d '' text <&3
[ "$status" = 0 ] || exec >&2
printf %s "$text"
exit "$status"
"""
_NO_LOGIN: Final = (
    "To get started with GitHub CLI, please run:  gh auth login\n"
    "Alternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token."
)
_KINDS: Final = {
    "acr": "Microsoft.ContainerRegistry/registries",
    "storage": "Microsoft.Storage/storageAccounts",
    "keyvault": "Microsoft.KeyVault/vaults",
}
_SUBSCRIPTION, _TENANT, _APP = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "123")
_NUMBER: Final = "123456789012"
_POOL: Final = f"projects/{_NUMBER}/locations/global/workloadIdentityPools"


class Refused(Exception):
    """What a command says on standard error as it fails."""


class Call:
    """A call of a command: its words, what is on standard input, and the state of its service, which it may change."""

    def __init__(self, words: Sequence[str], text: str, state: dict[str, Any]) -> None:
        self.words, self.text, self.state = words, text, state

    def options(self, *flags: str) -> tuple[list[str], dict[str, str]]:
        """Return the words that are no options, and the options' values; flags have none."""
        verb, options, words = [], {}, iter(self.words)
        for word in words:
            if word.startswith("--"):
                options[word] = "" if word in flags else next(words)
            else:
                verb.append(word)
        return verb, options


def gh(call: Call) -> str:
    """GitHub's API as far as these commands use it ("REST API endpoints" for deployment environments, variables, actions)."""
    [kind, *words], options = call.options()
    state = call.state
    if kind == "variable":
        environment = options.get("--env")
        place = f"environments/{environment}/variables" if environment else "actions/variables"
        state[f"repos/{options['--repo']}/{place}/{words[1]}"] = {"name": words[1], "value": options["--body"]}
        return ""
    [path] = words
    match options.get("--method", "GET"):
        case "PUT":
            state[path] = json.loads(call.text)
        case "POST":
            state.setdefault(path, {"branch_policies": []})["branch_policies"].append(json.loads(call.text))
        case _ if path.count("/") == 2 and options.get("--jq") == ".id":
            return "4711" if path == "repos/acme/images" else "4712"
        case _ if path.endswith("/oidc/customization/sub"):
            return _subject(path, options["--jq"], state.get(path, {}))
        case _ if path in state:
            return state[path]["value"] if "--jq" in options else json.dumps(state[path])
        case _:
            raise Refused("gh: Not Found (HTTP 404)")
    return ""


def _subject(path: str, query: str, said: dict[str, Any]) -> str:
    repository = path.removeprefix("repos/").removesuffix("/actions/oidc/customization/sub")
    condition, otherwise = query.split(" then ", 1)
    assert condition == 'if .use_default == false and .include_claim_keys != ["repo","context"]'
    error, prefix = otherwise.split(" else ")
    assert prefix == f'.sub_claim_prefix // "repo:{repository}" end'
    if said.get("use_default") is False and said.get("include_claim_keys") != ["repo", "context"]:
        raise Refused("error: " + json.loads(error.removeprefix("error(").removesuffix(")")))
    return said.get("sub_claim_prefix") or f"repo:{repository}"


@cache
def _client(service: str, _address: str) -> Any:
    return boto3.client(service)


def aws(call: Call) -> str:
    """AWS's command, by boto3, which checks each argument."""
    (service, verb), options = call.options()
    if verb == "add-client-id-to-open-id-connect-provider":  # which moto has not; it fails where there is none
        providers = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        there = providers.get_open_id_connect_provider(options["--open-id-connect-provider-arn"]).client_id_list
        there += {options["--client-id"]} - {*there}
        return ""
    names = {"--url": "Url", "--client-id-list": "ClientIDList"}
    values: dict[str, Any] = {
        names.get(key, "".join(part.capitalize() for part in key.strip("-").split("-"))): value
        for key, value in options.items()
        if key not in {"--output", "--query"}
    }
    if "ClientIDList" in values:
        values["ClientIDList"] = [values["ClientIDList"]]
    answer = getattr(_client(service, os.environ["AWS_ENDPOINT_URL"]), verb.replace("-", "_"))(**values)
    del answer["ResponseMetadata"]
    return answer[options["--query"]] if "--query" in options else json.dumps(answer, default=str)


def az(call: Call) -> str:  # noqa: PLR0912 - a case for each command
    """Azure's command as far as these commands use it ("az ad app", "az role assignment" in Microsoft's reference)."""
    verb, options = call.options("--all")
    state = call.state = call.state or {"apps": [], "principals": [], "trust": {}, "roles": []}

    def known(app: str) -> None:
        if app not in [each["appId"] for each in state["apps"]]:
            raise Refused(
                f"ERROR: Resource '{app}' does not exist or one of its queried reference-property objects are not present."
            )

    match verb:
        case ["account", "show"]:
            return {"tenantId": _TENANT, "id": _SUBSCRIPTION}[options["--query"]]
        case ["ad", "app", "create"]:
            there = [each for each in state["apps"] if each["displayName"] == options["--display-name"]]
            app = _APP.replace("3", str(len(state["apps"]) + 3))
            state["apps"] += [] if there else [{"appId": app, "displayName": options["--display-name"]}]
        case ["ad", "app", "list"]:
            [name] = re.findall("^displayName eq '(.*)'$", options["--filter"])
            apps = [each for each in state["apps"] if each["displayName"] == name]
            return "\n".join(each["appId"] for each in apps) if "--query" in options else json.dumps(apps)
        case ["ad", "sp", "show"]:
            known(options["--id"])
            if options["--id"] not in state["principals"]:
                raise Refused("ERROR: no such principal")
        case ["ad", "sp", "create"]:
            known(options["--id"])
            state["principals"].append(options["--id"])
        case ["ad", "app", "federated-credential", "list"]:
            known(options["--id"])
            trust = state["trust"].get(options["--id"], {}).values()
            return json.dumps([{"description": None, "id": "4", **each} for each in trust])
        case ["ad", "app", "federated-credential", ("create" | "update") as what]:
            known(options["--id"])
            given = json.loads(options["--parameters"])
            name = given["name"] if what == "create" else options["--federated-credential-id"]
            trust = state["trust"].setdefault(options["--id"], {})
            if (name in trust) == (what == "create"):
                raise Refused("ERROR: FederatedIdentityCredential with this name, issuer and subject: another verb")
            trust[name] = given
        case [("acr" | "storage" | "keyvault") as kind, *_, "show"]:
            return f"/subscriptions/{_SUBSCRIPTION}/resourceGroups/Images/providers/{_KINDS[kind]}/{options['--name']}"
        case ["role", "assignment", "create"]:
            assert options["--assignee"] in state["principals"]
            given = {
                "principalName": options["--assignee"],
                "roleDefinitionName": options["--role"],
                "scope": options["--scope"],
            }
            state["roles"] += [given] if given not in state["roles"] else []
        case ["role", "assignment", "list"]:
            assert "--all" in options
            return json.dumps([each for each in state["roles"] if each["principalName"] == options["--assignee"]])
        case _:
            raise Refused(f"ERROR: '{verb}' is misspelled or not recognized by the system.")
    return ""


def gcloud(call: Call) -> str:  # noqa: PLR0912 - a case for each command
    """Google's command as far as these commands use it ("gcloud iam", "gcloud artifacts" in Google's reference)."""
    verb, options = call.options("--enabled")
    state = call.state = call.state or {"apis": [], "pools": {}, "providers": {}, "accounts": [], "policies": {}}

    def show(value: Any) -> str:
        assert options.get("--format") == "json" or verb[-2] == "describe"
        return json.dumps(value)

    def known(place: str, name: str) -> None:
        if name not in state[place]:
            raise Refused(f"ERROR: (gcloud) NOT_FOUND: {name}")

    if verb[:2] == ["iam", "workload-identity-pools"]:
        assert (options["--location"], options["--project"]) == ("global", "acme-ml")
    match verb:
        case ["config", "get-value", "project"]:
            return "acme-ml"
        case ["services", "enable", *names]:
            state["apis"] += names
        case ["services", "list"]:
            return show([{"config": {"name": name}, "state": "ENABLED"} for name in state["apis"]])
        case ["projects", "describe", "acme-ml"]:
            assert options["--format"] == "value(projectNumber)"
            return _NUMBER
        case ["iam", "workload-identity-pools", "create", name]:
            assert re.fullmatch("[a-z0-9-]{4,32}", name)
            state["pools"][name] = {"name": f"{_POOL}/{name}", "state": "ACTIVE"}
        case ["iam", "workload-identity-pools", "describe", name]:
            known("pools", name)
            return show(state["pools"][name])
        case ["iam", "workload-identity-pools", "providers", ("create-oidc" | "update-oidc") as what, name]:
            pool = options["--workload-identity-pool"]
            known("pools", pool)
            if (f"{pool}/{name}" in state["providers"]) == (what == "create-oidc"):
                raise Refused("ERROR: (gcloud) ALREADY_EXISTS or NOT_FOUND")
            state["providers"][f"{pool}/{name}"] = {
                "name": f"{_POOL}/{pool}/providers/{name}",
                "state": "ACTIVE",
                "oidc": {"issuerUri": options["--issuer-uri"]},
                "attributeMapping": dict(each.split("=", 1) for each in options["--attribute-mapping"].split(",")),
                "attributeCondition": options["--attribute-condition"],
            }
        case ["iam", "workload-identity-pools", "providers", "list"]:
            pool = options["--workload-identity-pool"]
            return show([each for name, each in state["providers"].items() if name.partition("/")[0] == pool])
        case ["iam", "service-accounts", "create", name]:
            assert re.fullmatch("[a-z][a-z0-9-]{4,28}[a-z0-9]", name)
            state["accounts"].append(f"{name}@{options['--project']}.iam.gserviceaccount.com")
        case ["iam", "service-accounts", "describe", name]:
            known("accounts", name)
            return show({"email": name})
        case [*kind, "add-iam-policy-binding", name]:
            assert options["--condition"] == "None"
            if options["--member"].startswith("serviceAccount:"):
                known("accounts", options["--member"].partition(":")[2])
            bindings = state["policies"].setdefault(f"{' '.join(kind)} {name}", [])
            bindings.append({"role": options["--role"], "members": [options["--member"]]})
        case [*kind, "get-iam-policy", name]:
            bindings = state["policies"].get(f"{' '.join(kind)} {name}")
            return show({"etag": "ACAB", **({"bindings": bindings} if bindings else {})})
        case _:
            raise Refused(f"ERROR: (gcloud) Invalid choice: '{verb}'.")
    return ""


_COMMANDS: Final[dict[str, tuple[Callable[[Call], str], str]]] = {
    "gh": (gh, "github.json"),
    "aws": (aws, "aws.json"),
    "az": (az, "azure.json"),
    "gcloud": (gcloud, "google.json"),
}
"""What each does, and the file of its service's state in the folder of the commands."""


class _Server(socketserver.TCPServer):
    """Does what one command is called for."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name, (self._command, file) = name, _COMMANDS[name]
        self._store = folder / file

    def call(self, words: Sequence[str], login: str, text: str) -> str:
        token, host, key = login.split(" ")
        if self.name == "gh" and (token, host) != ("hush", "github.com"):
            raise Refused(_NO_LOGIN)
        if self.name == "aws" and key != "b":
            raise Refused("Unable to locate credentials")
        call = Call(words, text, json.loads(self._store.read_text()) if self._store.exists() else {})
        answer = self._command(call)
        self._store.write_text(json.dumps(call.state))
        return answer


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        try:
            words = [self._word() for _ in range(int(self._word()))]
            status, text = 0, self.server.call(words, self._word(), self._word())
        except Exception as error:
            status, text = 1, str(error) or repr(error)
        self.wfile.write(f"{status}\0{text}\n\0".encode())

    def _word(self) -> str:
        word = bytearray()
        while (byte := self.rfile.read(1)) not in {b"", b"\0"}:
            word += byte
        return word.decode()


@contextmanager
def clouds(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[None]:
    """Have commands in a folder, first on PATH, with empty services behind them; `gh` is logged in."""
    servers = [_Server(folder, name) for name in names]
    for each in servers:
        Thread(target=each.serve_forever, args=(0.01,), daemon=True).start()
        (folder / each.name).write_text(_PROGRAM.replace("{port}", str(each.server_address[1])))
        (folder / each.name).chmod(0o755)
    monkeypatch.setenv("GH_TOKEN", "hush")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    try:
        yield
    finally:
        for each in servers:
            each.shutdown()
            each.server_close()
