"""The flavor ``megatron``: its arguments, its tags, and the one line for each mistake."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from containers.image.gpu.node_labels import GPU
from stacks import flavors, plan
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT, ImageSpec, Outside
from stacks.tags import Revision, parse, render
from stacks.versions.aks import aks_node
from stacks.versions.nodes import INFINIBAND, node
from stacks.versions.tables import table
from tests.helpers import refusals
from tests.helpers.every import every
from tests.helpers.unlocked_spec import unlocked

SEEDS_COMMIT = "878d65fe006b07ccef715ccc5ab521afb94e78a8"


def spec(**values: Any) -> ImageSpec:
    config = flavors.load({"flavor": "megatron", **values}, "stack x")
    [image] = flavors.flavor("megatron").images(config)
    return image


refusal = partial(refusals.refusal_line, spec)


def test_flavor_alone_equals_stack_of_its_name() -> None:
    [image] = plan.resolve("aks-megatron")[1]
    assert unlocked(image) == spec()
    assert image.parents == {"BASE_IMAGE": Outside(reference="nvcr.io/nvidia/pytorch:26.03-py3")}
    assert {name for name, value in image.args.items() if not value} == {"TRANSFORMER_ENGINE_REF"}


def test_stack_of_2503_has_upstream_versions() -> None:
    [image] = plan.resolve("aks-megatron-2503")[1]
    expected = {
        "MEGATRON_COMMIT": SEEDS_COMMIT,
        "RELEASE_MEGATRON": "878d65f",
        "RELEASE_LAUNCHER": "24.12",
        "LAUNCHER_COMMIT": "5730fac6f97795931325cab0ac5dce1924cdcb3f",
        "RELEASE_NEMO": "24.05",
        "DOCA_RELEASE": "2.9.1",
        "DOCA_MACHINE": "x86_64",
        "TOPOLOGY_NAME": "ndv5-topo.xml",
        "TOPOLOGY_SHA256": "c26ff47f1decf03d44ee6e90c4a8afd3bddeec334c5545008f33af2a297e2834",
    }
    assert {name: image.args[name] for name in expected} == expected
    assert image.parents == {"BASE_IMAGE": Outside(reference="nvcr.io/nvidia/pytorch:25.03-py3")}


@every(
    "values, suffix",
    [
        ({}, "megatron-ngc26.03-lm266f1c9-doca3.2.1"),
        ({"doca": False}, "megatron-ngc26.03-lm266f1c9"),
        ({"ngc": "25.03", "megatron": SEEDS_COMMIT, "doca": "2.9.1", "tagSuffix": "mine"},
         "megatron-ngc25.03-lm878d65f-doca2.9.1-mine"),
    ],
)  # fmt: skip
def test_tag_names_parent_megatron_and_doca(values: dict[str, Any], suffix: str) -> None:
    planned = spec(**values).suffix
    assert planned.render() == suffix
    assert parse(render(Revision(commit="a1b2c3d"), planned)) == (Revision(commit="a1b2c3d"), planned)


@every(
    "values, changed",
    [
        ({"doca": False}, {"DOCA_RELEASE": "", "DOCA_MACHINE": ""}),
        ({"doca": "3.3.0"}, {"DOCA_RELEASE": "3.3.0"}),
        ({"transformerEngine": "2.12"}, {"TRANSFORMER_ENGINE_REF": "v2.12"}),
        ({"transformerEngine": "a" * 40}, {"TRANSFORMER_ENGINE_REF": "a" * 40}),
        ({"megatron": SEEDS_COMMIT}, {"MEGATRON_COMMIT": SEEDS_COMMIT, "RELEASE_MEGATRON": "878d65f"}),
        ({"launcher": "24.12"}, {}),
        ({"launcher": {"commit": "d" * 40}}, {"LAUNCHER_COMMIT": "d" * 40}),
        ({"launcher": {"nemo": "24.05"}}, {"RELEASE_NEMO": "24.05"}),
        ({"launcher": "24.07"}, {"RELEASE_LAUNCHER": "24.07", "RELEASE_NEMO": "24.05",
                                 "LAUNCHER_COMMIT": "8325688d8345a5513660f0f8390f0482a721c009"}),
        ({"topology": {"commit": "b" * 40, "sha256": "c" * 64}},
         {"TOPOLOGY_COMMIT": "b" * 40, "TOPOLOGY_SHA256": "c" * 64}),
        ({"dataPackages": {"datasets": "4.4.0"}}, {"DATASETS_VERSION": "4.4.0"}),
        ({"archList": "9.0+PTX"}, {"ARCH_LIST": "9.0+PTX"}),
        ({"extraTags": ["latest"]}, {}),
    ],
)  # fmt: skip
def test_switch_changes_only_its_own_arguments(values: dict[str, Any], changed: dict[str, str]) -> None:
    assert spec(**values).args == {**spec().args, **changed}


@every("nodes, archs", [("aks-gb200", "10.0"), ("aks-gb300", "10.3")])
def test_topology_of_grace_nodes_is_empty(nodes: str, archs: str) -> None:
    image = spec(nodes=nodes, platform="linux/arm64")
    none = {"TOPOLOGY_NAME": "", "TOPOLOGY_COMMIT": "", "TOPOLOGY_SHA256": ""}
    assert image.args == {**spec().args, **none, "ARCH_LIST": archs, "DOCA_MACHINE": "arm64-sbsa"}
    assert image.platform == "linux/arm64"


def test_max_jobs_change_only_the_tuning() -> None:
    assert spec(maxJobs=4).model_copy(update={"tuning": {}}) == spec()
    assert spec(maxJobs=4).tuning == {"MAX_JOBS": "4"}


def test_nodes_of_aks_are_known_to_runners() -> None:
    ours, theirs = aks_node("aks-ndv5"), node("aks-ndv5")
    assert theirs.selector == {"node.kubernetes.io/instance-type": ours.sku}
    assert theirs.limits == {GPU: ours.gpus, INFINIBAND: ours.rdma}


def test_tables_hold_full_hashes_and_commits() -> None:
    topologies = [row["topology"] for row in table("aks").values() if "topology" in row]
    launchers = table("nemo")["launcher"].values()
    assert topologies
    assert all(len(row["sha256"]) == 64 for row in topologies)
    assert all(len(row["commit"]) == 40 for row in (*topologies, *launchers))


@every(
    "values, message",
    [
        ({"ngc": "25.3"}, "slipway:ngc: '25.3' is not a known release of nvcr.io/nvidia/pytorch"),
        ({"megatron": "core_v0.18.2"}, "slipway:megatron: 'core_v0.18.2': expected a commit: 7 to 40 digits 0-9 a-f"),
        ({"megatron": "main"}, "slipway:megatron: 'main': expected a commit"),
        (
            {"launcher": "25.01"},
            "slipway:launcher.version: '25.01' is no release of the NeMo Framework Launcher; another needs launcher.com",
        ),
        (
            {"launcher": {"version": "24.07", "nemo": "24.09"}},
            "slipway:launcher.nemo: '24.09' is newer than launcher 24.07 was made for; allowed: 24.01.01.framework, ",
        ),
        ({"launcher": {"nemo": "25.02"}}, "slipway:launcher.nemo: '25.02' is no known release of nvcr.io/nvidia/nemo"),
        (
            {"ngc": "24.05", "doca": "3.3.0"},
            "slipway:doca: '3.3.0' has no packages for Ubuntu 22.04, the system of nvcr.io/nvidia/pytorch:24.05-py3; allowed: 2.9.1, 2.9.2, 3.1.0, 3.2.0, 3.2.1; rule: stacks/versions/doca.toml",
        ),
        ({"doca": "3.4.0"}, "slipway:doca: '3.4.0' has no packages for Ubuntu 24.04"),
        ({"doca": "2.9"}, "slipway:doca: '2.9' is not a known release of DOCA (did you mean '2.9.3'?)"),
        ({"nodes": "aks-ndv6"}, "slipway:nodes: 'aks-ndv6' is no known GPU node of AKS (did you mean 'aks-ndv5'?)"),
        (
            {"nodes": "aks-gb300"},
            "slipway:platform: 'linux/amd64' is not the platform of aks-gb300 (Standard_ND128isr_GB300_v6); allowed: linux/arm64",
        ),
        (
            {"nodes": "aks-gb200", "platform": "linux/arm64", "topology": {"commit": "b" * 40, "sha256": "c" * 64}},
            "is for a topology file, and aks-gb200 has none",
        ),
        (
            {"topology": {"commit": "b" * 40, "sha256": "c" * 63}},
            "slipway:topology.sha256: '" + "c" * 63 + "': expected a SHA-256: 64 digits 0-9 a-f",
        ),
        ({"topology": {"commit": "master", "sha256": "c" * 64}}, "slipway:topology.commit: 'master': expected a commit"),
        ({"nodes": "aks-gb300", "platform": "linux/arm64", "ngc": "25.03", "doca": "2.9.1"}, "'10.3' cannot be compiled by CUDA 12.8.1"),
        ({"transformerEngine": "stable"}, "slipway:transformerEngine: 'stable': expected a version"),
        ({"transformerEngine": "1.9"}, "slipway:transformerEngine: '1.9' does not build with cuda 13.2; allowed: 1.11 and newer; rule: "),
        ({"dataPackages": {"datasets": "latest"}}, "slipway:dataPackages.datasets: 'latest': expected a version such as 2.15.0, beginning with"),
        ({"dataPackages": {"huggingfaceHub": "5"}}, "slipway:dataPackages.huggingfaceHub: '5': expected a version such as 2.15.0, beginning with"),
        ({"dataPackages": {"dataset": "1.0"}}, "unknown key 'dataset' (did you mean 'datasets'?)"),
    ],
)  # fmt: skip
def test_config_mistake_fails_with_one_line_and_advice(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


def test_every_node_has_a_profile_and_is_in_the_readme() -> None:
    folder = ROOT / CONTEXT / "megatron"
    profiles = {path.name: path.read_text() for path in (folder / "profiles").iterdir()}
    assert set(profiles) == {*(aks_node(name).profile for name in table("aks")), "sharp"}
    rows = [line for line in (folder / "README.md").read_text().splitlines() if re.match(r"\| `(aks-|sharp)", line)]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split(" | ")[0])} == set(profiles)
    for kind in table("aks"):
        topology = aks_node(kind).topology
        named = re.findall(r"^NCCL_TOPO_FILE=(.*)$", profiles[aks_node(kind).profile], re.MULTILINE)
        assert named == ([f"/etc/{topology.name}"] if topology else [])


@every("profile", sorted(path.name for path in (ROOT / CONTEXT / "megatron/profiles").iterdir()))
def test_profile_has_settings_with_their_sources(profile: str) -> None:
    text = (ROOT / CONTEXT / "megatron/profiles" / profile).read_text()
    assert "# Source: " in text
    for line in text.splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z_][A-Za-z0-9_]*=\S*|", line), line
