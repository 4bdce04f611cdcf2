"""``KubernetesRunners`` under Pulumi's mocks: what a cluster is asked for, in which order, and what stays secret."""

from __future__ import annotations

import base64
import copy
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.runners.ec2 import reservation_lookup
from components.runners.kubernetes import build_daemon, gpu_validation, pod
from components.runners.kubernetes.objects.declaration import MARK
from containers.registry.logins import azure_login
from stacks import graph
from stacks.checks import clusters
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_file import ROOT
from stacks.versions.nodes import node, node_names
from tests.fakes.pulumi_mocks import DIGEST, SECRET, Recorder, run
from tests.helpers import kubernetes_schemas
from tests.helpers.every import every
from tests.unit.runners.network_policies import Peer, allowed
from tests.unit.runners.test_app_keys import PKCS1

RELEASE = "kubernetes:helm.sh/v3:Release"
CERTIFICATES = "pulumi-python:dynamic/runners:Certificates"
GITHUB = {"url": "https://github.com/acme", "secret": "github"}


def runners(**values: Any) -> dict[str, Any]:
    return {"kind": "kubernetes", "profile": "eks-p5", "github": GITHUB, **values}


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@functools.cache
def _run_of(arguments: str) -> tuple[Recorder, dict[str, Any]]:
    return run(**json.loads(arguments))


def deployed(**arguments: Any) -> tuple[Recorder, dict[str, Any]]:
    """Return what a stack registers: the same stack is deployed once, and each test has a copy that it may change."""
    return copy.deepcopy(_run_of(json.dumps(arguments)))


def only(**values: Any) -> tuple[Recorder, dict[str, Any]]:
    """Deploy a stack of runners alone."""
    return deployed(chain={}, runners=runners(**values))


def objects(recorder: Recorder) -> dict[str, dict[str, Any]]:
    """Return the cluster's objects, by kind and name."""
    return {
        f"{typ.rpartition(':')[2]} {inputs['metadata']['name']}": inputs
        for (typ, _), inputs in recorder.resources.items()
        if typ.startswith("kubernetes:") and "metadata" in inputs
    }


def test_runners_without_images_declare_all_objects() -> None:
    recorder, values = only()
    assert sorted(objects(recorder)) == [
        "LimitRange runners",
        "Namespace slipway-runners",
        "Namespace slipway-runners-controller",
        "NetworkPolicy build",
        "NetworkPolicy closed",
        "NetworkPolicy controller",
        "NetworkPolicy controller-closed",
        "PodDisruptionBudget runners",
        "PriorityClass slipway-runners-build",
        "ResourceQuota runners",
        "ServiceAccount runner",
    ]
    assert values["outputs"] == {
        "images": {},
        "plan": {},
        "planFiles": {},
        "runners": {"kind": "kubernetes", "namespace": "slipway-runners", "scaleSet": "slipway-runners"},
    }


def test_reserved_nodes_are_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/aws/test_node_reservations.py has them looked up."""
    reserved = {"ids": ["cr-0a1b2c3d4e5f60718"], "region": "eu-west-1", "account": "123456789012", "nodeClass": "gpus"}
    found = {"slipway-runners": "8 of 8 free"}
    monkeypatch.setattr(reservation_lookup, "of_nodes", lambda config: found if config.reservation else {})
    _, values = run(chain={}, runners=runners(reservation=reserved))
    assert values["outputs"]["runners"]["reservations"] == found


def test_manifest_keys_reach_the_api_unchanged() -> None:
    declared = objects(only()[0])
    assert declared["PriorityClass slipway-runners-build"]["preemptionPolicy"] == "Never"
    assert declared["ServiceAccount runner"]["automountServiceAccountToken"] is False
    assert declared["ResourceQuota runners"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "64"
    assert declared["NetworkPolicy closed"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (rule,) = [r for r in declared["NetworkPolicy build"]["spec"]["egress"] if "ipBlock" in r["to"][0]]
    assert rule["to"][0]["ipBlock"]["except"] == ["169.254.0.0/16", "168.63.129.16/32"]
    assert [port["port"] for port in rule["ports"]] == [80, 443]  # and not this machine's own registry's


def test_charts_are_pinned_and_watch_one_namespace() -> None:
    charts = only()[0].of_type(RELEASE)
    controller = charts["runners-gha-runner-scale-set-controller"]
    scale_set = charts["runners-gha-runner-scale-set"]
    for chart in (controller, scale_set):
        assert chart["chart"].startswith("oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set")
        assert chart["version"] == "0.14.2"
    # What ends with the last job of its runners has their time.
    assert scale_set["timeout"] == 720 * 60 + 300
    assert "timeout" not in controller
    assert controller["values"]["flags"]["watchSingleNamespace"] == scale_set["namespace"] == "slipway-runners"
    named = {"namespace": controller["namespace"], "name": controller["values"]["serviceAccount"]["name"]}
    assert scale_set["values"]["controllerServiceAccount"] == named
    assert scale_set["values"]["githubConfigSecret"] == "github"
    assert (scale_set["values"]["minRunners"], scale_set["values"]["maxRunners"]) == (0, 4)
    assert scale_set["values"]["template"]["spec"]["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "p5.48xlarge"
    }


@every("pods", [True, False])
def test_pods_trust_the_certificate_of_the_mirrors(pods: bool) -> None:
    build = {"jobs": True, "nodeSelector": {"a": "b"}}
    own = {"jobPods": True, "daemon": True} if pods else {}
    recorder, _ = run(chain={}, runners=runners(build=build, **own), mirrors={"caCertificate": PEM})
    declared = objects(recorder)
    runner = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]["values"]["template"]["spec"]
    service = declared["Deployment build"]["spec"]["template"]
    specs = {SPACE: [runner], f"{SPACE}-build": [service["spec"]]}
    if pods:
        specs[f"{SPACE}-jobs"] = [each["spec"] for each in made_by_hook(recorder)]
    for space, those in specs.items():
        for spec in those:
            (volume,) = (each for each in spec["volumes"] if each["name"] == "mirrors-ca")
            authority = declared[f"ConfigMap {volume['configMap']['name']}"]
            assert (authority["metadata"]["namespace"], authority["data"]) == (space, {"ca.pem": PEM})
            for container in [*spec.get("initContainers", ()), *spec["containers"]]:
                (mount,) = (each for each in container["volumeMounts"] if each["name"] == "mirrors-ca")
                # Programs in Go read all files of this folder, whatever their names.
                assert mount["mountPath"] == "/etc/ssl/certs/slipway-mirrors.pem"
                assert mount["subPath"] in authority["data"]
                variable = {"name": "NODE_EXTRA_CA_CERTS", "value": mount["mountPath"]}
                assert (variable in container.get("env", ())) == (space != f"{SPACE}-jobs")  # it may be the image's own
    # A file of a subPath does not follow its ConfigMap.
    assert len(service["metadata"]["annotations"]["slipway/authority"]) == 12


@pytest.mark.skipif(shutil.which("node") is None, reason="the hook is a program of Node.js")
@every(
    "of_image, of_workflow, trusted",
    [
        ({}, {}, "/etc/ssl/certs/slipway-mirrors.pem"),
        ({"NODE_EXTRA_CA_CERTS": "/i"}, {}, "/i"),
        ({"NODE_EXTRA_CA_CERTS": "/i"}, {"NODE_EXTRA_CA_CERTS": "/w"}, "/w"),
    ],
)
def test_step_trusts_the_mirrors_unless_told_otherwise(
    tmp_path: Path, of_image: dict[str, str], of_workflow: dict[str, str], trusted: str
) -> None:
    """In place of GitHub's hook, what it does with a step: a script that a shell of the image runs."""
    recorder, _ = run(chain={}, runners=runners(jobPods=True), mirrors={"caCertificate": PEM})
    hook = objects(recorder)["ConfigMap jobs"]["data"]["hook.js"]
    (tmp_path / "hook.js").write_text(hook.replace("/home/runner/k8s-novolume", str(tmp_path)))
    (tmp_path / "index.js").write_text("""
process.stdin.on('data', part => {
  const { entryPoint, entryPointArgs, environmentVariables } = JSON.parse(part).args
  const prefix = Object.entries(environmentVariables).map(([key, value]) => `"${key}=${value}"`)
  console.log(`exec ${prefix.length ? `env ${prefix.join(' ')}` : ''} ${entryPoint} ${entryPointArgs.join(' ')}`)
})
""")
    shown = ["-c", "'echo \"$0 $1 $NODE_EXTRA_CA_CERTS\"'", "a", "'b  c'"]
    args = {"entryPoint": "sh", "entryPointArgs": shown, "environmentVariables": of_workflow}
    given = json.dumps({"command": "run_script_step", "args": args})
    path = {"PATH": os.environ["PATH"]}
    in_place = {**path, "ACTIONS_RUNNER_POD_NAME": "own"}
    command = ["node", str(tmp_path / "hook.js")]
    script = subprocess.run(command, input=given, env=in_place, check=True, text=True, stdout=subprocess.PIPE).stdout
    done = subprocess.run(["sh", "-e", "-c", script], env={**path, **of_image}, check=True, stdout=subprocess.PIPE)
    assert done.stdout.decode() == f"a b  c {trusted}\n"


def test_charts_and_images_come_from_the_mirrors() -> None:
    mirrors = {"images": {"ghcr.io": "mirror.example/ghcr", "docker.io": "mirror.example/hub"}}
    recorder, _ = run(chain={}, runners=runners(arc={"charts": "charts"}), mirrors=mirrors)
    charts = recorder.of_type(RELEASE)
    assert charts["runners-gha-runner-scale-set"]["chart"] == "charts/gha-runner-scale-set"
    assert "version" not in charts["runners-gha-runner-scale-set"]
    controller = charts["runners-gha-runner-scale-set-controller"]["values"]
    assert controller["image"]["repository"] == "mirror.example/ghcr/actions/gha-runner-scale-set-controller"
    spec = charts["runners-gha-runner-scale-set"]["values"]["template"]["spec"]
    images = [container["image"].rpartition(":")[0] for container in spec["initContainers"] + spec["containers"]]
    runner = "mirror.example/ghcr/actions/actions-runner"
    assert images == [runner, "mirror.example/hub/library/docker", runner]


APP = {"id": "1", "installation": "2", "privateKey": PKCS1}


@every(
    "given, keys, credential",
    [
        ({"token": "hunter2"}, {"github_token"}, "hunter2"),
        ({"app": APP}, {"github_app_id", "github_app_installation_id", "github_app_private_key"}, PKCS1),
    ],
)
def test_credentials_are_in_one_secret_alone(given: dict[str, Any], keys: set[str], credential: str) -> None:
    recorder, values = only(github={"url": GITHUB["url"], **given})
    secret = objects(recorder)["Secret github"]["stringData"]
    assert secret[SECRET]
    assert set(secret["value"]) == keys
    assert credential in secret["value"].values()
    rest = {key: inputs for key, inputs in recorder.resources.items() if key[0] != "kubernetes:core/v1:Secret"}
    assert not [line for line in credential.splitlines() if line in repr(rest) + repr(values)]


def test_app_key_that_is_none_is_one_line() -> None:
    with pytest.raises(
        pulumi.RunError, match=r"^slipway:runners.github.app.privateKey: it is none in PEM: expected"
    ) as error:
        only(github={"url": GITHUB["url"], "app": {**APP, "privateKey": "hunter2"}})
    assert "hunter2" not in str(error.value)


def test_images_on_runners_use_the_build_services_engine() -> None:
    registry = {"kind": "local", "address": "r.example"}
    recorder, values = run(
        runners=runners(build={"address": "builds.example:2376"}), buildOn="runners", registry=registry
    )
    declared = objects(recorder)
    daemon = declared["Deployment build"]["spec"]["template"]["spec"]["containers"][0]
    assert "--tlsverify" in daemon["args"]
    assert declared["PersistentVolumeClaim publish"]["spec"]["resources"]["requests"]["storage"] == "500Gi"
    provider = recorder.resources["pulumi:providers:docker", "runners-engine"]
    assert provider["host"] == "tcp://builds.example:2376"
    assert provider["keyMaterial"][SECRET]
    assert values["outputs"]["runners"]["buildService"] == "builds.example:2376"
    assert json.dumps(values["outputs"]["images"]["extras"]["ref"]).endswith(f'{DIGEST}"')
    assert declared["ResourceQuota runners"]["spec"]["hard"]["pods"] == "8"
    service = {name for name, each in declared.items() if each["metadata"].get("namespace") == "slipway-runners-build"}
    assert service == {
        "Deployment build",
        "Job build-image",
        "LimitRange build",
        "NetworkPolicy build-closed",
        "NetworkPolicy build-service",
        "PersistentVolumeClaim publish",
        "PodDisruptionBudget build",
        "ResourceQuota build",
        "Secret build-server",
        "Service build",
        "ServiceAccount build",
    }


ADDRESSES = [f"builds-{number}.example:2376" for number in range(3)]
OF_REPLICA = {
    "Deployment build",
    "NetworkPolicy build-service",
    "PersistentVolumeClaim publish",
    "PodDisruptionBudget build",
    "Secret build-server",
    "Service build",
}


def replicated(replicas: int, *, preview: bool = False, **config: Any) -> tuple[Recorder, dict[str, Any]]:
    """Return what a stack declares that is built on some replicas."""
    build = {"replicas": replicas, "address": ADDRESSES[:replicas]}
    registry = {"kind": "local", "address": "r.example"}
    return deployed(runners=runners(build=build), buildOn="runners", registry=registry, preview=preview, **config)


def of_replica(name: str, number: int) -> str:
    """Return the kind and name of a replica's object, by that of the first replica's."""
    return f"{name.removesuffix('-server')}-{number}-server" if name.endswith("-server") else f"{name}-{number}"


def test_replicas_leave_the_first_one_as_it_is() -> None:
    (alone, _), (shared, values) = replicated(1), replicated(3)
    before, after = ({name: plainly(each) for name, each in objects(one).items()} for one in (alone, shared))
    (quota,) = [
        name for name, each in before.items() if each != after[name] and "certificate" not in json.dumps(each).lower()
    ]
    assert quota == "ResourceQuota build"
    assert after[quota]["spec"]["hard"] == {"pods": "7", "persistentvolumeclaims": "4"}
    templates = [each["Deployment build"]["spec"]["template"] for each in (before, after)]
    for template in templates:  # the mocks' certificates are others with each run
        assert template["metadata"].pop("annotations")
    assert templates[0] == templates[1]
    assert {*after} - {*before} == {of_replica(name, number) for name in OF_REPLICA for number in (1, 2)}
    hosts = [one.of_type(CERTIFICATES)["runners-certificates"]["hosts"] for one in (alone, shared)]
    assert hosts[0] == hosts[1]
    assert "builds-0.example" in hosts[0]
    assert shared.of_type(CERTIFICATES)["runners-certificates-2"]["hosts"] == [
        "build-2.slipway-runners-build.svc",
        "build-2.slipway-runners-build.svc.cluster.local",
        "build-2.slipway-runners-build",
        "localhost",
        "127.0.0.1",
        "builds-2.example",
    ]
    assert values["outputs"]["runners"]["buildService"] == ADDRESSES[0]
    assert values["outputs"]["runners"]["buildServices"] == ADDRESSES


def test_replica_has_its_own_volume_secret_and_selectors() -> None:
    declared = objects(replicated(3)[0])
    pods = []
    for number in range(3):
        name = f"build-{number}" if number else "build"
        deployment = declared[f"Deployment {name}"]["spec"]
        pod = deployment["template"]
        pods.append(pod["metadata"]["labels"])
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        claim = volumes["layers"]["persistentVolumeClaim"]["claimName"]
        assert claim == (f"publish-{number}" if number else "publish")
        assert f"PersistentVolumeClaim {claim}" in declared
        assert volumes["certificates"]["secret"]["secretName"] == f"{name}-server"
        policy = declared[f"NetworkPolicy build-service-{number}" if number else "NetworkPolicy build-service"]
        for selector in (
            deployment["selector"]["matchLabels"],
            declared[f"Service {name}"]["spec"]["selector"],
            declared[f"PodDisruptionBudget {name}"]["spec"]["selector"]["matchLabels"],
            policy["spec"]["podSelector"]["matchLabels"],
        ):
            assert selector == pods[-1]
    # No selector of one replica is also of another.
    assert not [one for one in pods for other in pods if one is not other and one.items() <= other.items()]
    keys = [plainly(declared[f"Secret build{end}-server"])["stringData"]["key.pem"] for end in ("", "-1", "-2")]
    assert len({*keys}) == 3


def test_replicas_prefer_nodes_of_their_own() -> None:
    declared = objects(replicated(2)[0])
    first, second = (declared[f"Deployment {name}"]["spec"]["template"] for name in ("build", "build-1"))
    assert "affinity" not in first["spec"]  # it would be another pod than that of one replica
    ((rule,),) = (second["spec"]["affinity"]["podAntiAffinity"].values(),)
    (term,) = [each["podAffinityTerm"] for each in rule]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    for template in (first, second):
        assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


@every("preview", [True, False])
def test_images_on_replicas_show_no_choice_of_one(preview: bool) -> None:
    one, two, three = (replicated(number, preview=preview)[0] for number in (1, 2, 3))
    providers = [each.resources["pulumi:providers:docker", "runners-engine"] for each in (two, three)]
    assert (
        providers[0]
        == providers[1]
        == {
            "host": "unix://.slipway/engines/t-amd64.sock",
            "disableDockerDaemonCheck": "true",
        }
    )
    for kind in ("docker:index/image:Image", "slipway:image:ImageVariant"):
        assert one.of_type(kind) == two.of_type(kind) == three.of_type(kind)
    for number, each in enumerate((one, two, three), 1):
        waits = each.of_type("pulumi-python:dynamic/runners:Reached")
        assert sorted(inputs["address"] for inputs in waits.values()) == ADDRESSES[:number]


def test_unpushed_image_on_replicas_is_read_where_they_are_one() -> None:
    checks = {"torch": {"torch/checks/10-one": "a" * 64}}
    recorder, _ = replicated(2, publish=False, checks=checks)
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")["torch-inspection"]
    assert (unpushed["engine"], unpushed["tls"]) == ("unix://.slipway/engines/t-amd64.sock", {})


ARM_POOL = {"nodeSelector": {"acme.example/pool": "arm"}, "tolerations": [{"key": "arm", "operator": "Exists"}]}

FIRST_POOL = {"nodeSelector": {"acme.example/pool": "b"}}


def of_both(arm64: dict[str, Any] | None = None, **config: Any) -> tuple[Recorder, dict[str, Any]]:
    """Return what a stack for two platforms declares that is built on a pool of each."""
    build = {**FIRST_POOL, "platforms": {"linux/arm64": {**ARM_POOL, **(arm64 or {})}}}
    registry = {"kind": "local", "address": "r.example"}
    both = ["linux/amd64", "linux/arm64"]
    values: dict[str, Any] = {
        "registry": registry,
        "platforms": both,
        "chain": {"torch": {}, "arm": {}},
        "on": {"arm": both[1]},
    }
    return deployed(runners=runners(build=build), buildOn="runners", **values, **config)


def without_certificates(value: Any) -> Any:
    """Return what the mocks recorded without certificates, which are others with each run."""
    if isinstance(value, dict):
        return {key: without_certificates(item) for key, item in value.items() if key != "slipway/certificate"}
    if isinstance(value, list):
        return [without_certificates(item) for item in value]
    return value.partition("\n")[0] if isinstance(value, str) and value.startswith("-----BEGIN ") else value


def test_pool_of_another_platform_leaves_the_first_as_it_is() -> None:
    registry = {"kind": "local", "address": "r.example"}
    one, two = (
        run(runners=runners(build=FIRST_POOL), buildOn="runners", registry=registry, chain={"torch": {}})[0],
        of_both()[0],
    )
    before, after = (without_certificates(plainly(each.resources)) for each in (one, two))
    changed = [key for key in before if before[key] != after[key]]
    # They say how many there are.
    assert changed == [
        ("slipway:runners:KubernetesRunners", "runners"),
        ("kubernetes:core/v1:ResourceQuota", "runners-resourcequota-build"),
    ]
    both = objects(two)
    added = {*both} - {*objects(one)}
    of_pool = {name.replace("-server", "") + "-arm64" + "-server" * ("-server" in name) for name in OF_REPLICA}
    assert added == of_pool | {"Job build-image-arm64"}
    assert both["ResourceQuota build"]["spec"]["hard"] == {"pods": "6", "persistentvolumeclaims": "3"}
    pod = both["Deployment build-arm64"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "acme.example/pool": "arm",
    }
    assert pod["tolerations"] == [{"key": "arm", "operator": "Exists"}]
    first = both["Deployment build"]["spec"]["template"]["spec"]
    assert first["nodeSelector"]["kubernetes.io/arch"] == "amd64"
    assert "tolerations" not in first
    names = ("claimName", "persistentVolumeClaim")
    claims = [volume[names[1]][names[0]] for volume in pod["volumes"] if names[1] in volume]
    assert claims == ["publish-arm64"]


@every("replicas", [1, 2])
def test_images_of_each_platform_are_on_its_pool(replicas: int) -> None:
    recorder, values = of_both({"replicas": replicas} if replicas > 1 else {})
    hosts = {name: inputs.get("host") for name, inputs in recorder.of_type("pulumi:providers:docker").items()}
    assert hosts == {
        "runners-engine": "tcp://build.slipway-runners-build.svc:2376",
        "runners-engine-arm64": (
            "unix://.slipway/engines/t-arm64.sock"
            if replicas > 1
            else "tcp://build-arm64.slipway-runners-build.svc:2376"
        ),
    }
    assert recorder.providers == {"torch": "runners-engine", "arm": "runners-engine-arm64"}
    waits = recorder.of_type("pulumi-python:dynamic/runners:Reached")
    assert {*waits} == {
        "runners-build-service",
        "runners-build-service-arm64",
        *(["runners-build-service-arm64-1"] if replicas > 1 else []),
    }
    assert len(values["outputs"]["runners"]["buildServices"]) == 1 + replicas


def test_unpushed_image_is_read_on_the_pool_of_its_platform() -> None:
    checks = {name: {f"{name}/checks/10-one": "a" * 64} for name in ("torch", "arm")}
    recorder, _ = of_both(publish=False, checks=checks)
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")
    assert {name: each["engine"] for name, each in unpushed.items()} == {
        "torch-inspection": "tcp://build.slipway-runners-build.svc:2376",
        "arm-inspection": "tcp://build-arm64.slipway-runners-build.svc:2376",
    }


@every("replicas", [1, 2])
def test_what_no_pool_is_for_is_on_the_first(replicas: int) -> None:
    """A source is for linux/amd64, which a stack for arm64 alone has no pool of."""
    both = {name: {f"{name}/checks/10-one": "a" * 64} for name in ("torch", "other")}
    recorder, _ = run(
        runners=runners(profile="cpu-arm64", build={"replicas": replicas} if replicas > 1 else {}),
        buildOn="runners",
        platform="linux/arm64",
        publish=False,
        chain={"source": {}, "torch": {"SOURCE": "source"}, "other": {}},
        products=("source",),
        on={"torch": "linux/arm64"},
        checks=both,
    )
    (host,) = [one["host"] for one in recorder.of_type("pulumi:providers:docker").values()]
    assert host == (
        "unix://.slipway/engines/t-arm64.sock" if replicas > 1 else "tcp://build.slipway-runners-build.svc:2376"
    )
    built = {name: one for name, one in recorder.providers.items() if "checks" not in name}
    assert built == dict.fromkeys(("source", "torch", "other"), "runners-engine")
    unpushed = recorder.of_type("pulumi-python:dynamic/image:UnpushedImage")
    assert {name: one["engine"] for name, one in unpushed.items()} == dict.fromkeys(
        ("torch-inspection", "other-inspection"), host
    )


def test_rootless_service_has_no_privileges_and_no_docker() -> None:
    declared = objects(only(build={"rootless": True})[0])
    daemon = declared["Deployment build"]["spec"]["template"]["spec"]["containers"][0]
    assert daemon["securityContext"]["runAsNonRoot"]
    assert "privileged" not in daemon["securityContext"]
    assert daemon["image"].startswith("moby/buildkit:")
    assert declared["Service build"]["spec"]["ports"][0]["port"] == 1234


def service(**build: Any) -> tuple[Recorder, dict[str, Any]]:
    """Return what a stack with a build service registers, and the specification of the service's pod."""
    recorder, _ = only(build=build)
    return recorder, objects(recorder)["Deployment build"]["spec"]["template"]["spec"]


def test_build_service_with_a_new_certificate_is_a_new_pod() -> None:
    recorder, _ = service(address="builds.example:2376")
    other, _ = service(address="other.example:2376")
    templates = [objects(each)["Deployment build"]["spec"]["template"] for each in (recorder, other)]
    first, second = (template["metadata"].pop("annotations")["slipway/certificate"] for template in templates)
    assert first != second
    assert templates[0] == templates[1]


def test_build_service_is_placed_off_gpu_nodes() -> None:
    assert service()[1]["nodeSelector"] == dict(node("cpu").selector)
    assert "tolerations" not in service()[1]


def test_build_service_is_placed_on_the_runners_processor() -> None:
    for profile in ("eks-p6e-gb200", "eks-g5g", "aks-gb200", "cpu-arm64"):
        pod = objects(only(profile=profile, build={})[0])["Deployment build"]["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}


def test_image_of_the_build_service_is_tried_before_it() -> None:
    recorder, _ = replicated(2)
    declared = objects(recorder)
    job, daemon = (declared[name]["spec"]["template"]["spec"] for name in ("Job build-image", "Deployment build"))
    assert job["containers"][0]["image"] == daemon["containers"][0]["image"]
    assert job["nodeSelector"] == daemon["nodeSelector"]
    # Neither the Service nor a policy nor a budget takes its pod for a daemon's.
    labels = declared["Job build-image"]["spec"]["template"]["metadata"]["labels"]
    assert not build_daemon.service_labels().items() <= labels.items()
    # For the kubelet's retries, not for the node's start.
    assert job["activeDeadlineSeconds"] == 300


@every("build, port", [({}, "0948"), ({"rootless": True}, "04D2")])
def test_build_service_stops_after_its_connections(build: dict[str, Any], port: str) -> None:
    recorder, spec = service(**build)
    daemon = spec["containers"][0]
    (command,) = [daemon["lifecycle"]["preStop"]["exec"]["command"]]
    assert f"/:{port}$/" in command[-1]
    assert int(port, 16) == daemon["ports"][0]["containerPort"]
    assert spec["terminationGracePeriodSeconds"] == CONFIG.grace * 60
    budget = objects(recorder)["PodDisruptionBudget build"]["spec"]
    assert budget == {"minAvailable": 1, "selector": {"matchLabels": build_daemon.service_labels()}}


_TCP = "  sl  local_address rem_address   st\n"


@every(
    "connections, waits",
    [
        (" 0: 00000000:0948 00000000:0000 0A\n", False),  # it listens
        (" 1: 0100007F:0948 0100007F:C350 01\n", True),
        (" 1: 0100007F:C350 0100007F:0948 01\n", False),  # the other end
        (" 1: 0100007F:0948 0100007F:C350 06\n", False),  # it was closed
    ],
)
def test_stop_script_waits_for_established_connections(tmp_path: Path, connections: str, waits: bool) -> None:
    (tmp_path / "tcp").write_text(_TCP + connections)
    command = service()[1]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    command[-1] = command[-1].replace("/proc/net/", f"{tmp_path}/").replace("sleep 1", "exit 7")
    assert subprocess.run(command, check=False).returncode == 7 * waits


def test_cleanup_container_is_beside_docker_only() -> None:
    (daemon, room) = service()[1]["containers"]
    (layers,) = [mount["mountPath"] for mount in daemon["volumeMounts"] if mount["name"] == "layers"]
    assert {"name": "layers", "mountPath": layers, "readOnly": True} in room["volumeMounts"]
    (host,) = [word for word in daemon["args"] if word.startswith("--host=unix://")]
    assert room["env"] == [{"name": "DOCKER_HOST", "value": host.removeprefix("--host=")}]
    assert room["command"][-2:] == [(ROOT / "components/runners/ec2/boot/room").read_text(), "86400"]
    assert len(service(rootless=True)[1]["containers"]) == 1  # BuildKit keeps no images


def test_load_balancer_is_private_for_each_controller() -> None:
    recorder, _ = service(service="LoadBalancer")
    assert len(recorder.hooks) == 1  # by which an update goes on that was cut off
    assert objects(recorder)["Service build"]["metadata"]["annotations"] == {
        MARK: "runners-cluster/runners-service-build",
        "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
        "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
        "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
    }


@every("image, checked", [("extras", f"r.example/x/extras@{DIGEST}"), ("r.example/y:1",) * 2])
def test_gpu_checks_run_on_the_profile_and_are_an_output(image: str, checked: str) -> None:
    recorder, values = run(runners=runners(validation={"image": image, "command": ["/checks/gpu"]}))
    declared = objects(recorder)["Job gpu-checks"]
    assert declared["metadata"]["annotations"]["pulumi.com/replaceUnready"] == "true"
    job = declared["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["image"] == checked
    assert container["resources"]["limits"]["vpc.amazonaws.com/efa"] == "32"
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 1800)
    assert values["outputs"]["runners"]["validation"] == {"image": checked, "passed": True}


def test_gpu_checks_are_not_disrupted_nor_judged_by_it() -> None:
    recorder, _ = run(runners=runners(validation={"image": "r.example/y:1", "command": ["x"]}))
    declared = objects(recorder)
    job, budget = declared["Job gpu-checks"]["spec"], declared["PodDisruptionBudget gpu-checks"]["spec"]
    labels = job["template"]["metadata"]["labels"].items()
    assert (budget["minAvailable"], budget["selector"]["matchLabels"].items() <= labels) == (1, True)
    assert not declared["PodDisruptionBudget runners"]["spec"]["selector"]["matchLabels"].items() <= labels
    kept = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert kept.items() <= job["template"]["metadata"]["annotations"].items()
    rules = job["podFailurePolicy"]["rules"]
    assert rules == [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]


@every(
    "image, registry, private",
    [
        ("extras", {"kind": "generic", "repository": "r.example:5000/x", "username": "u", "password": "hunter2"}, True),
        ("r.example:5000/y:1", {"kind": "generic", "repository": "r.example:5000/x", "username": "u", "password": "hunter2"}, True),
        ("other.example/y:1", {"kind": "generic", "repository": "r.example/x", "username": "u", "password": "hunter2"}, False),
        ("extras", {"kind": "local", "address": "r.example:5000"}, False),
    ],
)  # fmt: skip
def test_gpu_checks_of_a_private_image_have_its_login(image: str, registry: dict[str, Any], private: bool) -> None:
    recorder, values = run(runners=runners(validation={"image": image, "command": ["/checks/gpu"]}), registry=registry)
    declared = objects(recorder)
    spec = declared["Job gpu-checks"]["spec"]["template"]["spec"]
    assert spec.get("imagePullSecrets", []) == ([{"name": "gpu-checks"}] if private else [])
    assert ("Secret gpu-checks" in declared) == private
    if private:
        secret = declared["Secret gpu-checks"]
        assert secret["type"] == "kubernetes.io/dockerconfigjson"
        assert secret["stringData"][SECRET]
        held = json.loads(secret["stringData"]["value"][".dockerconfigjson"])
        assert held == {"auths": {"r.example:5000": {"auth": base64.b64encode(b"u:hunter2").decode()}}}
        assert "hunter2" not in repr(declared["Job gpu-checks"]) + repr(values["outputs"])


def test_gpu_checks_with_a_short_lived_login_have_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each update would have another Job than its preview: nodes pull from ACR as themselves."""
    for name in azure_login.VARIABLES:
        monkeypatch.setenv(name, "x")
    monkeypatch.setattr(azure_login, "login", lambda _: ("u", "hunter2"))
    recorder, _ = run(
        runners=runners(validation={"image": "extras", "command": ["/checks/gpu"]}),
        registry={"kind": "acr", "repository": "acmeml.azurecr.io/x"},
    )
    declared = objects(recorder)
    assert "imagePullSecrets" not in declared["Job gpu-checks"]["spec"]["template"]["spec"]
    assert "Secret gpu-checks" not in declared


REACHED = {"kind": "generic", "repository": "r.example/x"}


def gpu_checks(values: dict[str, Any]) -> Mapping[str, str]:
    return clusters.gpu_checks(graph.locked(values, "stack t"))


OWN_CHECKS = {"report.py": "common/gpu/report.py", "gpu.py": "torch/checks/gpu.py"}
"""The scripts of a Job, each of which runs the next one, and where they are."""


def test_gpu_checks_without_a_command_are_the_images_own() -> None:
    texts = gpu_checks({"flavor": "local", "runners": runners(validation={"image": "torch"}), "registry": REACHED})
    assert texts == {name: (ROOT / "dockerfiles" / path).read_text() for name, path in OWN_CHECKS.items()}
    validated = KubernetesRunnersConfig.model_validate(runners(validation={"image": "torch"}))
    assert validated.validation
    scripts, job = gpu_validation.scripts(validated, texts), gpu_validation.job(validated, validated.validation, texts)
    pod_spec = job["spec"]["template"]["spec"]
    (container,) = pod_spec["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "checks"]
    folder = mount["mountPath"]
    assert container["command"] == ["python", f"{folder}/report.py", "python", f"{folder}/gpu.py"]
    assert {"name": "checks", "configMap": {"name": scripts["metadata"]["name"]}} in pod_spec["volumes"]
    other = gpu_validation.job(validated, validated.validation, {**texts, "gpu.py": "#"})
    assert other["spec"]["template"]["metadata"] != job["spec"]["template"]["metadata"]  # other checks run anew
    recorder, _ = run(runners=runners(validation={"image": "torch", "acceptedLoss": 0.4}), gpu_checks=texts)
    assert objects(recorder)["ConfigMap gpu-checks"]["data"] == texts
    (declared,) = objects(recorder)["Job gpu-checks"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value", "") for each in declared["env"]}
    assert variables["CHECKED_IMAGE"] == declared["image"]
    assert variables["NODE_PROFILE"] == validated.profile
    assert variables["ACCEPTED_LOSS"] == "0.4"


def test_gpu_checks_of_a_train_image_are_torchs() -> None:
    texts = gpu_checks({"flavor": "universal", "runners": runners(validation={"image": "train"}), "registry": REACHED})
    assert texts["gpu.py"] == (ROOT / "dockerfiles/torch/checks/gpu.py").read_text()


def plainly(value: Any) -> Any:
    """Return what the mocks recorded without the wrappers of secrets, and with integers, which the protocol has not."""
    if isinstance(value, dict):
        return plainly(value["value"]) if SECRET in value else {key: plainly(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [plainly(item) for item in value] if isinstance(value, list) else value


WHOLE = {"build": {"jobs": True}, "validation": {"image": "r.example/y:1", "command": ["/checks/gpu"]}}
SUPPORTED = ("1.31", "1.32", "1.33", "1.34", "1.35")
"""Releases of Kubernetes that EKS and AKS offer."""


@functools.cache
def validate(manifest: str) -> None:
    """Validate an object against each release. Most objects are the same on all nodes, and are validated once."""
    for version in SUPPORTED:
        kubernetes_schemas.validate(json.loads(manifest), version)


def made_by_hook(recorder: Any) -> Iterator[dict[str, Any]]:
    """Yield the pods that GitHub's hook makes from our templates, with what the workflow says of them."""
    files = objects(recorder).get("ConfigMap jobs", {"data": {}})["data"]
    for name, text in files.items():
        if name.endswith(".json"):
            template = json.loads(text)
            container, *beside = template["spec"]["containers"]
            of_workflow = {**container, "name": "job", "image": "r.example/job:1"}
            of_hook: list[pod.Spec] = [{"name": volume, "emptyDir": {}} for volume in ("externals", "github", "work")]
            volumes = [*of_hook, *template["spec"]["volumes"]]
            containers = [of_workflow, *beside]
            spec = {**template["spec"], "restartPolicy": "Never", "containers": containers, "volumes": volumes}
            metadata = {"name": f"r1-{name[:-5]}", "namespace": f"{SPACE}-jobs", **template["metadata"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@every(
    "values",
    [{"profile": name, **WHOLE} for name in node_names()]
    + [{"build": {"rootless": True, "jobs": True, "service": "LoadBalancer"}, "daemon": False}, {"build": {}}]
    + [{"build": {"replicas": 2}}, {"profile": "eks-p5", "gpus": 2, "jobPods": True, "build": {"jobs": True}}]
    + [{"profile": "eks-p5", "jobPods": True, "daemon": True, "dockerGpus": True, "dockerImage": "r.example/docker:1"}],
)
def test_objects_are_valid_in_each_supported_release(values: dict[str, Any]) -> None:
    recorder, _ = only(**values, github={"url": GITHUB["url"], "token": "t"})
    template = recorder.of_type(RELEASE)["runners-gha-runner-scale-set"]["values"]["template"]
    metadata = {"name": "runner", **template["metadata"]}
    runner = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    declared = [plainly(manifest) for manifest in (*objects(recorder).values(), runner, *made_by_hook(recorder))]
    assert len(declared) > 13
    for manifest in declared:
        validate(json.dumps(manifest, sort_keys=True))


CONFIG = KubernetesRunnersConfig.model_validate(runners(build={}))
SPACE = CONFIG.namespace
RUNNER = Peer("10.0.0.1", SPACE, pod.labels(CONFIG))
SERVICE = Peer("10.0.0.2", CONFIG.build_namespace, build_daemon.service_labels())
IMPOSTOR = Peer("10.0.0.7", "default", pod.labels(CONFIG))
"""Who only calls itself a runner."""
CHECKS = Peer("10.0.0.3", SPACE, {"app.kubernetes.io/component": "gpu-checks"})
CONTROLLER = Peer("10.0.0.4", f"{SPACE}-controller", {"app": "controller"})
STRANGER = Peer("10.0.0.5", "default", {"app": "shop"})
DNS = Peer("10.0.0.6", "kube-system", {"k8s-app": "kube-dns"})
API = Peer("172.20.0.1")
GITHUB_COM = Peer("140.82.121.4")
METADATA = Peer("169.254.169.254")
WIRE_SERVER = Peer("168.63.129.16")
REGISTRY = Peer("192.0.2.7")


@functools.cache
def policies(service: str = "ClusterIP") -> list[dict[str, Any]]:
    """Return the policies of runners with a build service, and with a registry at a port of its own."""
    registry = {"kind": "generic", "repository": "r.example:5000/x", "username": "u", "password": "p"}
    recorder, _ = run(chain={}, runners=runners(build={"jobs": True, "service": service}), registry=registry)
    return [declared for name, declared in objects(recorder).items() if name.startswith("NetworkPolicy")]


@every(
    "source, to, port, may",
    [
        (RUNNER, GITHUB_COM, 443, True),
        (RUNNER, REGISTRY, 5000, True),
        (RUNNER, REGISTRY, 9, False),
        (RUNNER, GITHUB_COM, 22, False),
        (RUNNER, METADATA, 80, False),
        (RUNNER, WIRE_SERVER, 80, False),
        (RUNNER, Peer("fd00:ec2::254"), 80, False),
        (SERVICE, WIRE_SERVER, 80, False),
        (RUNNER, SERVICE, 2376, True),
        (RUNNER, SERVICE, 2375, False),
        (RUNNER, STRANGER, 5432, False),
        (RUNNER, CONTROLLER, 8080, False),
        (SERVICE, REGISTRY, 5000, True),
        (SERVICE, METADATA, 80, False),
        (SERVICE, RUNNER, 22, False),
        (CHECKS, GITHUB_COM, 443, False),
        (CHECKS, SERVICE, 2376, False),
        (CONTROLLER, API, 443, True),
        (CONTROLLER, GITHUB_COM, 443, True),
        (CONTROLLER, METADATA, 80, False),
        (CONTROLLER, RUNNER, 22, False),
        (STRANGER, RUNNER, 22, False),
        (STRANGER, SERVICE, 2376, False),
        (IMPOSTOR, SERVICE, 2376, False),
        (RUNNER, Peer("10.0.0.8", "default", build_daemon.service_labels()), 2376, False),
        (STRANGER, CONTROLLER, 8080, False),
        (STRANGER, GITHUB_COM, 22, True),
    ],
)
def test_network_policies_of_a_flow_allow_or_deny_it(source: Peer, to: Peer, port: int, may: bool) -> None:
    assert len(policies()) == 7
    assert allowed(policies(), source, to, port) == may


@every("ending, next_one", [("", "1"), ("1", "2"), ("2", "")])
def test_network_policies_of_a_replica_let_only_pulumi_in(ending: str, next_one: str) -> None:
    declared = [each for name, each in objects(replicated(3)[0]).items() if name.startswith("NetworkPolicy")]
    replica = Peer("10.0.0.2", CONFIG.build_namespace, build_daemon.service_labels(ending))
    other = Peer("10.0.0.9", CONFIG.build_namespace, build_daemon.service_labels(next_one))
    deployer = Peer("10.0.0.10", "ops", {"slipway/deployer": "true"})
    assert allowed(declared, deployer, replica, 2376)
    assert not allowed(declared, deployer, replica, 2375)
    for source in (RUNNER, STRANGER, other):
        assert not allowed(declared, source, replica, 2376)
    assert allowed(declared, replica, GITHUB_COM, 443)
    assert not allowed(declared, replica, METADATA, 80)


@every("source", [RUNNER, SERVICE, CONTROLLER])
def test_network_policies_allow_dns_of_the_cluster_only(source: Peer) -> None:
    for server, may in ((DNS, True), (Peer("169.254.20.10"), True), (Peer("8.8.8.8"), False), (METADATA, False)):
        assert allowed(policies(), source, server, 53, "UDP") == may


def test_load_balancer_admits_anyone_with_a_certificate() -> None:
    open_to_all = policies("LoadBalancer")
    assert allowed(open_to_all, Peer("192.0.2.9"), SERVICE, 2376)
    assert not allowed(open_to_all, Peer("192.0.2.9"), RUNNER, 2376)
