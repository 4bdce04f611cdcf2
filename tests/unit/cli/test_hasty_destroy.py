"""``slipway destroy`` of runners on a cluster, from what ``kubectl`` says of them; a script says it in its place here."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cli.runners import hasty_destroy
from containers.errors import SlipwayError

RUNNERS = {"runners": {"kind": "kubernetes", "context": "mine"}}


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def controller(watched: str = "", available: int = 1) -> dict[str, Any]:
    labels = {"actions.github.com/controller-watch-single-namespace": watched} if watched else {}
    return {"metadata": {"labels": labels}, "status": {"availableReplicas": available}}


SERVING = controller("slipway-runners")


def says(
    folder: Path,
    sets: list[Any],
    controllers: tuple[dict[str, Any], ...] = (SERVING,),
    all_namespaces: bool = True,
) -> None:
    """Have kubectl list these scale sets and controllers."""
    (folder / "sets.json").write_text(json.dumps({"items": [{"metadata": each} for each in sets]}))
    (folder / "controllers.json").write_text(json.dumps({"items": controllers}))
    where = "--all-namespaces" if all_namespaces else "--namespace=arc-systems"
    script = f"""#!/bin/sh
case "$*" in
  "--context mine get autoscalingrunnersets.actions.github.com --namespace=slipway-runners "*) cat {folder}/sets.json;;
  "--context mine get deployments.apps {where} --selector=app.kubernetes.io/part-of=gha-rs-controller "*)
    cat {folder}/controllers.json;;
  *) exit 1;;
esac
"""
    (folder / "kubectl").write_text(script)
    (folder / "kubectl").chmod(0o755)


def refusal(**more: Any) -> str:
    try:
        assert hasty_destroy.check("mine", {"runners": {**RUNNERS["runners"], **more}}) == ""
    except SlipwayError as error:
        return str(error)
    return ""


HELD = {"finalizers": ["autoscalingrunnerset.actions.github.com/finalizer"]}


def test_destroy_leaves_a_set_its_controller(bin_folder: Path) -> None:
    says(bin_folder, [{"name": "gpu", "deletionTimestamp": "2027-01-01T00:00:00Z", **HELD}, {"name": "cpu", **HELD}])
    assert refusal() == (
        "slipway-runners/gpu: the scale set is being deleted, and waits for the jobs of its runners: run `pulumi destroy "
        "--stack mine --refresh` once kubectl get --namespace slipway-runners autoscalingrunnersets.actions.github.com no "
        "longer has it"
    )


@pytest.mark.parametrize(
    "controllers",
    [(), (controller("other"),), (controller("", available=0),), ({"metadata": {}},)],
    ids=["none", "another's", "stopped", "never up"],
)
def test_destroy_waits_for_no_controller_that_is_gone(
    bin_folder: Path, controllers: tuple[dict[str, Any], ...]
) -> None:
    for more in ({}, {"deletionTimestamp": "2027-01-01T00:00:00Z"}):
        says(bin_folder, [{"name": "gpu", **HELD, **more}], controllers=controllers)
        assert refusal() == (
            "slipway-runners/gpu: only ARC's controller ends a scale set, and none runs in slipway-runners-controller that "
            "serves slipway-runners, so that destroy would wait for nothing: start it again, or release the set by hand "
            "(docs/runners/kubernetes-upgrade-and-remove.md, A controller that is gone)"
        )
    says(bin_folder, [{"name": "gpu"}], controllers=controllers)
    assert refusal() == ""  # nothing holds the set


def test_destroy_asks_for_the_organizations_controller_alone(bin_folder: Path) -> None:
    """Who may not list Deployments of all namespaces may list those of the controller."""
    arc = {"controller": {"namespace": "arc-systems", "account": "arc"}}
    says(bin_folder, [{"name": "gpu", **HELD}], controllers=(controller(),), all_namespaces=False)
    assert refusal(arc=arc) == ""
    says(bin_folder, [{"name": "gpu", **HELD}], controllers=(), all_namespaces=False)
    assert "none runs in arc-systems that serves slipway-runners" in refusal(arc=arc)


def test_destroy_by_who_may_not_list_deployments(bin_folder: Path) -> None:
    """It does not take the cluster for one that is gone."""
    says(bin_folder, [{"name": "gpu", "labels": {"app.kubernetes.io/version": "0.14.2"}, **HELD}])
    kubectl, forbidden = bin_folder / "kubectl", "echo 'Error from server (Forbidden): no' >&2; exit 1"
    kubectl.write_text(kubectl.read_text().replace(f"cat {bin_folder}/controllers.json", forbidden))
    assert refusal() == ""
    kubectl.write_text(kubectl.read_text().replace(f"cat {bin_folder}/sets.json", forbidden))
    assert hasty_destroy.check("mine", RUNNERS) == (
        "whether a controller is there that ends the scale sets is not known: Error from server (Forbidden): no"
    )


def release(name: str, kind: str) -> dict[str, Any]:
    """Return the Secret in which Helm keeps a release with one object."""
    manifest = f"---\n# Source: chart/templates/one.yaml\n{kind}\nmetadata:\n  name: {name}\n"
    content = gzip.compress(json.dumps({"name": name, "manifest": manifest}).encode())
    data = {"release": base64.b64encode(base64.b64encode(content)).decode()}
    return {"metadata": {"labels": {"name": name, "owner": "helm"}}, "data": data}


def test_destroy_without_arcs_definitions_says_so(bin_folder: Path) -> None:
    """Releases of other charts in the namespace do not need them."""
    releases = [release(name, "apiVersion: actions.github.com/v1alpha1") for name in ("gpu", "cpu", "gpu")]
    others = [release("redis", "apiVersion: apps/v1\nkind: StatefulSet")]
    for listed in ([*releases, *others], others, []):
        (bin_folder / "releases.json").write_text(json.dumps({"items": listed}))
        (bin_folder / "kubectl").write_text(f"""#!/bin/sh
case "$*" in
  *"get autoscalingrunnersets"*) echo 'error: the server doesn'"'"'t have a resource type "x"' >&2; exit 1;;
  *"get secrets --namespace=slipway-runners --selector=owner=helm "*) cat {bin_folder}/releases.json;;
esac
""")
        (bin_folder / "kubectl").chmod(0o755)
        lines = refusal().splitlines()
        assert [line.partition(":")[0] for line in lines] == (
            ["slipway-runners/cpu", "slipway-runners/gpu"] if listed[:-1] else []
        )
        assert all("has no autoscalingrunnersets.actions.github.com any more" in line for line in lines)


def test_destroy_goes_on_without_an_answer(bin_folder: Path) -> None:
    """It says so, and how to forget a cluster that is gone."""
    (bin_folder / "kubectl").write_text("#!/bin/sh\necho 'dial tcp: i/o timeout' >&2\nexit 1\n")
    (bin_folder / "kubectl").chmod(0o755)
    assert hasty_destroy.check("mine", RUNNERS) == (
        "the cluster does not answer kubectl (dial tcp: i/o timeout): destroy deletes nothing in it; if it is gone for "
        "good, run `PULUMI_K8S_DELETE_UNREACHABLE=true pulumi refresh --stack mine` first, which forgets what was there"
    )
    for wrong in (
        {"kubeconfig": "~no-such-user/config"},
        {"context": ["a"]},
        {"namespace": None},
        {"kubeconfig": 7},
        {"arc": [1]},
        {"arc": {"controller": "a"}},
    ):
        hasty_destroy.check("mine", {"runners": {"kind": "kubernetes", **wrong}})
        says(bin_folder, [{"name": "gpu", **HELD}])
        hasty_destroy.check(
            "mine", {"runners": {"kind": "kubernetes", "context": "mine", **wrong}} if "arc" in wrong else {}
        )
    assert hasty_destroy.check("mine", {"runners": {"kind": "ec2"}}) == hasty_destroy.check("mine", {}) == ""


def test_destroy_without_kubectl_says_so(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bin_folder))
    assert hasty_destroy.check("mine", RUNNERS).startswith("kubectl is not on PATH: ")
