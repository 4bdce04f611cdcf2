"""The lines of progress that the embedded provider writes while it builds, pulls and pushes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.every import every
from toolchain.provider.docker_api import push_progress
from toolchain.provider.docker_api.protos import StatusResponse
from toolchain.provider.docker_api.push_progress import BuildLog, StreamError, follow


@every(
    "detail, line",
    [
        ({"current": 512, "total": 1024}, "a1: Pushing 512 B / 1.02 kB"),
        ({"current": 1_060_000, "total": 1_000_000}, "a1: Pushing 1 MB / 1 MB"),
        ({"current": 1_060_000}, "a1: Pushing 1.06 MB"),
        ({"current": 0, "total": 10}, "a1: Pushing"),
        ({}, "a1: Pushing"),
    ],
)
def test_push_progress_never_exceeds_total(detail: dict[str, int], line: str) -> None:
    lines: list[str] = []
    follow([{"id": "a1", "status": "Pushing", "progressDetail": detail}], lines.append)
    assert lines == [line]


@given(current=st.integers(1, 10**13), total=st.integers(1, 10**13))
def test_build_progress_never_exceeds_total(current: int, total: int) -> None:
    status = StatusResponse()
    item = status.statuses.add()
    item.id, item.current, item.total = "layer", current, total
    lines: list[str] = []
    encoded = base64.b64encode(status.SerializeToString()).decode()
    BuildLog(lines.append, str).follow([{"id": "moby.buildkit.trace", "aux": encoded}])
    (line,) = lines
    pushed, _, most = line.removeprefix("layer ").partition(" / ")
    if current >= total:
        assert pushed == most


def test_secret_in_a_long_error_is_masked_before_it_is_cut() -> None:
    message = "x" * 15_995 + "canary" + "y" * 100
    with pytest.raises(StreamError) as caught:
        BuildLog(print, lambda text: text.replace("canary", "***")).follow([{"error": message}])
    assert "can" not in str(caught.value)
    assert len(str(caught.value)) == 16_000


def test_build_of_steps_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_progress, "_MOST_STEPS", 5)
    status = StatusResponse()
    for number in range(11):
        status.vertexes.add(digest=str(number), name="x")
    encoded = base64.b64encode(status.SerializeToString()).decode()
    with pytest.raises(StreamError, match="names more than 5 steps"):
        BuildLog(lambda _: None, str).follow([{"id": "moby.buildkit.trace", "aux": encoded}])


def test_build_progress_has_an_items_name_else_its_id() -> None:
    status = StatusResponse()
    status.statuses.add(id="1", name="extracting")
    status.statuses.add(id="2")
    lines: list[str] = []
    encoded = base64.b64encode(status.SerializeToString()).decode()
    BuildLog(lines.append, str).follow([{"id": "moby.buildkit.trace", "aux": encoded}])
    assert lines == ["extracting", "2"]


def test_classic_build_shows_its_lines_and_fails_with_its_step() -> None:
    """The messages of an engine's first builder, whose steps have no ids."""
    shown: list[str] = []
    log = BuildLog(shown.append, lambda text: text.replace("canary", "***"))
    log.follow([{"stream": "Step 1/2 : RUN a\n"}, {"stream": "canary\n"}])
    log.follow([{"aux": {"ID": "sha256:0"}}])
    assert log.image_id == "sha256:0"
    with pytest.raises(StreamError) as caught:
        log.follow([{"stream": "Step 2/2 : RUN b\n"}, {"stream": "b: not found\n"}, {"error": "it returned 127"}])
    assert shown == ["Step 1/2 : RUN a", "***", "Step 2/2 : RUN b", "b: not found"]
    assert "b: not found" in str(caught.value)
    assert "***" not in str(caught.value)
