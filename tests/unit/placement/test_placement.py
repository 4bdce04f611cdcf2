"""Where images are built and what happens to them, for each combination of the keys that decide it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stacks import flavors
from stacks.placement import BuildEngine, Gates, Reuse, place
from stacks.plan import Plan
from tests.fakes.pulumi_mocks import planned
from tests.helpers.every import every
from tests.unit.placement.test_copies import AMD64, ARM64, CLUSTER, CPU, EC2, PLATFORMS

FILES = {"torch/checks/1": "a" * 64}
DEFAULT = BuildEngine("default")
CONFIGURED = BuildEngine("configured", AMD64, "unix://.slipway/engines/t-amd64.sock")
REGISTRY = {"kind": "ghcr", "repository": "ghcr.io/acme/x"}
KEY = {"key": "awskms:///alias/slipway"}
ALL = ("signature", "sbom", "provenance", "loading")


def plan(*images: Any, **values: Any) -> Plan:
    return Plan("t", flavors.load({"flavor": "local", "registry": REGISTRY, **values}, "stack t"), images)


def both(name: str = "x") -> list[Any]:
    return [planned(f"{name}-{each[6:]}", platform=each, index=name) for each in PLATFORMS]


@every(
    "values, engines",
    [
        ({}, {AMD64: DEFAULT}),
        ({"engines": {AMD64: "ssh://b"}}, {AMD64: CONFIGURED}),
        ({"buildOn": "runners", "runners": CPU}, {AMD64: BuildEngine("cluster", AMD64, CONFIGURED.address)}),
        ({"platforms": PLATFORMS}, {each: BuildEngine("platform", each) for each in PLATFORMS}),
        (
            {"platforms": PLATFORMS, "engines": {AMD64: "ssh://b"}},
            {AMD64: CONFIGURED, ARM64: BuildEngine("platform", ARM64)},
        ),
        (
            {"platforms": PLATFORMS, "publish": False, **CLUSTER},
            {each: BuildEngine("cluster", each, f"unix://.slipway/engines/t-{each[6:]}.sock") for each in PLATFORMS},
        ),
        (
            {"platforms": PLATFORMS, "publish": False, "buildOn": "runners", "runners": EC2},
            {each: BuildEngine("machine", each) for each in PLATFORMS},
        ),
    ],
)
def test_image_is_placed_on_the_engine_of_its_platform(values: dict[str, Any], engines: dict[str, BuildEngine]) -> None:
    images = both() if len(engines) > 1 else [planned("torch")]
    placement = place(plan(*images, **{"publish": False, **values}))
    assert {placed.image.spec.platform: placed.engine for placed in placement.images} == engines
    assert {*placement.engines} == {*engines.values()}


def test_product_of_another_platform_goes_to_the_first_builder() -> None:
    runners = {**CPU, "build": {**CPU["build"], "platforms": {}}}
    placement = place(plan(planned("source", product=True, platform=ARM64), buildOn="runners", runners=runners))
    assert placement.images[0].engine == BuildEngine("cluster", AMD64, CONFIGURED.address)


def test_engine_without_an_image_is_declared() -> None:
    assert place(plan(engines={AMD64: "ssh://b"})).engines == (CONFIGURED,)
    assert place(plan()).engines == ()


@every(
    "values, image, built_as, needs, gates, attested",
    [
        ({}, {}, "abc1234-base", True, Gates(), ()),
        ({"publish": False}, {}, "abc1234-base", False, Gates(), ()),
        ({}, {"checks": FILES}, "unchecked--abc1234-base", True, Gates(()), ()),
        ({"publish": False}, {"checks": FILES}, "abc1234-base", False, Gates(()), ()),
        ({"inspection": {"gate": False}}, {"checks": FILES}, "unchecked--abc1234-base", True, Gates(), ()),
        ({"signing": KEY}, {"checks": FILES}, "unchecked--abc1234-base", True, Gates(()), ALL),
        ({"signing": KEY}, {}, "abc1234-base", True, Gates(), ALL[:3]),
        ({"signing": {**KEY, "sbom": False}}, {}, "abc1234-base", True, Gates(), ("signature", "provenance")),
        ({"signing": KEY, "publish": False}, {"checks": FILES}, "abc1234-base", False, Gates(()), ()),
        ({"signing": KEY}, {"product": True, "checks": FILES}, "unchecked--abc1234-base", True, Gates(), ALL[:1]),
        ({"buildOn": "runners", "runners": CPU}, {}, "abc1234-base", False, Gates(), ()),
        ({"buildOn": "runners", "runners": CPU}, {"checks": FILES}, "unchecked--abc1234-base", True, Gates(()), ()),
        ({"buildOn": "runners", "runners": CPU, "signing": KEY}, {}, "abc1234-base", True, Gates(), ALL[:3]),
    ],
)
def test_image_has_its_name_gates_and_attestations(
    values: dict[str, Any],
    image: dict[str, Any],
    built_as: str,
    needs: bool,
    gates: Gates,
    attested: tuple[str, ...],
) -> None:
    placed = place(plan(planned("torch", **image), **values)).images[0]
    assert (placed.built_as, placed.needs_registry) == (f"r.example/x/torch:{built_as}", needs)
    assert placed.gates == gates
    assert placed.attested == attested
    assert placed.pushed == values.get("publish", True)


def test_scan_is_a_gate_and_attested_with_its_exceptions() -> None:
    exception = {"id": "CVE-2026-1", "reason": "not reachable here", "until": "2099-01-31"}
    values = {"vulnerabilities": {"exceptions": [exception]}, "signing": KEY, "inspection": {"gate": False}}
    placed = place(plan(planned("torch", checks=FILES), **values)).images[0]
    assert placed.gates.exceptions is None
    assert placed.gates.vulnerabilities is not None
    assert placed.gates.vulnerabilities["exceptions"][0]["id"] == "CVE-2026-1"
    assert placed.attested == ("signature", "sbom", "provenance", "scan", "vex")


@every(
    "values, reuse",
    [
        ({}, Reuse(None, trusted=False)),
        ({"trustRegistry": True}, Reuse(None, trusted=True)),
    ],
)
def test_product_is_reused_by_signature_or_trust(values: dict[str, Any], reuse: Reuse) -> None:
    images = planned("source", product=True), planned("torch", BASE_IMAGE="source")
    placement = place(plan(*images, **values))
    assert [placed.reuse for placed in placement.images] == [reuse, None]


def test_extra_tags_of_an_index_are_not_of_its_parts() -> None:
    images = [replace(each, extra_tags=("latest",)) for each in (*both(), planned("one"))]
    placement = place(plan(*images, platforms=PLATFORMS))
    assert {placed.name: placed.extra_tags for placed in placement.images} == {
        "x-amd64": (),
        "x-arm64": (),
        "one": ("latest",),
    }
    assert {placed.name: placed.kept for placed in placement.images} == {
        "x-amd64": False,
        "x-arm64": False,
        "one": True,
    }


def test_builder_works_on_checks_and_on_gates_of_unpushed_images() -> None:
    image = planned("torch", checks=FILES)
    engine = BuildEngine("cluster", AMD64, CONFIGURED.address)
    checks = image.content.checks
    assert checks
    work = {"torch-checks": checks.folder}
    pushed = place(plan(image, buildOn="runners", runners=CPU))
    unpushed = place(plan(image, buildOn="runners", runners=CPU, publish=False))
    assert pushed.work(engine) == work
    assert unpushed.work(engine) == {**work, "torch-inspection": "saved"}


@every(
    "values, page",
    [
        ({"flavor": "megatron", "platform": ARM64, "nodes": "aks-gb200"}, 65536),
        ({"flavor": "megatron"}, None),
        ({"promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p6e-gb200"}}, "signing": KEY}, 65536),
        ({"promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5"}}, "signing": KEY}, None),
    ],
)
def test_gate_has_the_pages_of_the_nodes_that_a_stack_names(values: dict[str, Any], page: int | None) -> None:
    config = flavors.load({"flavor": "local", "registry": REGISTRY, **values}, "stack t")
    image = planned("torch", checks=FILES, platform=ARM64 if page else AMD64)
    placement = place(Plan("t", config, (image,)))
    assert placement.images[0].gates.question == ({"page": page} if page else None)
