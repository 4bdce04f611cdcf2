"""A stand-in for Pulumi's Kubernetes plugin, which no package registry has: real calls to a real API server.

It is run as ``python -m tests.fakes.plugin tests.fakes.kubernetes.plugin``. Objects are applied by the server
(server-side apply, strict field validation), awaited as the plugin awaits them, and their deletion too; charts are
installed by Helm itself. What it takes from the plugin are names, annotations, limits of time, and which changes replace
an object or a cluster.
"""

# ruff: noqa: ARG002, N802 - the service's methods are named, and take what they take, as the protocol has it

from __future__ import annotations

import base64
import functools
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import requests
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import provider_pb2, status_pb2

from containers.errors import SlipwayError
from tests.cluster.programs import program
from toolchain.provider.provider_base import (
    Properties,
    Provider,
    decode_struct,
    encode_struct,
    has_unknown,
    plain,
    serve,
)

RELEASE: Final = "kubernetes:helm.sh/v3:Release"
MANAGER: Final = "pulumi-test"
SECONDS: Final = 600.0
"""How long an object is awaited, where neither a resource nor its annotation says (await.go, `Update`)."""
REPLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "ConfigMap": ("data", "binaryData"),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    "ResourceQuota": ("spec.scopes",),
    "RoleBinding": ("roleRef",),
    "Secret": ("type", "stringData", "data"),
    "Service": ("spec.clusterIP",),
}
"""By kind, what makes an object anew, as the plugin has it by default; what else changes is changed in place.

pulumi-kubernetes, provider/pkg/provider/diff.go.
"""


_VARIABLE: Final = "PULUMI_K8S_DELETE_UNREACHABLE"
_GONE: Final = f"If the cluster was deleted, rerun the operation with {_VARIABLE} set to true"

IDENTITY: Final = ("metadata.name", "metadata.namespace")
"""Where these change, the new object is made before the old one is deleted."""


class Api:
    """A cluster, as a kubeconfig and a context name it."""

    def __init__(self, kubeconfig: str, context: str) -> None:
        self.path = Path(kubeconfig).expanduser()
        try:
            config = yaml.safe_load(self.path.read_text())
        except OSError as error:
            raise SlipwayError(f"configured Kubernetes cluster is unreachable: {error}") from error
        name = context or config["current-context"]
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        if name not in contexts:
            raise SlipwayError(f'configured Kubernetes cluster is unreachable: context "{name}" does not exist')
        self.context = name
        cluster = {entry["name"]: entry["cluster"] for entry in config["clusters"]}[contexts[name]["cluster"]]
        user = {entry["name"]: entry["user"] for entry in config["users"]}[contexts[name]["user"]]
        self.server = cluster["server"]
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = cluster["certificate-authority"]
        self.session.headers["Authorization"] = f"Bearer {user['token']}"

    @functools.cache  # noqa: B019 - one API for the life of the process
    def _resource(self, version: str, kind: str) -> tuple[str, bool]:
        """Return a kind's path in the API, and whether it has namespaces."""
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        response = self.session.get(f"{self.server}{base}", timeout=30)
        for resource in response.json().get("resources", []):
            if resource["kind"] == kind and "/" not in resource["name"]:
                return f"{base}/{{}}{resource['name']}", resource["namespaced"]
        raise SlipwayError(f"no matches for kind {kind} in version {version}")

    def url(self, manifest: Properties) -> str:
        """Return an object's address."""
        path, namespaced = self._resource(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        between = f"namespaces/{metadata.get('namespace', 'default')}/" if namespaced else ""
        return f"{self.server}{path.format(between)}/{metadata['name']}"

    def find(self, manifest: Properties) -> Properties | None:
        """Return an object; None if it does not exist."""
        response = self.session.get(self.url(manifest), timeout=30)
        if response.status_code == 404:
            return None
        return _read(response)

    def apply(self, manifest: Properties) -> Properties:
        """Apply an object on the server, which refuses unknown fields and what another manager has set.

        What kubectl has set is taken over, whatever its command (await.go:858, fixCSAFieldManagers).
        """

        def applied(**forced: str) -> requests.Response:
            return self.session.patch(
                self.url(manifest),
                params={"fieldManager": MANAGER, "fieldValidation": "Strict", **forced},
                headers={"Content-Type": "application/apply-patch+yaml"},
                data=json.dumps(manifest),
                timeout=60,
            )

        response = applied()
        others = re.findall(r'conflicts? with "([^"]+)"', response.text.replace('\\"', '"'))
        if response.status_code == 409 and all(each.startswith("kubectl") for each in others):
            response = applied(force="true")
        return _read(response)

    def delete(self, manifest: Properties, seconds: float) -> None:
        """Delete an object and wait for the end of its deletion."""
        response = self.session.delete(self.url(manifest), params={"propagationPolicy": "Foreground"}, timeout=60)
        if response.status_code != 404:
            _read(response)
        end = time.monotonic() + seconds
        while self.find(manifest) is not None:
            if time.monotonic() > end:
                raise SlipwayError(f"{_named(manifest)} is still there: finalizers {_finalizers(self.find(manifest))}")
            time.sleep(0.2)

    def pods(self, manifest: Properties) -> list[Properties]:
        """Return the pods of a workload."""
        labels = (
            manifest["spec"].get("selector", {}).get("matchLabels")
            or manifest["spec"]["template"]["metadata"]["labels"]
        )
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        space = manifest["metadata"]["namespace"]
        response = self.session.get(
            f"{self.server}/api/v1/namespaces/{space}/pods", params={"labelSelector": selector}, timeout=30
        )
        items: list[Properties] = _read(response)["items"]
        return items


def _read(response: requests.Response) -> Properties:
    content: Properties = response.json()
    if not response.ok:
        raise SlipwayError(f"the server refused: {content.get('message', response.text)}")
    return content


def _named(manifest: Properties) -> str:
    return f"{manifest['kind']} {manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


def _finalizers(manifest: Properties | None) -> list[str]:
    return [] if manifest is None else manifest["metadata"].get("finalizers", [])


def _conditions(status: Properties) -> dict[str, Properties]:
    return {entry["type"]: entry for entry in status.get("conditions", [])}


def _done(manifest: Properties) -> bool | str:
    """Tell whether an object is as it should be; a text tells why it never will be."""
    status = manifest.get("status", {})
    conditions = _conditions(status)
    if manifest["kind"] == "Job":
        if conditions.get("Failed", {}).get("status") == "True":
            return str(conditions["Failed"].get("message"))
        return conditions.get("Complete", {}).get("status") == "True"
    if manifest["kind"] == "Deployment":
        replicas = manifest["spec"].get("replicas", 1)
        current = status.get("observedGeneration") == manifest["metadata"]["generation"]
        return bool(current and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == replicas)
    if manifest["kind"] == "PersistentVolumeClaim":
        return bool(status.get("phase") == "Bound")
    return True


def _reasons(pods: list[Properties]) -> str:
    """Say what keeps pods from running, or ended them."""
    reasons = []
    for pod in pods:
        status = pod.get("status", {})
        reasons += [
            f"{condition['reason']}: {condition['message']}"
            for condition in _conditions(status).values()
            if condition["status"] == "False" and condition.get("message")
        ]
        reasons += [
            f"{container['name']}: {state.get('reason')}: {state.get('message', '')}".strip()
            for container in status.get("containerStatuses", [])
            for state in container.get("state", {}).values()
            if state.get("message") or state.get("reason")
        ]
    return "; ".join(dict.fromkeys(reasons))


class KubernetesProvider(Provider):
    """The stand-in; see the module."""

    version = "4.34.2"

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        olds, news = plain(decode_struct(request.old_inputs)), plain(decode_struct(request.news))
        changed = sorted(
            key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key) and key != "version"
        )
        response = _diff(changed, _moved(olds, news, changed))
        response.deleteBeforeReplace = False  # the other cluster's objects are made first (provider.go, DiffConfig)
        return response

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        settings = {name.rpartition(":")[2]: value for name, value in request.variables.items()}
        self._where = settings.get("kubeconfig") or os.environ.get("KUBECONFIG") or "~/.kube/config"
        self._context = settings.get("context", "")
        self._upserts = settings.get("upsertExistingObjects") == "true"
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True)

    @functools.cached_property
    def _api(self) -> Api:
        return Api(self._where, self._context)

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Name the version of a chart in a folder, so that another one is an update (helm_release.go:329)."""
        chart = (
            Path(request.news.fields["chart"].string_value, "Chart.yaml") if "chart" in request.news.fields else None
        )
        if chart and _type(request.urn) == RELEASE and chart.is_file():
            version = str(yaml.safe_load(chart.read_text())["version"])
            return provider_pb2.CheckResponse(inputs=encode_struct({**decode_struct(request.news), "version": version}))
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        olds, news = plain(decode_struct(request.old_inputs)), plain(decode_struct(request.news))
        changed = sorted(key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key))
        if _type(request.urn) == RELEASE:
            return _diff(changed, [key for key in changed if key in {"name", "namespace"}])
        paths = (*IDENTITY, *REPLACES.get(news["kind"], ()))
        replaces = [path for path in paths if _at(olds, path) != _at(news, path)]
        if self._unready(news):
            replaces.append('.metadata.annotations["pulumi.com/replaceUnready"]')
        return _diff(changed, replaces)

    def _unready(self, manifest: Properties) -> bool:
        """Tell whether a Job that wants to be replaced then is there and has not ended well (provider.go, Diff)."""
        annotations = manifest["metadata"].get("annotations") or {}
        if manifest["kind"] != "Job" or annotations.get("pulumi.com/replaceUnready") != "true":
            return False
        current = self._api.find(manifest)
        return current is not None and _done(current) is not True

    def _unreachable(self) -> str:
        """Return why the cluster is not reached; empty where it is."""
        try:
            self._api.session.get(f"{self._api.server}/version", timeout=30)
        except (SlipwayError, requests.RequestException) as error:
            return f"configured Kubernetes cluster is unreachable: {error}"
        return ""

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Return what the inputs name as the cluster has it (provider.go:1899, helm_release.go:1032).

        The inputs of a release are those of its last attempt, and nothing says that this failed.
        """
        if reason := self._unreachable():
            self.host.log(request.urn, reason, "WARNING")
            if _forgets():
                return provider_pb2.ReadResponse()
            raise SlipwayError(f"failed to read resource state due to unreachable cluster. {_GONE}")
        known = plain(decode_struct(request.properties))
        if _type(request.urn) == RELEASE:
            try:
                status = self._helm("status", known["name"], "--namespace", known["namespace"], "--output", "json")
            except SlipwayError as error:
                if "release: not found" not in str(error):
                    raise
                return provider_pb2.ReadResponse()
            known["status"]["status"] = json.loads(status)["info"]["status"]
            inputs = {key: value for key, value in known.items() if key != "status"}
            return provider_pb2.ReadResponse(
                id=request.id, inputs=encode_struct(inputs), properties=encode_struct(known)
            )
        current = self._api.find(known)
        if current is None:
            return provider_pb2.ReadResponse()
        inputs = plain(decode_struct(request.inputs))
        if known["kind"] == "Secret":  # the API server has its text in another field
            text = {key: base64.b64decode(value).decode() for key, value in current.get("data", {}).items()}
            current = {**current, "stringData": text}
        seen = _pruned(current, inputs)
        current["metadata"].pop("managedFields", None)
        return provider_pb2.ReadResponse(id=request.id, inputs=encode_struct(seen), properties=encode_struct(current))

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        inputs = decode_struct(request.properties)
        if request.preview or has_unknown(inputs):
            return provider_pb2.CreateResponse(properties=request.properties)
        manifest = plain(inputs)
        if _type(request.urn) == RELEASE:
            name = f"{manifest['namespace']}/{manifest['name']}"
            state = self._released("install", name, request.properties, context)
        else:
            if not self._upserts and self._api.find(manifest) is not None:
                raise SlipwayError(f"{_named(manifest)} already exists")
            state = self._api.apply(manifest)
            name = f"{manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"
            try:
                state = self._await(manifest, request.urn, request.timeout)
            except SlipwayError as error:  # it is there, and the next update goes on with it
                _init_failed(context, name.lstrip("/"), state, request.properties, str(error))
                raise
        return provider_pb2.CreateResponse(id=name.lstrip("/"), properties=encode_struct(state))

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        inputs = decode_struct(request.news)
        if request.preview or has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=request.news)
        manifest = plain(inputs)
        if _type(request.urn) == RELEASE:
            state = self._released("upgrade", request.id, request.news, context)
            return provider_pb2.UpdateResponse(properties=encode_struct(state))
        state = self._api.apply(manifest)
        try:
            state = self._await(manifest, request.urn, request.timeout)
        except SlipwayError as error:  # it is as asked for, and the next update goes on with it
            _init_failed(context, request.id, state, request.news, str(error))
            raise
        return provider_pb2.UpdateResponse(properties=encode_struct(state))

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        known = plain(decode_struct(request.properties))
        is_release = _type(request.urn) == RELEASE
        if reason := self._unreachable():
            if _forgets() and not is_release:
                return empty_pb2.Empty()
            raise SlipwayError(f"can't delete Helm Release. Reason: {reason}" if is_release else f"{reason}. {_GONE}")
        if is_release:
            words = ["uninstall", known["name"], "--namespace", known["namespace"]]
            self._helm(*words, *_waiting(known))  # one that is gone is an error (provider/helm_release.go, Delete)
        else:
            self._api.delete(known, _seconds(known, request.timeout))
        return empty_pb2.Empty()

    def _await(self, manifest: Properties, urn: str, limit: float) -> Properties:
        """Wait until an object is as it should be, and show beside it what keeps its pods from running."""
        annotations = manifest["metadata"].get("annotations", {})
        seconds = _seconds(manifest, limit)
        end = time.monotonic() + seconds
        logged: list[str] = []
        while True:
            current = self._api.find(manifest)
            if current is None:
                raise SlipwayError(f"{_named(manifest)} was deleted while it was awaited")
            done = annotations.get("pulumi.com/skipAwait") == "true" or _done(current)
            if done is True:
                current["metadata"].pop("managedFields", None)
                return current
            reasons = _reasons(self._api.pods(current)) if "template" in current.get("spec", {}) else ""
            if done or time.monotonic() > end:
                why = done or f"not ready within {seconds:.0f} s"
                # A Job's error has all that its pods said (await/job.go, errorMessages).
                told = dict.fromkeys([*(logged if manifest["kind"] == "Job" else []), reasons])
                raise SlipwayError(f"{_named(manifest)}: {why} {'; '.join(told)}".strip())
            if reasons and reasons not in logged:
                logged.append(reasons)
                self.host.log(urn, reasons, "WARNING")
            time.sleep(0.3)

    def _released(self, verb: str, name: str, inputs: struct_pb2.Struct, context: grpc.ServicerContext) -> Properties:
        """Install or upgrade a release; one that then has failed is there, and the next update upgrades it."""
        release = plain(decode_struct(inputs))
        words = [verb, release["name"], release["chart"], "--namespace", release["namespace"]]
        version = ["--version", release["version"]] if "version" in release else []
        state = {**release, "status": {"name": release["name"], "namespace": release["namespace"]}}
        try:
            self._helm(
                *words, *version, *_waiting(release), "--values", "-", text=json.dumps(release.get("values", {}))
            )
        except SlipwayError as error:
            if "cannot re-use a name" not in str(error) and self._failed(release):
                _init_failed(context, name, {**state, "status": {"status": "failed"}}, inputs, str(error))
            raise
        return state | {"status": {**state["status"], "status": "deployed"}}

    def _failed(self, release: Properties) -> bool:
        try:
            status = self._helm("status", release["name"], "--namespace", release["namespace"], "--output", "json")
        except SlipwayError:
            return False
        return bool(json.loads(status)["info"]["status"] == "failed")

    def _helm(self, *words: str, text: str = "") -> str:
        done = subprocess.run(
            [program("helm"), *words, "--kubeconfig", self._api.path, "--kube-context", self._api.context],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HELM_CACHE_HOME": "/nonexistent"},
        )
        if done.returncode:
            raise SlipwayError(f"helm {words[0]}: {' '.join(done.stderr.split())}")
        return done.stdout


def _seconds(manifest: Properties, limit: float) -> float:
    """Return how long an object is awaited: as its resource says, or its annotation (metadata/overrides.go)."""
    annotations = manifest["metadata"].get("annotations") or {}
    return limit or float(annotations.get("pulumi.com/timeoutSeconds", SECONDS))


def _active_cluster(settings: Properties) -> Properties | None:
    """Return the cluster that a kubeconfig, given as a path or a text, names; None where none is known (util.go:135-226)."""
    if not (text := settings.get("kubeconfig")):
        return None
    path = Path(text).expanduser()
    config = yaml.safe_load(path.read_text() if path.exists() else text)
    if not isinstance(config, dict):
        return None
    contexts = {entry["name"]: entry["context"] for entry in config.get("contexts", [])}
    clusters = {entry["name"]: entry["cluster"] for entry in config.get("clusters", [])}
    context = contexts.get(settings.get("context") or config.get("current-context"), {})
    return clusters.get(context.get("cluster"))


def _moved(olds: Properties, news: Properties, changed: list[str]) -> list[str]:
    """Return the settings by which a provider is another cluster's (provider.go, DiffConfig)."""
    identifiers = olds.get("clusterIdentifier"), news.get("clusterIdentifier")
    clusters = _active_cluster(olds), _active_cluster(news)
    if all(identifiers):
        return ["clusterIdentifier"] if identifiers[0] != identifiers[1] else []
    if None in clusters or clusters[0] == clusters[1]:
        return []
    return [key for key in changed if key in {"kubeconfig", "context"}]


def _waiting(release: Properties) -> list[str]:
    """Return what has Helm wait, for the release's seconds or 300."""
    return [] if release.get("skipAwait") else ["--wait", "--timeout", f"{int(release.get('timeout', 300))}s"]


def _init_failed(
    context: grpc.ServicerContext, name: str, state: Properties, inputs: struct_pb2.Struct, reason: str
) -> None:
    """Report to the engine, in gRPC's details, that an object exists but failed to become ready."""
    failed = provider_pb2.ErrorResourceInitFailed(
        id=name, properties=encode_struct(state), reasons=[reason], inputs=inputs
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason)
    status.details.add().Pack(failed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))


def _forgets() -> bool:
    """Tell whether what was in a cluster that is not reached is to be forgotten."""
    return os.environ.get(_VARIABLE) == "true"


def _pruned(live: Any, inputs: Any) -> Any:
    """Return what the inputs name, as it is (util.go:234, pruneMap)."""
    if isinstance(live, dict) and isinstance(inputs, dict):
        return {key: _pruned(live[key], value) for key, value in inputs.items() if key in live}
    if isinstance(live, list) and isinstance(inputs, list) and len(live) == len(inputs):
        return [_pruned(*pair) for pair in zip(live, inputs, strict=True)]
    return live


def _type(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _at(manifest: Properties, path: str) -> object:
    value: object = manifest
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _diff(changed: list[str], replaces: list[str]) -> provider_pb2.DiffResponse:
    some = provider_pb2.DiffResponse.DIFF_SOME if changed or replaces else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(
        changes=some,
        diffs=changed,
        replaces=replaces,
        deleteBeforeReplace=bool(replaces) and not {*IDENTITY, "name", "namespace"} & set(replaces),
    )


if __name__ == "__main__":
    serve(KubernetesProvider)
