"""Which deliveries of an App's webhook GitHub is asked to repeat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from scaler.github import GitHub, Refused

NEXT = {"Link": '<https://api.example/app/hook/deliveries?per_page=100&cursor=two>; rel="next"'}


def delivery(number: int, minutes: float, **changed: Any) -> dict[str, Any]:
    """Return a failed delivery of some minutes ago."""
    at = datetime.fromtimestamp(time.time() - minutes * 60, UTC).isoformat().replace("+00:00", "Z")
    return {
        "id": number,
        "guid": f"g{number}",
        "event": "workflow_job",
        "delivered_at": at,
        "status": "failed to connect to host",
        "status_code": 0,
        "redelivery": False,
        **changed,
    }


def redelivered(
    monkeypatch: pytest.MonkeyPatch, *pages: list[dict[str, Any]], refused: Mapping[int, Refused] | None = None
) -> tuple[list[int], list[str]]:
    """Return what is repeated of some pages of deliveries, and the paths that GitHub is asked for."""
    asked: list[str] = []

    def request(_: GitHub, method: str, path: str, *__: Any, **___: Any) -> tuple[Any, Mapping[str, str]]:
        asked.append(f"{method} {path}")
        if method == "POST":
            if error := (refused or {}).get(int(path.split("/")[-2])):
                raise error
            return None, {}
        number = sum(each.startswith("GET") for each in asked)
        return pages[number - 1], NEXT if number < len(pages) else {}

    monkeypatch.setattr(GitHub, "_request", request)
    api = GitHub("https://api.example", "acme", lambda: {"token": "t"}, time.time() + 60)
    monkeypatch.setattr(api, "_app", "jwt")
    return api.redeliver(), asked


def test_failed_deliveries_are_repeated_from_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of jobs alone, of all pages that are recent, and none that arrived in the end."""
    first = [
        delivery(6, 5),
        delivery(5, 6, event="push"),
        delivery(4, 7, status="OK", status_code=202),
        delivery(3, 8, guid="g4"),
    ]
    repeated, asked = redelivered(monkeypatch, first, [delivery(2, 9), delivery(1, 10)])
    assert repeated == [1, 2, 6]
    listed = "/app/hook/deliveries?per_page=100"
    attempts = [f"POST /app/hook/deliveries/{number}/attempts" for number in repeated]
    assert asked == [f"GET {listed}", f"GET {listed}&cursor=two", *attempts]


def test_pages_of_deliveries_end_with_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated, asked = redelivered(monkeypatch, [delivery(1, 10)], [], [delivery(2, 11)])
    assert (repeated, len(asked)) == ([1], 3)


def test_old_deliveries_are_not_listed_further(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = redelivered(monkeypatch, [delivery(1, 31)], [delivery(2, 11)])
    assert sum(each.startswith("GET") for each in asked) == 1


def test_delivery_that_cannot_be_repeated_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [delivery(2, 9), delivery(1, 10)]
    assert redelivered(monkeypatch, both, refused={1: Refused(404, "gone")})[0] == [2]
