"""The example of a job for EFA: an MPIJob."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cli import job as jobs
from cli.main import main
from containers.errors import SlipwayError
from containers.image.gpu.node_labels import GPU
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.flavors import efa, load
from stacks.spec import CONTEXT
from stacks.versions.nodes import EFA, node
from tests.helpers.every import every


def rendered(nodes: int = 2) -> dict[str, Any]:
    return dict(yaml.safe_load(jobs.render("efa", nodes)))


@every("nodes", [2, 5])
def test_mpi_job_has_a_process_for_each_gpu(nodes: int) -> None:
    job = rendered(nodes)
    launcher, workers = (job["spec"]["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    assert (launcher["replicas"], workers["replicas"]) == (1, nodes)
    words = launcher["template"]["spec"]["containers"][0]["command"]
    assert int(words[words.index("-np") + 1]) == nodes * job["spec"]["slotsPerWorker"] == nodes * 8
    image = plan.make("efa").references["efa"]
    for replicas in (launcher, workers):
        assert [each["image"] for each in replicas["template"]["spec"]["containers"]] == [image]


def test_mpi_job_worker_has_a_whole_node_with_efa() -> None:
    pod = rendered()["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    row = node("eks-p5")
    limits = pod["containers"][0]["resources"]["limits"]
    assert {resource: int(limits[resource]) for resource in (GPU, EFA)} == row.limits
    assert limits["hugepages-2Mi"] == row.hugepages
    assert pod["nodeSelector"] == row.selector
    assert "privileged" not in pod["containers"][0]["securityContext"]


def test_mpi_job_command_is_in_the_image() -> None:
    spec = rendered()["spec"]["mpiReplicaSpecs"]
    program, *options = spec["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert options == ["-o", "StrictModes=no"]  # a Secret's folder has mode 1777
    assert (ROOT / CONTEXT / "common/multinode/skeleton/usr/local/sbin" / program).is_file()
    words = spec["Launcher"]["template"]["spec"]["containers"][0]["command"]
    tests = next(word for word in words if word.startswith("/opt/nccl-tests/"))
    assert tests in (ROOT / CONTEXT / "efa/README.md").read_text()


@every(
    "values, message",
    [
        ({"nccl": {"tests": False}}, "slipway:nccl: the example runs NCCL's tests, which the stack leaves out"),
        (
            {"platform": "linux/arm64"},
            "slipway:platform: the example is for nodes of eks-p5, which are not linux/arm64",
        ),
    ],
)
def test_mpi_job_of_unfit_stack_is_refused(values: dict[str, Any], message: str) -> None:
    config = load({"flavor": "efa", **values}, "stack x")
    assert isinstance(config, efa.Config)
    with pytest.raises(SlipwayError, match=f"^{message}"):
        efa.job(config, {"efa": "r/efa:1"}, 2)


def test_mpi_job_of_one_node_fails_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "efa", "--nodes", "1"]) == 1
    assert capsys.readouterr() == ("", "--nodes 1: the example is for several nodes; give 2 or more\n")
