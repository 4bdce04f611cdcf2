"""The benchmark's arithmetic: medians, ratios, targets, the table. No times are asserted anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from bench import __main__ as bench_program
from bench import private_engine, synthetic_images
from bench.figures import Measurement, Target, show, table, verdict
from bench.measure import alternate, run
from bench.sections import family_sizes
from bench.sections.engine_sharing import number_of_rounds
from bench.services import LoopbackRegistry, uploaded
from bench.torch_images import known_releases, patch_pair
from cli.diff import stack_diff
from containers.errors import SlipwayError
from tests.fakes.registry import serve, skip_retry_waits
from tests.helpers.every import every

AT_MOST = Target("<=", 1.15)


def test_ratio_is_of_medians() -> None:
    row = Measurement("a", "preview", [1.0, 1.2, 9.0], "bare", [1.0, 8.0, 0.9])
    assert row.ratio == pytest.approx(1.2)


@every(
    "target, ratio, reached",
    [
        (AT_MOST, 1.15, True),
        (AT_MOST, 1.1501, False),
        (Target("<", 1.0), 0.999, True),
        (Target("<", 1.0), 1.0, False),
    ],
)
def test_target_reached_compares_unrounded_ratio(target: Target, ratio: float, reached: bool) -> None:
    assert target.reached(ratio) is reached


@every(
    "value, unit, text",
    [
        (1.234, "s", "1.23 s"),
        (1.234, "x", "1.23 x"),
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (1_000, "B", "1.00 kB"),
        (2_949_000_000, "B", "2.95 GB"),
    ],
)
def test_show_value_has_its_unit(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


def rows() -> list[Measurement]:
    return [
        Measurement("a", "preview", [1.1], "bare", [1.0], target=AT_MOST),
        Measurement("a", "up", [2.0, 2.0], "bare", [1.0, 1.0], target=AT_MOST),
        Measurement("c", "bytes pushed", [4e8], "one RUN", [1e9], unit="B"),
    ]


def test_table_has_one_line_per_row() -> None:
    title, first, second, third = table(rows()).splitlines()
    assert title.split() == ["measured", "Slipway", "peer", "ratio", "target", "reached", "rounds"]
    assert first.split() == ["a", "preview", "1.10", "s", "1.00", "s", "bare", "1.10", "<=", "1.15", "yes", "1"]
    assert second.split()[-5:] == ["2.00", "<=", "1.15", "NO", "2"]
    assert third.split() == ["c", "bytes", "pushed", "400.00", "MB", "1.00", "GB", "one", "RUN", "0.40", "1"]
    assert title.index("ratio") + len("ratio") == first.index("1.10  <=") + len("1.10")


def test_verdict_counts_targets_and_names_missed() -> None:
    assert verdict(rows()) == "1 of 2 targets reached; missed: a up (2.00, <= 1.15)"
    assert verdict(rows()[:1]) == "1 of 1 targets reached"


def test_row_as_json_has_medians_and_values() -> None:
    row = json.loads(json.dumps(rows()[1].as_json()))
    assert row["slipway"] == {"median": 2.0, "values": [2.0, 2.0]}
    assert (row["ratio"], row["target"], row["reached"]) == (2.0, "<= 1.15", False)
    assert rows()[2].as_json()["reached"] is None


def test_alternate_switches_order_each_round() -> None:
    done: list[str] = []

    def action(name: str, value: float) -> float:
        done.append(name)
        return value

    values = alternate(iter(range(3)), lambda: action("A", 1.0), lambda: action("B", 2.0))
    assert done == ["A", "B", "B", "A", "A", "B"]
    assert values == [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]


def test_run_failing_or_missing_program_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match=r"failed \(3\): \.\.\.one \| two$"):
        run(["sh", "-c", "echo one; echo two; exit 3"], cwd=tmp_path, env=os.environ)
    with pytest.raises(SlipwayError, match=r"^`no-such-program`: No such file or directory$"):
        run(["no-such-program"], cwd=tmp_path, env=os.environ)
    with pytest.raises(SlipwayError, match=r"did not end within 0 s"):
        run(["sleep", "5"], cwd=tmp_path, env=os.environ, seconds=0.1)


def test_patch_pair_needs_the_same_packages() -> None:
    releases = {
        "2.9.0": {"cuda": "12.8"},
        "2.10.0": {"cuda": "13.0", "triton": "1"},
        "2.10.1": {"cuda": "13.0", "triton": "1"},
        "2.11.0": {"cuda": "13.0", "triton": "1"},
        "2.11.1": {"cuda": "13.0", "triton": "2"},
    }
    assert patch_pair(releases) == ("2.10.0", "2.10.1")
    with pytest.raises(SlipwayError, match="no two patch releases"):
        patch_pair({"2.9.0": {}})
    older, newer = patch_pair(known_releases())
    assert older.rpartition(".")[0] == newer.rpartition(".")[0]


class _Engine:
    """Unpacks each image to a thousand bytes."""

    def check_space(self, needed: int) -> None:
        assert needed > 0

    def pulled(self, reference: str) -> AbstractContextManager[None]:
        assert "@sha256:" in reference
        return nullcontext()

    def unpacked(self, _reference: str) -> int:
        return 1000


def test_family_sizes_of_published_stacks_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    setting: Any = SimpleNamespace(engine=_Engine())
    with serve() as registry:
        tests = registry.image("nccl-tests:1", [b"a"])
        torch = {"base": registry.image("torch:1", [b"a", b"b"]), "nccl": registry.image("torch:2", [b"a", b"b", b"c"])}
        published = {
            "base-cu121": {"images": {"torch": {"ref": torch["base"]}}},
            "nccl-cu121": {"images": {"nccl-tests": {"ref": tests}, "torch": {"ref": torch["nccl"]}}},
        }
        monkeypatch.setattr(stack_diff, "outputs", lambda stack, _: published[stack])
        rows = list(family_sizes.run(setting))
    assert [row.title for row in rows] == ["torch of base-cu121, compressed", "torch of base-cu121, unpacked"]
    assert list(rows[0].ours) < list(rows[0].theirs)
    assert (rows[1].ours, rows[1].theirs) == ([1000.0], [1000.0])


def test_family_sizes_of_unpublished_stack_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stack_diff, "outputs", lambda *_: {})
    assert list(family_sizes.run(Any)) == []  # type: ignore[arg-type]
    assert "base-cu121 and nccl-cu121 not published; run `make up STACK=...`" in capsys.readouterr().out


HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ACCESS_LOG = f"""
time="2026-11-25T18:00:00Z" level=warning msg="No HTTP secret provided"
127.0.0.1 - - [25/Nov/2026:18:00:01 +0000] "POST /v2/a/b/blobs/uploads/ HTTP/1.1" 202 0 "" "docker/20.10"
127.0.0.1 - - [25/Nov/2026:18:00:01 +0000] "PATCH /v2/a/b/blobs/uploads/1c?_state=x HTTP/1.1" 202 0 "" "docker/20.10"
127.0.0.1 - - [25/Nov/2026:18:00:01 +0000] "PUT /v2/a/b/blobs/uploads/1c?_state=x&digest=sha256%3A{HASH} HTTP/1.1" 201 0 "" "docker/20.10"
127.0.0.1 - - [25/Nov/2026:18:00:02 +0000] "PUT /v2/a/b/blobs/uploads/1d?digest=sha256:{HASH}&_state=x HTTP/1.1" 201 0 "" "docker/20.10"
127.0.0.1 - - [25/Nov/2026:18:00:02 +0000] "PUT /v2/a/b/blobs/uploads/1e?_state=x&digest=sha256%3A{HASH} HTTP/1.1" 400 9 "" "docker/20.10"
127.0.0.1 - - [25/Nov/2026:18:00:03 +0000] "PUT /v2/a/b/manifests/sha256:{HASH} HTTP/1.1" 201 0 "" "docker/20.10"
"""


def test_manifest_that_the_registry_keeps_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deleted: list[str] = []
    there = LoopbackRegistry("127.0.0.1:1", tmp_path, tmp_path / "log")
    answers = iter((SimpleNamespace(ok=True), SimpleNamespace(ok=False, status_code=405, text="UNSUPPORTED")))
    monkeypatch.setattr(requests, "delete", lambda url, **_: deleted.append(url) or next(answers))
    there.delete(f"127.0.0.1:1/a/b@sha256:{'a' * 64}")
    with pytest.raises(SlipwayError, match=r"^127\.0\.0\.1:1/a/b@\S+: the registry responds 405: UNSUPPORTED$"):
        there.delete(f"127.0.0.1:1/a/b@sha256:{'b' * 64}")
    assert deleted == [f"http://127.0.0.1:1/v2/a/b/manifests/sha256:{letter * 64}" for letter in "ab"]


def test_interrupted_benchmark_says_that_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_chosen: object, rows: list[Measurement], **_: object) -> None:
        rows.append(Measurement("a", "preview", [1.0], "bare", [1.0]))
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_program, "_run", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert bench_program.main([]) == 130
    printed = capsys.readouterr()
    assert printed.err == "\nbench: interrupted; its images are removed\n"
    assert "preview" in printed.out


def test_uploads_are_the_completed_blobs_of_the_log() -> None:
    assert uploaded(ACCESS_LOG) == [HASH, HASH]


@every("each, number", [(0.5, 120), (7.0, 9), (200.0, 1)])
def test_rounds_of_work_fill_the_seconds(each: float, number: int) -> None:
    assert number_of_rounds(60, each) == number


def test_working_images_name_rounds_by_architecture(tmp_path: Path) -> None:
    synthetic_images.write_working(tmp_path, 2, {"amd64": 12, "arm64": 3})
    first, second = tmp_path / "image0", tmp_path / "image1"
    assert (first / "rounds.txt").read_text() == "amd64 12\narm64 3\n"
    assert synthetic_images.WORK in (first / "Dockerfile").read_text()
    seeds = (first / "seed.txt").read_text(), (second / "seed.txt").read_text()
    synthetic_images.reseed(tmp_path, 2)
    assert len({*seeds, (first / "seed.txt").read_text(), (second / "seed.txt").read_text()}) == 4


@every(
    "files, group, members, parent",
    [
        ({"cpuset/cpuset.mems": "0\n", "memory/tasks": ""}, "cpuset/x", "cpuset/x", "/x"),
        ({"cgroup.subtree_control": "memory\n"}, "x", "x/engine", "/x/builds"),
    ],
)
def test_cpuset_has_one_core_and_is_removed(
    tmp_path: Path, files: dict[str, str], group: str, members: str, parent: str
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    with private_engine.limited_to(1, "x", tmp_path) as cpuset:
        assert (tmp_path / group / "cpuset.cpus").read_text() == "1"
        subprocess.run([*cpuset.under, "true"], check=True)
        assert (tmp_path / members / "cgroup.procs").read_text().strip().isdigit()
        assert cpuset.options[-2:] == ("--cgroup-parent", parent)
        # The kernel's own files do not keep it from removing a cgroup.
        written = {file.name: file.unlink() for file in (tmp_path / group).rglob("*.*")}
    assert {*written} >= {"cpuset.cpus", "cgroup.procs"}
    assert not (tmp_path / group).exists()
