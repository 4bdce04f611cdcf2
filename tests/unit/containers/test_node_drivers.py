"""The drivers of a cluster's nodes by their labels, and images that are held against them; `kubectl` is a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from containers.image.gpu import node_drivers
from containers.image.gpu.kubectl import offered
from containers.image.gpu.node_labels import GPU, labelled_driver
from tests.helpers.elf_writer import elf
from tests.helpers.every import every
from tests.helpers.layers import members_archive
from tests.helpers.local_images import LAYERS, write_layout

PREFIX = "nvidia.com/cuda."
NEW = {"driver-version.major": "550", "driver-version.minor": "107", "driver-version.revision": "02"}
OLD = {"driver.major": "470", "driver.minor": "57", "driver.rev": "02"}


def labels(values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{name}": value for name, value in values.items()}


def node(name: str, driver: str = "", gpus: int = 8) -> dict[str, Any]:
    given = labels({"driver-version.full": driver}) if driver else {}
    return {"metadata": {"name": name, "labels": given}, "status": {"allocatable": {GPU: str(gpus)} if gpus else {}}}


@every(
    "given, expected",
    [
        ({**NEW, **OLD, "driver-version.full": "550.107.02"}, ("550.107.02", f"{PREFIX}driver-version.full")),
        ({**NEW, **OLD}, ("550.107.02", f"{PREFIX}driver-version.major")),
        ({"driver-version.major": "550"}, ("550", f"{PREFIX}driver-version.major")),
        (OLD, ("470.57.02", f"{PREFIX}driver.major")),
        ({**OLD, "driver.rev": ""}, ("470.57", f"{PREFIX}driver.major")),
        ({"driver.minor": "57"}, None),
        ({}, None),
    ],
)
def test_driver_of_labels_is_the_most_exact_one(given: dict[str, str], expected: tuple[str, str] | None) -> None:
    assert labelled_driver(labels(given)) == expected


def test_nodes_are_grouped_by_driver_the_oldest_first() -> None:
    nodes = [
        node("b", "580.95.05"),
        node("a", "99.1"),
        node("c", "580.95.05"),
        node("x", "latest"),
        node("cpu", gpus=0),
    ]
    drivers = node_drivers.of([*nodes, node("bare")])
    assert list(drivers.by_driver.items()) == [("99.1", ["a"]), ("580.95.05", ["b", "c"])]
    assert drivers.unlabelled == ("x", "bare")


@every(
    "quantity, count",
    [("8", 8), ("8k", 8000), ("0", 0), ("8e3", 8000), ("2Ki", 2048), ("500m", 0), ("1.5k", 1500), ("8000m", 8)],
)
def test_gpus_of_a_node_are_a_kubernetes_quantity(quantity: str, count: int) -> None:
    bare = {"metadata": {"name": "a"}, "status": {"allocatable": {GPU: quantity}}}
    assert offered(bare, GPU) == count
    assert node_drivers.of([bare]).unlabelled == (("a",) if count else ())


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def says(folder: Path, *nodes: dict[str, Any]) -> None:
    (folder / "nodes.json").write_text(json.dumps({"items": nodes}))
    (folder / "kubectl").write_text(f'#!/bin/sh\necho "$*" >>{folder}/calls\ncat {folder}/nodes.json\n')
    (folder / "kubectl").chmod(0o755)


@pytest.fixture
def image(tmp_path: Path) -> str:
    """An image with CUDA 13, which needs driver 580."""
    layer = members_archive(("usr/lib64/libcudart.so.13", elf("libcudart.so.13")))
    return str(write_layout(tmp_path / "image", [LAYERS[0], (layer, "tar", bytes)]))


def test_inspect_cluster_names_nodes_with_an_old_driver(
    kubectl: Path, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [node(f"gpu-{number}", "550.90.07") for number in range(5)]
    says(kubectl, node("new", "580.95.05"), *old, node("bare"), node("cpu", gpus=0))
    assert main(["inspect", image, "--cluster"]) == 1
    lines = capsys.readouterr().out.splitlines()
    known = "550.90.07 on nodes gpu-0, gpu-1, gpu-2 and 2 more, 580.95.05 on node new; not known of node bare"
    assert f"  nodes   {known}" in lines
    fault = "missing driver 580: 550.90.07 of nodes gpu-0, gpu-1, gpu-2 and 2 more is too old for CUDA 13"
    assert lines[-2:] == [f"fault: /usr/lib64/libcudart.so.13: {fault}", "1 fault"]
    assert (kubectl / "calls").read_text() == "get nodes --output=json --request-timeout=20s\n"
    assert main(["inspect", image, "--cluster", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["nodes"] == {
        "by_driver": {"550.90.07": [f"gpu-{number}" for number in range(5)], "580.95.05": ["new"]},
        "unlabelled": ["bare"],
    }


def test_inspect_cluster_with_new_drivers_has_no_fault(kubectl: Path, image: str) -> None:
    says(kubectl, node("a", "580.95.05"), node("b", "595.45.04"))
    assert main(["inspect", image, "--cluster"]) == 0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "kubectl is not on PATH: it asks the cluster for its nodes"),
        (
            "printf 'E1 again\\nerror: no context\\n' >&2; exit 1",
            "the cluster does not answer kubectl: error: no context",
        ),
        ("echo '{}'", "the cluster does not answer kubectl: what it printed is no list of objects"),
        ("""echo '{"items": null}'""", "the cluster does not answer kubectl: what it printed is no list of objects"),
        ("echo '[]'", "the cluster does not answer kubectl: what it printed is no list of objects"),
        (
            f"""echo '{json.dumps({"items": [{"metadata": {"name": "a"}, "status": {"allocatable": {GPU: "8x"}}}]})}'""",
            f"the cluster does not answer kubectl: node a: {GPU}: '8x' is no quantity, such as 8 or 8k",
        ),
        ("echo no JSON", "the cluster does not answer kubectl: Expecting value: line 1 column 1 (char 0)"),
        (
            """echo '{"items": [{"metadata": {"name": "a"}, "status": {}}]}'""",
            "none of 1 nodes has a label with its driver, such as nvidia.com/cuda.driver-version.full: ",
        ),
    ],
)
def test_cluster_that_names_no_driver_is_one_line(
    kubectl: Path,
    image: str,
    script: str | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(kubectl))
    if script:
        (kubectl / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
        (kubectl / "kubectl").chmod(0o755)
    assert main(["inspect", image, "--cluster"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"--cluster: {reason}")
    assert error.count("\n") == 1
