"""``runners.arc.controller`` and ``arc.values``: the organization's own controller of ARC, and values of its charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from pydantic import ValidationError

from cli.runners.cluster_jobs import cluster_jobs
from components.runners.kubernetes import cluster_health, isolation
from containers.errors import SlipwayError
from stacks import graph
from stacks.checks import clusters
from stacks.checks.secrets import check_clear_text
from stacks.config.cluster.arc_config import ArcConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.fakes.pulumi_mocks import run
from tests.helpers.every import every
from tests.unit.runners.test_cluster_health import kubectl, pod
from tests.unit.runners.test_kubernetes_runners import RELEASE, deployed, objects, only, runners

__all__ = ["kubectl"]

CONTROLLER = {"namespace": "arc-systems", "account": "arc-gha-rs-controller"}
SCALE_SET, OURS = "runners-gha-runner-scale-set", "runners-gha-runner-scale-set-controller"
SCHEDULE = [{"start": "08:00", "end": "18:00", "minRunners": 1}]
RESOURCES = {"limits": {"cpu": "1"}}
VALUES: dict[str, Any] = {
    "controller": {
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": [{"name": "mirror"}],
        "flags": {"logLevel": "debug", "logFormat": "json"},
        "resources": {"limits": {"memory": "2Gi"}},
    },
    "runners": {
        "proxy": {"https": {"url": "http://proxy.example:3128"}},
        "listenerTemplate": {
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "listener", "resources": RESOURCES}, {"name": "side-car"}],
            }
        },
        "resourceMeta": {"autoscalingRunnerSet": {"annotations": {"acme/team": "ml"}}},
    },
}


def config(**values: Any) -> KubernetesRunnersConfig:
    return KubernetesRunnersConfig.model_validate(runners(**values))


def mistake(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        config(**values)
    return str(caught.value)


def test_controller_of_the_organization_is_named_alone() -> None:
    recorder, _ = only(arc={"controller": CONTROLLER}, github={"url": "https://github.com/acme", "token": "t"})
    (chart,) = recorder.of_type(RELEASE).values()
    assert chart["values"]["controllerServiceAccount"] == {"namespace": "arc-systems", "name": CONTROLLER["account"]}
    annotations = chart["values"]["resourceMeta"]["autoscalingRunnerSet"]["annotations"]
    assert annotations == {"slipway/arc": "0.14", "slipway/controller": "arc-systems/arc-gha-rs-controller"}
    declared = objects(recorder)
    assert "Secret github" in declared
    assert not [name for name in declared if "controller" in name]


def test_runners_follow_their_isolation_without_our_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release or another controller makes the scale set anew: nothing of ours does so before it."""
    made: list[pulumi.ResourceOptions] = []

    class Release(pulumi.ComponentResource):
        def __init__(self, _name: str, *, opts: pulumi.ResourceOptions, **_: Any) -> None:
            made.append(opts)
            super().__init__("test:helm:Release", _name)

    monkeypatch.setattr(k8s.helm.v3, "Release", Release)
    run(chain={}, runners=runners(arc={"controller": CONTROLLER}))
    (options,) = made
    assert isinstance(options.depends_on, list)
    assert {type(each).__name__ for each in options.depends_on} >= {"NetworkPolicy", "ResourceQuota", "ServiceAccount"}
    assert options.replacement_trigger == ["https://github.com/acme", "0.14", "arc-systems/arc-gha-rs-controller"]
    assert not options.replace_with


def test_periodic_programs_keep_a_namespace_without_jobs() -> None:
    for values in ({"jobPods": True}, {"schedule": SCHEDULE}):
        declared = objects(only(arc={"controller": CONTROLLER}, **values)[0])
        homes = {each["metadata"]["namespace"] for name, each in declared.items() if name.startswith("CronJob ")}
        assert homes == {"slipway-runners-controller"}
        assert {"Namespace slipway-runners-controller", "NetworkPolicy controller-closed"} <= declared.keys()


def test_values_of_the_charts_are_passed_below_our_own() -> None:
    given, plain = only(arc={"values": VALUES}, network={"ports": [3128]})[0], only()[0]
    own, before = (each.of_type(RELEASE)[OURS]["values"] for each in (given, plain))
    assert own == {
        **before,
        "flags": {"watchSingleNamespace": "slipway-runners", "logLevel": "debug", "logFormat": "json"},
        "resources": {**before["resources"], "limits": {"memory": "2Gi"}},
        "imagePullSecrets": [{"name": "mirror"}],
        "priorityClassName": "system-cluster-critical",
    }
    own, before = (each.of_type(RELEASE)[SCALE_SET]["values"] for each in (given, plain))
    own["template"] = before["template"]  # the proxy is that of its daemon, too
    listener = before["listenerTemplate"]["spec"]
    containers = [{**listener["containers"][0], "resources": RESOURCES}, {"name": "side-car"}]
    assert own == {
        **before,
        "proxy": VALUES["runners"]["proxy"],
        "listenerTemplate": {"spec": {**listener, "tolerations": [{"operator": "Exists"}], "containers": containers}},
        "resourceMeta": {"autoscalingRunnerSet": {"annotations": {"slipway/arc": "0.14", "acme/team": "ml"}}},
    }


def _leaves(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of each value that Slipway sets; the pod template is one of them."""
    named = {each["name"]: each for each in value} if prefix.endswith("containers") else value
    if not isinstance(named, Mapping) or prefix == "template":
        yield prefix
        return
    for key, item in named.items():
        if key != "name" or not prefix.endswith("listener"):
            yield from _leaves(item, f"{prefix}.{key}" if prefix else key)


def test_each_value_that_we_set_is_refused() -> None:
    """But for the size of the controller and its log level, which have no key of their own."""
    own = only()[0].of_type(RELEASE)[OURS]["values"]
    served = only(arc={"controller": CONTROLLER}, labels=["gpu"])[0].of_type(RELEASE)[SCALE_SET]["values"]
    paths = [*(("controller", path) for path in _leaves(own)), *(("runners", path) for path in _leaves(served))]
    for chart, path in paths:
        if path.startswith(("flags.logLevel", "resources.")):
            continue
        value: Any = "hunter2"
        for key in reversed(path.split(".")):
            value = [{"name": "listener", **value}] if key == "listener" else {key: value}
        with pytest.raises(ValidationError) as caught:
            ArcConfig.model_validate({"values": {chart: value}})
        named = str(caught.value).partition("Value error, ")[2].partition(": Slipway sets this value of the chart: ")[0]
        assert named, caught.value
        assert path.startswith(named)
        assert "hunter2" not in named


@every(
    "values, line",
    [
        ({"controller": {"tolerationz": []}}, "has no value 'tolerationz' (did you mean 'tolerations'?); it has: affinity"),
        ({"runners": {"template": {"spec": {"hostNetwork": True}}}}, "template: Slipway sets this value"),
        ({"runners": {"githubConfigSecret": {"github_token": "hunter2"}}}, "githubConfigSecret: Slipway sets this"),
        ({"runners": {"listenerTemplate": None}}, "listenerTemplate.spec.containers.listener"),
        ({"runners": {"listenerTemplate": {"spec": {"containers": "x"}}}}, "containers.listener.securityContext"),
        ({"controller": {"image": {"tag": "canary"}}}, "image.tag: Slipway sets this value of the chart: leave it out; give arc"),
        ({"runners": {"proxy": {"http": {"url": "http://me:hunter2@p"}}}}, "proxy.http.url: has a login"),
        ({"runners": {"proxy": {"http": {"url": "http://p:3128"}}}}, "no network policy lets out port 3128: add it to network"),
        ({"controller": {"env": [{"name": "A", "value": "http://me:hunter2@p"}]}}, "env: has a login, which the state would"),
        ({"controller": {"env": [{"name": "A_TOKEN", "value": "hunter2"}]}}, "env: the variable A_TOKEN reads like a secret"),
        ({"runners": {"proxy": {"https": "http://me:hunter2@p"}}}, "proxy.https: has a login"),
        ({"runners": {"proxy": {"https": {"url": "http://me:hunter2@p\u2100x"}}}}, "proxy.https.url: has a login"),
        ({"runners": {"proxy": {"htps": {"url": "http://p"}}}}, "proxy: has no 'htps' (did you mean 'https'?); it has: http"),
        ({"runners": {"proxy": {"https": {"uri": "http://p"}}}}, "proxy.https: expected {url: http://proxy.example:3128}"),
        ({"runners": {"proxy": {"https": "http://p"}}}, "proxy.https: expected {url: "),
        ({"runners": {"proxy": {"noProxy": "a,b"}}}, "proxy.noProxy: expected a list"),
        ({"runners": {"proxy": {"http": {"url": "http://p:x"}}}}, "proxy.http.url: is no address"),
        ({"runners": {"proxy": {"http": {"url": "http://[p"}}}}, "proxy.http.url: is no address"),
        ({"runners": {"proxy": {"http": {"url": "me:hunter2@p:3128"}}}}, "proxy.http.url: is no address"),
    ],
)  # fmt: skip
def test_wrong_value_of_a_chart_is_one_line(values: dict[str, Any], line: str) -> None:
    message = mistake(arc={"values": values})
    assert line in message
    assert "hunter2" not in message.partition("[type=")[0]


def test_secret_among_the_values_of_a_chart_is_refused() -> None:
    """A program has it decrypted, and the state of Helm's release would show it."""
    values = {"controller": {"env": [{"name": "A", "value": {"secure": "v1:abc"}}]}}
    for written, key in ((values, "values.controller.env.0.value"), ({"secure": "v1:abc"}, "values")):
        with pytest.raises(SlipwayError) as caught:
            check_clear_text({"runners": {"arc": {"values": written}}}, "stack x")
        assert str(caught.value).startswith(f"stack x: slipway:runners.arc.{key}: is a secret, which the state would")
    check_clear_text({"runners": {"arc": {"values": VALUES}, "github": {"token": {"secure": "v1:abc"}}}}, "stack x")


def test_values_of_another_release_are_passed_as_they_are() -> None:
    assert config(arc={"version": "0.15.0", "values": {"runners": {"newOne": 1}}}).arc.values
    assert config(arc={"charts": "charts", "values": {"runners": {"newOne": 1}}}).arc.values


def test_keys_for_another_controller_are_refused() -> None:
    values = {"controller": CONTROLLER, "values": {"controller": {"replicaCount": 2}}}
    assert "controller has no effect, because arc.controller is the organization's own: leave it out" in mistake(
        arc=values
    )
    assert "'slipway-runners' is the stack's: give that of" in mistake(
        arc={"controller": {**CONTROLLER, "namespace": "slipway-runners"}}
    )


def test_charts_in_a_folder_need_that_of_the_runners_alone(tmp_path: Path) -> None:
    (tmp_path / "charts/gha-runner-scale-set").mkdir(parents=True)
    (tmp_path / "charts/gha-runner-scale-set/Chart.yaml").write_text('appVersion: "0.14.2"\n')

    def lines(**arc: Any) -> list[str]:
        own = graph.unlocked({"flavor": "runners", "runners": runners(arc={"charts": "charts", **arc})}, "stack x")
        object.__setattr__(own, "root", tmp_path)
        return [*clusters.missing_charts(own)]

    assert lines(controller=CONTROLLER) == []
    assert len(lines()) == 1


def _asked(folder: Path, labels: Mapping[str, str] | None, sets: Sequence[Any] = ()) -> None:
    """Have kubectl answer with a Deployment of these labels in arc-systems; None: it is forbidden there."""
    there = json.dumps({"items": [{"metadata": {"name": "arc", "labels": labels}}]})
    forbidden = "echo 'Error from server (Forbidden): deployments is forbidden' >&2; exit 1"
    program = folder / "kubectl"
    program.write_text(
        f"""#!/bin/sh
case "$*" in
  *"get deployments.apps --namespace=arc-systems --selector=app.kubernetes.io/part-of=gha-rs-controller "*)
    {forbidden if labels is None else f"echo '{there}'"};;
  *"get pods --namespace=arc-systems"*) {forbidden};;
  *"get autoscalingrunnersets"*) echo '{json.dumps({"items": sets})}';;
  *) echo '{{"items": []}}';;
esac
"""
    )
    program.chmod(0o755)


def _labels(version: str = "0.14.1", **more: str) -> dict[str, str]:
    account = {"actions.github.com/controller-service-account-name": CONTROLLER["account"]}
    return {"app.kubernetes.io/version": version, **account, **more}


WATCHED = "actions.github.com/controller-watch-single-namespace"


def test_controller_that_does_not_serve_is_refused(kubectl: Path) -> None:
    own, key = config(arc={"controller": CONTROLLER}), "slipway:runners.arc.controller: arc-systems"
    other = {"actions.github.com/controller-service-account-name": "other"}
    for labels, line in (
        (_labels(), ""),
        (_labels("canary-1"), ""),
        (_labels(**{WATCHED: "slipway-runners"}), ""),
        (None, ""),  # the warnings say so
        (
            _labels("0.13.1"),
            f"{key}/arc is of ARC 0.13.1, and deletes scale sets of 0.14: give an arc.version, or charts",
        ),
        (_labels(**{WATCHED: "ml"}), f"{key}/arc watches the namespace ml alone"),
        (other, f"{key} has no controller of ARC with the account 'arc-gha-rs-controller': give the account of"),
    ):
        _asked(kubectl, labels)
        lines = cluster_health.refusals(own)
        assert len(lines) == bool(line), lines
        assert not line or lines[0].startswith(line)
    assert cluster_health.refusals(config()) == []  # the stack's own is not looked for


def test_scale_set_of_another_controller_is_refused(kubectl: Path) -> None:
    own, ours = config(arc={"controller": CONTROLLER}), config()
    name = "arc-systems/arc-gha-rs-controller"
    for mark, now, there in (
        ({}, own, "a controller of the stack"),
        ({"slipway/controller": name}, ours, name),
        ({"slipway/controller": name}, own, ""),
        ({}, ours, ""),
    ):
        metadata = {"name": "gpu", "labels": {"app.kubernetes.io/version": "0.14.2"}}
        _asked(kubectl, _labels(), [{"metadata": {**metadata, "annotations": {"slipway/arc": "0.14", **mark}}}])
        line = f"slipway-runners/gpu: {there} serves the scale set, and two would listen for it: run `slipway destroy`, then"
        assert cluster_health.refusals(now) == ([f"{line} `slipway up`"] if there else [])


def test_listeners_of_others_are_not_looked_at(kubectl: Path) -> None:
    own = config(arc={"controller": CONTROLLER})
    _asked(kubectl, _labels())
    (line,) = cluster_health.warnings(own)
    assert line.startswith("arc-systems: whether the organization's controller works is not known: ")
    assert cluster_jobs("mine", own)[2].controller == ""
    _asked(kubectl, None)
    assert "arc-systems: whether the organization's controller serves these runners is not known: " in "\n".join(
        cluster_health.warnings(own)
    )
    space = "actions.github.com/scale-set-namespace"
    controller, mine, theirs = pod("arc"), pod("gpu-listener"), pod("ml-listener", "Failed")
    controller["metadata"]["labels"] = {"app.kubernetes.io/part-of": "gha-rs-controller"}
    mine["metadata"]["labels"], theirs["metadata"]["labels"] = {space: "slipway-runners"}, {space: "ml"}
    assert own.of_arc([controller, mine, theirs, pod("grafana")]) == [controller, mine]
    assert config().of_arc([mine, pod("x")]) == [mine, pod("x")]


def test_pods_have_the_network_of_the_cluster() -> None:
    network = {"mtu": 1400, "ports": [3128], "dockerMirrors": ["https://m.example", "http://n.example:5000"]}
    values = {"build": {}, "nodeSelector": {"acme.example/pool": "a"}, "profile": "cpu", "arc": {"values": VALUES}}
    recorder = only(network=network, pullSecrets=["mirror"], **values)[0]
    declared = objects(recorder)
    template = recorder.of_type(RELEASE)[SCALE_SET]["values"]["template"]["spec"]
    (dind,) = [each for each in template["initContainers"] if each["name"] == "dind"]
    daemon = declared["Deployment build"]["spec"]["template"]["spec"]["containers"][0]
    for container in (dind, daemon):
        assert container["args"][-4:] == [
            *("--mtu=1400", "--default-network-opt=bridge=com.docker.network.driver.mtu=1400"),
            *("--registry-mirror=https://m.example", "--registry-mirror=http://n.example:5000"),
        ]
    for name in ("build", "controller", "build-service"):
        ports = [port["port"] for rule in declared[f"NetworkPolicy {name}"]["spec"]["egress"] for port in rule["ports"]]
        assert {3128, 5000} <= {*ports}, name


def test_every_account_of_pods_has_the_pull_secrets() -> None:
    """A name of a secret may have dots, as one of a runtime class."""
    names = {"pullSecrets": ["registry.acme.io"], "runtimeClass": "kata.v2"}
    given = runners(**names, github={"url": "https://github.com/acme", "secret": "github.com"})
    config = KubernetesRunnersConfig.model_validate(given)
    assert (config.pull_secrets, config.runtime_class, config.github.secret) == (
        ("registry.acme.io",),
        "kata.v2",
        "github.com",
    )
    for wrong in ("a..b", ".a", "a.", "A.b", "a_b", "a" * 254):
        with pytest.raises(ValueError, match="expected 1 to 253 lower-case"):
            KubernetesRunnersConfig.model_validate(runners(pullSecrets=[wrong]))
    declared = objects(only(pullSecrets=["mirror"], jobPods=True, schedule=SCHEDULE, build={"jobs": True})[0])
    accounts = {name: each for name, each in declared.items() if name.startswith("ServiceAccount ")}
    assert accounts.keys() == {f"ServiceAccount {name}" for name in ("runner", "job", "build", "sweeper", "minimum")}
    assert all(each["imagePullSecrets"] == [{"name": "mirror"}] for each in accounts.values())
    named = [each["spec"].get("template", {}).get("spec", {}) for each in declared.values() if "spec" in each]
    assert not [each for each in named if "imagePullSecrets" in each]


def test_login_in_place_of_a_pull_secret_is_not_shown() -> None:
    with pytest.raises(SlipwayError) as caught:
        graph.unlocked({"flavor": "runners", "runners": runners(pullSecrets=['{"auths": "hunter2"}'])}, "stack x")
    assert str(caught.value).startswith("stack x: slipway:runners.pullSecrets.0: expected 1 to 253 lower-case")


def test_jobs_in_pods_and_their_runners_reach_the_ports() -> None:
    declared = objects(only(jobPods=True, network={"ports": [3128]})[0])
    for name in ("build", "jobs-build"):
        ports = [port["port"] for port in declared[f"NetworkPolicy {name}"]["spec"]["egress"][1]["ports"]]
        assert 3128 in ports
    assert isolation.API_SERVER in [
        port["port"] for port in declared["NetworkPolicy build"]["spec"]["egress"][1]["ports"]
    ]


def test_network_of_docker_without_a_daemon_is_refused() -> None:
    for key, value in (("mtu", 1400), ("dockerMirrors", ["https://m.example"])):
        line = f"network.{key} has no effect, because no Docker daemon runs: leave it out"
        assert line in mistake(network={key: value}, jobPods=True)
        assert line in mistake(network={key: value}, daemon=False, build={"rootless": True, "jobs": True})
        assert config(network={key: value}, jobPods=True, build={"jobs": True}).network
    for mirror in (
        "m.example",
        "https://me:hunter2@m.example",
        "https://m.example/?a",
        "https://m.example:0",
        "https://m:99999",
    ):
        assert "expected an http:// or https:// address without a login" in mistake(network={"dockerMirrors": [mirror]})
    assert "network.ports.0\n  Value error, expected a number" in mistake(network={"ports": [True]})


def test_sets_share_network_and_controller() -> None:
    recorder = deployed(
        chain={},
        runners=runners(
            arc={"controller": CONTROLLER}, network={"mtu": 1400}, sets={"a": {"gpus": 1}, "b": {"gpus": 2}}
        ),
    )[0]
    charts = recorder.of_type(RELEASE)
    assert len(charts) == 2
    for chart in charts.values():
        assert chart["values"]["controllerServiceAccount"]["namespace"] == "arc-systems"
        assert "--mtu=1400" in chart["values"]["template"]["spec"]["initContainers"][1]["args"]


def test_proxy_of_runners_is_that_of_daemons_and_jobs() -> None:
    """ARC gives it to the runner's container alone. One with a login is not for what any job can read."""
    proxy = {
        "https": {"url": "http://p.example:80"},
        "http": {"url": "http://p.example", "credentialSecretRef": "login"},
    }
    arc = {"values": {"runners": {"proxy": {**proxy, "noProxy": ["acme.example"]}}}}
    expected = [
        {"name": "https_proxy", "value": "http://p.example:80"},
        {"name": "no_proxy", "value": "acme.example,localhost,127.0.0.1,.svc"},
    ]
    recorder = only(arc=arc, build={"jobs": True})[0]
    policy = objects(recorder)["NetworkPolicy controller"]["spec"]["egress"]
    assert [port["port"] for port in policy[1]["ports"]] == [80, 443, isolation.API_SERVER]
    template = recorder.of_type(RELEASE)[SCALE_SET]["values"]["template"]["spec"]
    assert template["initContainers"][1]["env"][1:] == expected
    daemon = objects(recorder)["Deployment build"]["spec"]["template"]["spec"]["containers"][0]
    assert daemon["env"] == expected
    data = objects(only(arc=arc, jobPods=True)[0])["ConfigMap jobs"]["data"]
    for name in ("job.json", "step.json"):
        env = json.loads(data[name])["spec"]["containers"][0]["env"]
        assert [each for each in env if "proxy" in each["name"]] == expected
