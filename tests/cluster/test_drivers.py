"""Drivers of a cluster's nodes, by the labels of NVIDIA's GPU feature discovery, from a real API server by kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from containers.image.gpu.node_labels import GPU
from stacks.config.stack_file import ROOT
from tests.cluster.conftest import ClusterProject
from tests.cluster.control_plane import Cluster, until
from tests.cluster.programs import program
from tests.engine import project as engine_project
from tests.fakes.kubernetes.node import node
from tests.fakes.kubernetes.node_pools import pool
from tests.helpers.elf_writer import elf
from tests.helpers.layers import members_archive
from tests.helpers.local_images import LAYERS, write_layout

pytestmark = pytest.mark.slow

FLAVOR = engine_project.FLAVOR.replace("import ImageSpec", "import Cuda, ImageSpec").replace(
    "args=", 'cuda=Cuda(version="13.0", forward=False), args='
)
"""An image with CUDA 13, which needs driver 580."""
MERGE = {"Content-Type": "application/merge-patch+json"}


def labels(driver: str) -> dict[str, str]:
    """Return the labels that GPU feature discovery 0.20 gives to a node with a driver."""
    major, minor, revision = driver.split(".")
    new = {"major": major, "minor": minor, "revision": revision, "full": driver}
    old = {"major": major, "minor": minor, "rev": revision}
    return {
        **{f"nvidia.com/cuda.driver-version.{name}": value for name, value in new.items()},
        **{f"nvidia.com/cuda.driver.{name}": value for name, value in old.items()},
    }


@contextmanager
def nodes(cluster: Cluster, **drivers: str) -> Iterator[None]:
    """Add nodes with GPUs, by name, and one without, until the block ends."""
    (name, driver), *others = drivers.items()
    with node(cluster, name, labels(driver), {GPU: "8"}):
        if others:
            with nodes(cluster, **dict(others)):
                yield
        else:
            with node(cluster, "plain", {}, {}):
                until(lambda: all("allocatable" in each["status"] for each in cluster.items("/api/v1/nodes")))
                yield


def inspect(cluster: Cluster, image: Path) -> subprocess.CompletedProcess[str]:
    path = f"{program('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    words = [sys.executable, "-m", "stacks", "inspect", str(image), "--cluster"]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_inspect_holds_an_image_against_a_clusters_nodes(cluster: Cluster, tmp_path: Path) -> None:
    layer = members_archive(("usr/lib64/libcudart.so.13", elf("libcudart.so.13")))
    image = write_layout(tmp_path / "image", [LAYERS[0], (layer, "tar", bytes)])
    with nodes(cluster, old="570.86.15", new="580.95.05"):
        done = inspect(cluster, image)
        assert (done.returncode, done.stderr) == (1, "")
        assert "  nodes   570.86.15 on node old, 580.95.05 on node new\n" in done.stdout
        assert done.stdout.endswith("missing driver 580: 570.86.15 of node old is too old for CUDA 13\n1 fault\n")
    with nodes(cluster, new="580.95.05"):
        assert inspect(cluster, image).returncode == 0
    done = inspect(cluster, image)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nodes has a label with its driver, such as nvidia.com/cuda.driver-version.full" in done.stderr


def test_update_warns_of_nodes_with_an_old_driver(project: ClusterProject) -> None:
    project.write("stacks/flavors/chain.py", FLAVOR)
    project.configure({"profile": "eks-p5", "driver": "580.95.05"}, flavor="chain")
    with pool(project.cluster, "eks-p5"):
        given = {"metadata": {"labels": labels("570.86.15")}}
        project.cluster.call("PATCH", "/api/v1/nodes/eks-p5", given, headers=MERGE)
        output = project.up().output
    expected = "node eks-p5, of eks-p5: driver 570.86.15 does not run link0 with CUDA 13.0, which needs 580 or newer"
    assert f"warning: {expected}: update the nodes' driver" in output, output
