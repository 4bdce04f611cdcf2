"""A stand-in for Pulumi's AWS plugin, which no package registry has: the tokens that Slipway uses, and real AWS calls.

It is run as ``python -m tests.fakes.plugin tests.fakes.aws.plugin``, and calls what ``AWS_ENDPOINT_URL`` names through
boto3, which validates and signs every request. What it takes from the plugin are names, defaults and which changes replace a resource; that it needs
credentials to start, also for a preview; and that it refuses another account than those allowed.
"""

# ruff: noqa: ARG002, N802 - the service's methods are named, and take what they take, as the protocol has it

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
import grpc
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from containers.errors import SlipwayError
from tests.fakes.aws import resource_reads as reads
from tests.fakes.aws.calls import note_calls, unanswered
from tests.fakes.aws.resource_types import FUNCTIONS, RUNNERS, Client, Kind, retag, taggable
from toolchain.provider.provider_base import Host, Properties, Provider, decode_struct, encode_struct, plain, serve

NO_CREDENTIALS: Final = "No valid credential sources found."
"""How the plugin begins its refusal to start."""


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError, ValueError) as error:
        raise SlipwayError(f"{what}: {' '.join(str(error).split())}") from error


def _mutability(inputs: Properties) -> dict[str, Any]:
    """Return the arguments of a repository's mutability: AWS refuses an empty list of filters."""
    filters = inputs.get("imageTagMutabilityExclusionFilters")
    more = {"imageTagMutabilityExclusionFilters": filters} if filters else {}
    return {"imageTagMutability": inputs.get("imageTagMutability", "MUTABLE"), **more}


def _create_repository(client: Client, inputs: Properties) -> tuple[str, Properties]:
    repository = client.create_repository(
        repositoryName=inputs["name"],
        **_mutability(inputs),
        imageScanningConfiguration=inputs.get("imageScanningConfiguration", {}),
        encryptionConfiguration=inputs.get("encryptionConfigurations", [{"encryptionType": "AES256"}])[0],
    )["repository"]
    more = {
        "arn": repository["repositoryArn"],
        "registryId": repository["registryId"],
        "repositoryUrl": repository["repositoryUri"],
    }
    return inputs["name"], {**inputs, **more}


def _update_repository(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    client.put_image_tag_mutability(repositoryName=name, **_mutability(news))
    scanning = news.get("imageScanningConfiguration", {})
    client.put_image_scanning_configuration(repositoryName=name, imageScanningConfiguration=scanning)
    return {**olds, **news}


def _delete_repository(client: Client, name: str, olds: Properties) -> None:
    client.delete_repository(repositoryName=name, force=olds.get("forceDelete", False))


def _put_policy(client: Client, inputs: Properties) -> tuple[str, Properties]:
    policy = client.put_lifecycle_policy(repositoryName=inputs["repository"], lifecyclePolicyText=inputs["policy"])
    return inputs["repository"], {**inputs, "registryId": policy["registryId"]}


def _create_cache_rule(client: Client, inputs: Properties) -> tuple[str, Properties]:
    """Moto has no such action."""
    unanswered(client, "create_pull_through_cache_rule", **inputs)
    return inputs["ecrRepositoryPrefix"], inputs


def _delete_cache_rule(client: Client, name: str, _: Properties) -> None:
    unanswered(client, "delete_pull_through_cache_rule", ecrRepositoryPrefix=name)


KINDS: Final = {
    "aws:ecr/repository:Repository": Kind(
        _create_repository,
        _update_repository,
        _delete_repository,
        reads.repository,
        frozenset({"name", "encryptionConfigurations"}),
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": Kind(
        _put_policy,
        lambda client, _, __, news: _put_policy(client, news)[1],
        lambda client, name, _: client.delete_lifecycle_policy(repositoryName=name),
        reads.lifecycle_policy,
        frozenset({"repository", "policy"}),
        ends_first=True,
    ),
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": Kind(
        _create_cache_rule,
        lambda client, _, __, news: _create_cache_rule(client, news)[1],
        _delete_cache_rule,
        reads.remembered,
        frozenset({"ecrRepositoryPrefix", "upstreamRegistryUrl"}),
    ),
    **RUNNERS,
}


class AwsProvider(Provider):
    """Provides :data:`KINDS`, :data:`FUNCTIONS` and ``getAuthorizationToken``."""

    version = "7.51.1"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._session = boto3.Session()

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        return _diff(
            plain(decode_struct(request.old_inputs)), plain(decode_struct(request.news)), frozenset(), first=False
        )

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Find credentials, and see whose they are, unless told not to."""
        given = {name.rpartition(":")[2]: value for name, value in request.variables.items()}
        self._session = boto3.Session(
            region_name=given["region"],
            aws_access_key_id=given.get("accessKey"),
            aws_secret_access_key=given.get("secretKey"),
        )
        note_calls(self._session.events)
        self._session.client = _once(self._session.client)
        if self._session.get_credentials() is None:
            raise SlipwayError(f"{NO_CREDENTIALS} Please see the AWS provider's documentation")
        allowed = json.loads(given.get("allowedAccountIds", "[]"))
        if allowed:
            with _one_line("unable to validate AWS credentials"):
                account = self._session.client("sts").get_caller_identity()["Account"]
            if account not in allowed:
                raise SlipwayError(f"AWS account ID not allowed: {account}")
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True)

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        args = plain(decode_struct(request.args))
        if request.tok in FUNCTIONS:
            with _one_line(request.tok):
                return _invoked(FUNCTIONS[request.tok](self._session, args))
        assert request.tok == "aws:ecr/getAuthorizationToken:getAuthorizationToken", request.tok
        with _one_line(request.tok):
            answer = self._session.client("ecr").get_authorization_token(registryIds=[args["registryId"]])
        data = answer["authorizationData"][0]
        username, _, password = base64.b64decode(data["authorizationToken"]).decode().partition(":")
        token = {
            "authorizationToken": data["authorizationToken"],
            "expiresAt": data["expiresAt"].isoformat(),
            "id": self._session.region_name,
            "password": password,
            "proxyEndpoint": data["proxyEndpoint"],
            "region": self._session.region_name,
            "userName": username,
        }
        return _invoked(token)

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        olds, news = plain(decode_struct(request.old_inputs)), plain(decode_struct(request.news))
        kind = KINDS[_type(request.urn)]
        return _diff(olds, news, kind.replaces, first=kind.ends_first or "name" in news)

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        if request.preview:
            return provider_pb2.CreateResponse(properties=request.properties)
        with _one_line(request.urn.rpartition("::")[2]):
            kind = KINDS[_type(request.urn)]
            identifier, outputs = kind.create(
                self._session.client(kind.service), plain(decode_struct(request.properties))
            )
        return provider_pb2.CreateResponse(id=identifier, properties=encode_struct(outputs))

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Read back what the state has, of its inputs those alone that were given; in an import, all that there is."""
        kind = KINDS[_type(request.urn)]
        known, declared = plain(decode_struct(request.properties)), plain(decode_struct(request.inputs))
        with _one_line(request.urn.rpartition("::")[2]):
            known = known or reads.unpacked(kind.shape, request.id)
            try:
                resource = kind.read(self._session.client(kind.service), request.id, known)
            except reads.Gone:
                return provider_pb2.ReadResponse()
            except ClientError as error:
                if reads.not_found(error):
                    return provider_pb2.ReadResponse()
                raise
        inputs = {key: resource.inputs.get(key, value) for key, value in declared.items()} or resource.inputs
        outputs = {**known, **resource.inputs, **resource.more}
        return provider_pb2.ReadResponse(
            id=resource.id or request.id, inputs=encode_struct(inputs), properties=encode_struct(outputs)
        )

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        kind = KINDS[_type(request.urn)]
        olds, news = plain(decode_struct(request.olds)), plain(decode_struct(request.news))
        if request.preview:
            known = {key: value for key, value in {**olds, **news}.items() if key not in kind.moves}
            return provider_pb2.UpdateResponse(properties=encode_struct(known))
        with _one_line(request.urn.rpartition("::")[2]):
            client = self._session.client(kind.service)
            outputs = kind.update(client, request.id, olds, news)
            before, after = olds.get("tags"), news.get("tags")
            if before != after and isinstance(after, dict):  # a group of machines has a list, and minds it itself
                retag(client, kind.service, taggable(kind, request.id, outputs), before or {}, after)
        return provider_pb2.UpdateResponse(properties=encode_struct(outputs))

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        with _one_line(request.urn.rpartition("::")[2]):
            kind = KINDS[_type(request.urn)]
            kind.delete(self._session.client(kind.service), request.id, plain(decode_struct(request.properties)))
        return empty_pb2.Empty()


def _once(make: Callable[[str], Client]) -> Callable[[str], Client]:
    """Return a function that makes a client of each service once: each takes up to 0.2 s of CPU time."""
    made: dict[str, Client] = {}
    lock = threading.Lock()

    def client(service: str) -> Client:
        with lock:
            if service not in made:
                made[service] = make(service)
            return made[service]

    return client


def _invoked(outputs: Properties) -> provider_pb2.InvokeResponse:
    response = provider_pb2.InvokeResponse()
    getattr(response, "return").CopyFrom(encode_struct(outputs))
    return response


def _type(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _diff(olds: Properties, news: Properties, replaces: frozenset[str], *, first: bool) -> provider_pb2.DiffResponse:
    """Say what changed; ``first``: a replaced resource is deleted before there is another."""
    changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key) and key != "version")
    some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(
        changes=some, diffs=changed, replaces=[key for key in changed if key in replaces], deleteBeforeReplace=first
    )


if __name__ == "__main__":
    serve(AwsProvider)
