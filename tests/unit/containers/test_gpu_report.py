"""Reports of GPU checks: reading them, and what is required of them. The reports are of real GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.evidence import gpu_report
from stacks.config.gates.promotion_gate import GpuChecksConfig
from tests.helpers import gpu_reports
from tests.helpers.every import every


def report(name: str, **changes: Any) -> gpu_report.GpuReport:
    return gpu_report.parse(gpu_reports.text(name, **changes), "report")


def violations(name: str, changes: dict[str, Any] | None = None, **required: Any) -> list[str]:
    return list(gpu_report.violations(report(name, **(changes or {})), GpuChecksConfig.model_validate(required)))


def test_report_of_real_gpus_has_what_was_measured() -> None:
    good = report("good")
    assert good.digest == gpu_reports.DIGEST
    assert (good.driver, good.gpus[0].name, good.gpus[0].nvlinks) == ("580.159.04", "NVIDIA H100 80GB HBM3", 18)
    assert (good.measured.bus_bandwidth, good.measured.copy_bandwidth) == (295.9, 384.8)
    assert any(name.startswith("ncclDevKernel_AllReduce") for name in good.measured.kernels)
    assert good.nccl.transports == ("P2P/direct pointer",)
    assert report("planted").nccl.transports == ("SHM/direct",)
    assert gpu_report.of_predicate(json.loads(json.dumps(good.predicate())), "ref") == good
    assert good.summary() == (
        "PASSED on eks-p5, 2 x NVIDIA H100 80GB HBM3, driver 580.159.04, 295.9 GB/s bus bandwidth, "
        "2026-11-25T02:05:55+00:00"
    )


def first_step(**step: Any) -> dict[str, Any]:
    return {"measured": {"firstStep": step}}


NOT_MEASURED = "the first compiled step was not measured"


def test_good_report_has_no_violation() -> None:
    assert violations("good", profile="eks-p5", gpus=2, busBandwidth=250) == []
    assert violations("good", first_step(seconds=20, caches="warm layer"), firstStep=20) == []


def test_first_step_of_each_node_is_judged_and_slowest_shown() -> None:
    steps: list[dict[str, Any]] = [{"seconds": 2.5, "caches": "warm layer"}, {"seconds": 22}, {"missing": "no torch"}]
    log = "\n".join(gpu_reports.text("good", node=f"n{at}", **first_step(**step)) for at, step in enumerate(steps))
    three = gpu_report.parse(log, "log")
    assert [*gpu_report.violations(three, GpuChecksConfig.model_validate({"firstStep": 20}))] == [
        "node n1: the first compiled step took 22 s, and at most 20 are required",
        f"node n2: {NOT_MEASURED} (no torch), and at most 20 s are required",
    ]
    assert ", first compiled step not measured: no torch, " in three.summary()
    two = gpu_report.parse(log.rpartition("\n")[0], "log")
    assert ", first compiled step 22 s, caches: empty, " in two.summary()


@every("name", ["planted", "planted-shm"])
def test_report_without_peer_to_peer_is_a_violation(name: str) -> None:
    (line,) = violations(name, profile="eks-p5", gpus=2)
    assert line.startswith("the GPU checks failed: NCCL is slow: ")


@every(
    "name, changes, required, expected",
    [
        (
            "planted",
            {"result": "PASSED", "failure": ""},
            {},
            "the report says PASSED, but all-reduce of 1024 MiB moves 26.7 GB/s, 92% less than is expected of GPUs",
        ),
        (
            "good",
            {
                "measured": {
                    "busBandwidth": 330,
                    "copyBandwidth": 390,
                    "gpus": 2,
                    "copyWait": 1e308,
                    "rates": {"broadcast": {1024: 99}},
                }
            },
            {},
            "the report says PASSED, but broadcast of 1024 MiB moves 99 GB/s, ",
        ),
        ("good", {}, {"gpus": 8}, "they ran on 2 GPUs, and 8 are required"),
        ("good", {}, {"busBandwidth": 400}, "295.9 GB/s bus bandwidth, and 400 are required"),
        ("good", {"measured": {}}, {"busBandwidth": 1}, "they measured no bus bandwidth, and 1 GB/s are required"),
        ("good", {}, {"profile": "aks-ndv5"}, "they ran on eks-p5, and aks-ndv5 is required"),
        ("good", {"profile": ""}, {"profile": "eks-p5"}, "they ran on a node of no stated profile, and eks-p5 is"),
        (
            "good",
            {"profile": "eks-p5e"},
            {"profile": "eks-p5e"},
            "a node of eks-p5e has H200, and they ran on NVIDIA H1",
        ),
        ("good", {}, {"network": "efa"}, "NCCL used Socket, and efa alone is required"),
        ("good", {"nccl": {}}, {"network": "efa"}, "NCCL used no known network, and efa alone is required"),
        ("good", {"measured": {"networks": ["efa", "Socket"]}}, {"network": "efa"}, "NCCL used Socket, efa, and efa"),
        ("good", {}, {"firstStep": 20}, f"{NOT_MEASURED} (the report does not say why), and at most 20 s are required"),
        (
            "good",
            first_step(missing="no C compiler"),
            {"firstStep": 20},
            f"{NOT_MEASURED} (no C compiler), and at most 20",
        ),
        ("good", first_step(missing="no\nC", seconds=1), {"firstStep": 20}, f"{NOT_MEASURED} (no\\nC), and at most 20"),
        (
            "good",
            first_step(seconds=20.4),
            {"firstStep": 20},
            "the first compiled step took 20.4 s, and at most 20 are required",
        ),
        ("good", {"gpus": [], "measured": {}}, {}, "they ran on 0 GPUs, and 1 are required"),
    ],
)
def test_report_lacks_what_is_required(
    name: str, changes: dict[str, Any], required: dict[str, Any], expected: str
) -> None:
    (line,) = violations(name, changes, **required)
    assert line.startswith(expected)


def test_report_of_efa_checks_names_its_network() -> None:
    assert report("efa").networks == {"Socket"}
    assert report("efa").nccl.transports == ("P2P/CUMEM",)
    assert "NCCL used Socket, and efa alone is required" in violations("efa", network="efa")


def test_more_gpus_than_the_node_has_are_a_violation() -> None:
    gpus = json.loads(gpu_reports.text("good"))["gpus"] * 5
    (line,) = violations("good", {"gpus": gpus}, profile="eks-p5")
    assert line == "a node of eks-p5 has 8 GPUs, and they ran on 10"


NODES = {"measured": {"busBandwidth": 300, "gpus": 4, "nodes": 2}, "node": "a"}


def of_nodes(*changes: dict[str, Any]) -> list[str]:
    """Return what the log of a job lacks whose nodes wrote these reports, each at its time."""
    texts = [gpu_reports.text("good", **{**NODES, **one}) for one in changes]
    log = "\n".join(["pulling", *texts[:1], '{"other": 1}', *texts[1:], "the end"])
    return list(gpu_report.violations(gpu_report.parse(log, "log"), GpuChecksConfig(profile="eks-p5", gpus=4)))


OTHER: dict[str, Any] = {"node": "b", "measured": {"nodes": 2}}


def test_reports_of_all_nodes_have_no_violation() -> None:
    assert of_nodes({}, OTHER) == of_nodes(OTHER, {}) == []


@every("last", [0, 1])
def test_failed_report_of_one_node_fails_the_run(last: int) -> None:
    log = "\n".join(gpu_reports.text(name, node=name) for name in [("good", "planted"), ("planted", "good")][last])
    report = gpu_report.parse(log, "log")
    assert not report.passed
    assert report.summary().startswith("FAILED on eks-p5, 4 x NVIDIA H100")
    (line,) = gpu_report.violations(report, GpuChecksConfig())
    assert line.startswith("node planted: the GPU checks failed: NCCL is slow: ")
    attested = gpu_report.of_predicate(json.loads(json.dumps(report.predicate())), "ref")
    assert attested == report
    passed = gpu_report.parse(gpu_reports.text("good", finished=report.ended.isoformat()), "log")
    assert gpu_report.newest([passed, attested]) == attested


def test_run_ends_with_its_last_node() -> None:
    times = ("2026-11-25T02:05:55Z", "2026-11-25T02:07:00Z", "2026-11-25T02:06:00Z")
    log = "\n".join(gpu_reports.text("good", node=f"n{number}", finished=time) for number, time in enumerate(times))
    assert gpu_report.parse(log, "log").ended.isoformat() == "2026-11-25T02:07:00+00:00"


@every(
    "reports, expected",
    [
        ([{}], "they ran on 2 nodes, and the reports are of 1: give those of all nodes"),
        ([OTHER], "they ran on 2 nodes, and the reports are of 1: give those of all nodes"),
        ([{}, {}], "they ran on 2 nodes, and the reports are of 1: give those of all nodes"),
        ([{}, {**OTHER, "gpus": []}], "an all-reduce ran over 4 GPUs, and the reports are of 2: give those of all"),
        ([{}, {**OTHER, "profile": "eks-p4d"}], "node b: they ran on eks-p4d, and eks-p5 is required"),
        ([{}, {**OTHER, "result": "FAILED", "failure": "x"}], "node b: the GPU checks failed: x"),
        ([{}, OTHER, {"result": "FAILED", "failure": "x"}], "node a: the GPU checks failed: x"),
    ],
)
def test_run_without_a_good_report_of_each_node_fails(reports: list[dict[str, Any]], expected: str) -> None:
    assert of_nodes(*reports)[0].startswith(expected)


def test_newest_report_counts_and_failed_before_passed() -> None:
    good, planted = report("good"), report("planted")
    assert gpu_report.newest([planted, good]) == planted
    passed = report("planted", result="PASSED")
    assert gpu_report.newest([passed, planted]) == gpu_report.newest([planted, passed]) == planted


@every(
    "text, expected",
    [
        ("", "no report of GPU checks is in it"),
        ('{"gpuChecks": 1', "the report is malformed: "),
        (gpu_reports.text("good", result="FINE"), "the report is malformed: result: "),
        (gpu_reports.text("good", gpuChecks=2), "the report is malformed: gpuChecks: "),
        (gpu_reports.text("good", finished="2026-11-25T02:05:55"), "the report is malformed: finished: "),
        (gpu_reports.text("good", measured={"busBandwidth": float("nan")}), "the report is malformed: "),
        (gpu_reports.text("good", measured={"busBandwidth": -1}), "the report is malformed: measured.busBandwidth: "),
        (gpu_reports.text("good", measured={"gpus": 10**400}), "the report is malformed: measured.gpus: "),
        (
            gpu_reports.text("good", measured={"rates": {"broadcast": {10**400: 1}}}),
            "the report is malformed: measured.r",
        ),
        (
            gpu_reports.text("good", measured={"rates": {"gather": {1: 1}}}),
            "the report is malformed: measured.rates.ga",
        ),
        *(
            (gpu_reports.text("good", measured={"firstStep": step}), "the report is malformed: measured.firstStep")
            for step in (
                {"seconds": -1},
                {"seconds": float("inf")},
                {"seconds": "soon"},
                {"seconds": 1, "caches": "hot"},
                {"missing": "x" * 301},
                20,
            )
        ),
        (gpu_reports.text("good", checks=["x" * 301]), "the report is malformed: checks.0: "),
        (gpu_reports.text("good", failure="x" * (1 << 20)), "the report is longer than 1048576 bytes"),
    ],
)
def test_malformed_report_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(SlipwayError) as refusal:
        gpu_report.parse(text, "r.json")
    assert str(refusal.value).startswith(f"r.json: {expected}")
    assert "\n" not in str(refusal.value)


def test_attested_text_that_is_no_report_is_one_line() -> None:
    with pytest.raises(SlipwayError, match=r"^ref: gpu: what is attested is no report of GPU checks: "):
        gpu_report.of_predicate({"result": "PASSED"}, "ref")
