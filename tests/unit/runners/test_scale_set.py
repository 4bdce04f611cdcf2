"""GitHub's protocol of runner scale sets, spoken to a stand-in that refuses, ends sessions and exchanges tokens."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest

from scaler.github import GitHub, Refused
from scaler.listening.scale_set import Conflict, ScaleSet
from tests.fakes.github.runner_api import TOKEN
from tests.fakes.github.scale_set_service import ScaleSetService, served


@pytest.fixture
def service() -> Iterator[ScaleSetService]:
    with served() as world:
        yield world


def scale_set(service: ScaleSetService, *labels: str) -> ScaleSet:
    def github() -> GitHub:
        return GitHub(service.address, "acme", lambda: {"token": TOKEN}, time.time() + 60)

    return ScaleSet(github, service.address, "https://github.com/acme", "slipway-t", labels or ("gpu",), 7)


def opened(service: ScaleSetService) -> ScaleSet:
    own = scale_set(service)
    own.ensure()
    own.open("")
    return own


def test_set_is_created_once_and_gets_new_labels(service: ScaleSetService) -> None:
    for labels in (("gpu",), ("GPU",), ("gpu", "h100")):
        own = scale_set(service, *labels)
        own.ensure()
        own.label()
        (known,) = service.sets.values()
        assert [each["name"].lower() for each in known["labels"]] == [each.lower() for each in labels]
    assert (known["name"], known["runnerGroupId"]) == ("slipway-t", 7)
    assert sum(each.startswith("PATCH") for each in service.requests) == 1


def test_set_that_keeps_other_labels_is_refused(service: ScaleSetService) -> None:
    scale_set(service).ensure()
    service.deaf = True
    own = scale_set(service, "h100")
    own.ensure()
    with pytest.raises(Refused, match="the scale set slipway-t keeps other labels than h100: delete it"):
        own.label()


def test_session_has_messages_until_they_are_deleted(service: ScaleSetService) -> None:
    own = opened(service)
    assert own.message(0, 4, 5) is None
    service.offer(11)
    message = own.message(0, 4, 5)
    assert message == own.message(0, 3, 5)
    assert message
    assert json.loads(message["body"])[0]["runnerRequestId"] == 11
    own.acquire([11])
    assert service.acquired == [11]
    own.acknowledge(message["messageId"])
    following = own.message(message["messageId"], 4, 5)
    assert following
    assert following["statistics"]["totalAssignedJobs"] == 1
    assert set(service.capacities) == {3, 4}


def test_runner_of_set_is_registered_and_removed_once_idle(service: ScaleSetService) -> None:
    own = opened(service)
    config, number = own.register("slipway-t-i-1")
    assert json.loads(base64.b64decode(config)) == {"set": True, "name": "slipway-t-i-1", "workFolder": "_work"}
    assert number is not None
    service.runners[number]["busy"] = True
    assert not own.forget(number)
    service.runners[number]["busy"] = False
    assert own.forget(number)
    assert own.forget(number)
    assert service.runners == {}


def test_tokens_that_end_are_exchanged_within_a_call(service: ScaleSetService) -> None:
    own = opened(service)
    service.admins.clear()
    own.register("slipway-t-i-1")
    service.sessions = dict.fromkeys(service.sessions, "another token")
    service.admins.clear()
    service.offer(1)
    message = own.message(0, 4, 5)
    assert message
    service.sessions = dict.fromkeys(service.sessions, "another token")
    own.acquire([1])
    service.sessions = dict.fromkeys(service.sessions, "another token")
    own.acknowledge(message["messageId"])
    assert (service.acquired, service.deleted) == ([1], [message["messageId"]])


def test_session_that_github_ended_is_refused_and_anew(service: ScaleSetService) -> None:
    own = opened(service)
    service.sessions.clear()
    with pytest.raises(Refused) as refused:
        own.message(0, 4, 5)
    assert not refused.value.passes
    own.close("session-of-before")
    with pytest.raises(Refused, match="the session is over") as refused:
        own.message(0, 4, 5)
    assert not refused.value.passes
    own.open("session-of-before")
    assert own.message(0, 4, 5) is None


def test_session_of_another_listener_is_a_conflict(service: ScaleSetService) -> None:
    first = opened(service)
    second = scale_set(service)
    second.ensure()
    with pytest.raises(Conflict, match="already has an active session"):
        second.open("")
    (session,) = service.sessions
    first.close(session)
    assert second.open("").statistics["totalAssignedJobs"] == 0


def test_revoked_app_is_refused_and_no_error_has_a_token(service: ScaleSetService) -> None:
    own = opened(service)
    service.revoked = True
    with pytest.raises(Refused, match="GitHub answers 401") as refused:
        own.register("slipway-t-i-1")
    assert not [token for token in (TOKEN, *service.admins, *service.sessions.values()) if token in str(refused.value)]


@pytest.mark.parametrize("status", [500, 502, 429])
def test_refusals_that_pass_leave_the_session(service: ScaleSetService, status: int) -> None:
    own = opened(service)
    service.refused[f"/queue/{service.opened[0]}"] = [status]
    with pytest.raises(Refused) as refused:
        own.message(0, 4, 5)
    assert refused.value.passes
    assert own.message(0, 4, 5) is None


def test_token_is_not_sent_to_a_service_without_tls(service: ScaleSetService, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def call(_: str, url: str, *__: object, **___: object) -> tuple[object, ...]:
        asked.append(url)
        return {"url": "http://pipelines.example/", "token": "the-services", "value": [], "count": 0}, 200

    own = scale_set(service)
    monkeypatch.setattr(own, "_api", "https://api.example")
    monkeypatch.setattr("scaler.listening.scale_set.call", call)
    with pytest.raises(Refused, match="the address of the service of runner scale sets is not https"):
        own.ensure()
    assert asked == ["https://api.example/actions/runner-registration"]
