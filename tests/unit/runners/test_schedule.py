"""The minimum of runners on EC2 by time of day and weekday, on a virtual clock, also where the clocks of a zone change."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from components.runners.ec2 import scaler_functions as functions
from components.runners.ec2.scaler_functions import clock_changes
from containers.errors import SlipwayError
from scaler.decide import ON_DEMAND, Machine, Rules, Runner, decide
from scaler.schedule import least
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import load

BERLIN = "Europe/Berlin"
OFFICE = {"minRunners": 2, "start": "08:00", "end": "18:30", "timeZone": BERLIN}


def variable(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return the schedule as the keeper gets it."""
    text = functions.schedule(load(schedule=rows, maxRunners=9))["SCHEDULE"]
    assert len(text) < 2000  # Lambda takes 4 KB for all variables
    known: dict[str, Any] = json.loads(text)
    return known


@every(
    "row, message",
    [
        ({**OFFICE, "minRunners": 5}, "slipway:runners: schedule.0.minRunners 5 is more than maxRunners 4"),
        ({**OFFICE, "start": "8:00"}, "slipway:runners.schedule.0.start: '8:00': expected a time of day in quotes"),
        ({**OFFICE, "start": 480}, "slipway:runners.schedule.0.start: '480': expected a time of day in quotes"),
        ({**OFFICE, "end": "08:00"}, "slipway:runners.schedule.0: start and end are both 08:00: give different ones"),
        ({**OFFICE, "days": ["monday"]}, "slipway:runners.schedule.0.days.0: 'monday': "),
        ({**OFFICE, "days": []}, "slipway:runners.schedule.0: days is empty: give some"),
        (
            {**OFFICE, "timeZone": "Europe/Atlantis"},
            "slipway:runners.schedule.0.timeZone: 'Europe/Atlantis': expected a",
        ),
        ({**OFFICE, "timeZone": "../x"}, "slipway:runners.schedule.0.timeZone: '../x': expected a time zone"),
        ({"start": "08:00"}, "slipway:runners.schedule.0.minRunners"),
    ],
)
def test_schedule_invalid_is_refused_in_one_line(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        load(schedule=[row])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lifetime_counts_where_a_schedule_has_a_minimum() -> None:
    assert load(schedule=[OFFICE], maxLifetime=3).max_lifetime == 3
    with pytest.raises(SlipwayError, match="maxLifetime has no effect"):
        load(schedule=[{**OFFICE, "minRunners": 0}], maxLifetime=3)


def changes_of_minimum(schedule: dict[str, Any], first: datetime, days: float) -> Iterator[tuple[str, int]]:
    """Yield when the minimum changes, as UTC, minute by minute."""
    before = None
    for minute in range(int(days * 24 * 60)):
        now = first + timedelta(minutes=minute)
        value = least(now.timestamp(), 0, schedule)
        if value != before:
            yield f"{now:%a %d %H:%M}", value
        before = value


def test_minimum_keeps_office_hours_when_summer_time_begins() -> None:
    """Of 2027 in Berlin: clocks go ahead on Sunday 28 March, so that 08:00 is 07:00 UTC on Friday and 06:00 on Monday."""
    friday = datetime(2027, 3, 26, tzinfo=UTC)
    assert [*changes_of_minimum(variable(OFFICE), friday, 4)] == [
        ("Fri 26 00:00", 0), ("Fri 26 07:00", 2), ("Fri 26 17:30", 0), ("Mon 29 06:00", 2), ("Mon 29 16:30", 0),
    ]  # fmt: skip


def test_minimum_keeps_office_hours_when_summer_time_ends() -> None:
    friday = datetime(2027, 10, 29, tzinfo=UTC)
    assert [*changes_of_minimum(variable(OFFICE), friday, 4)] == [
        ("Fri 29 00:00", 0), ("Fri 29 06:00", 2), ("Fri 29 16:30", 0), ("Mon 01 07:00", 2), ("Mon 01 17:30", 0),
    ]  # fmt: skip


def test_minimum_over_the_night_of_the_change_is_by_the_clock() -> None:
    """From 22:00 to 06:00 by the clock: seven hours when clocks go ahead, nine when they go back."""
    night = {"minRunners": 1, "days": ["sat"], "start": "22:00", "end": "06:00", "timeZone": BERLIN}
    spring = [*changes_of_minimum(variable(night), datetime(2027, 3, 27, tzinfo=UTC), 2)]
    assert spring == [("Sat 27 00:00", 0), ("Sat 27 21:00", 1), ("Sun 28 04:00", 0)]
    autumn = [*changes_of_minimum(variable(night), datetime(2027, 10, 30, tzinfo=UTC), 2)]
    assert autumn == [("Sat 30 00:00", 0), ("Sat 30 20:00", 1), ("Sun 31 05:00", 0)]


def test_minimum_within_the_hour_that_is_skipped_starts_after_it() -> None:
    early = {"minRunners": 1, "days": ["sun"], "start": "02:30", "end": "04:00", "timeZone": BERLIN}
    spring = [*changes_of_minimum(variable(early), datetime(2027, 3, 28, tzinfo=UTC), 1)]
    assert spring == [("Sun 28 00:00", 0), ("Sun 28 01:00", 1), ("Sun 28 02:00", 0)]


def test_minimum_of_several_entries_is_the_greatest() -> None:
    noon = {"minRunners": 4, "start": "12:00", "end": "13:00", "timeZone": "America/New_York"}
    none = {"minRunners": 0, "days": ["tue"]}
    monday = datetime(2027, 6, 7, tzinfo=UTC)
    schedule = variable(OFFICE, noon, none)
    assert [*changes_of_minimum(schedule, monday, 1)] == [
        ("Mon 07 00:00", 0), ("Mon 07 06:00", 2), ("Mon 07 16:00", 4), ("Mon 07 17:00", 0),
    ]  # fmt: skip
    # An entry replaces the usual minimum, also by a lower one.
    assert least(datetime(2027, 6, 8, 1, tzinfo=UTC).timestamp(), 3, schedule) == 0
    assert least(datetime(2027, 6, 7, 1, tzinfo=UTC).timestamp(), 3, schedule) == 3
    assert least(0, 3, {}) == 3


@every("zone", ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo"])
def test_clock_changes_are_those_of_the_zone(zone: str) -> None:
    """Against the database of time zones, at random times and around each change."""
    changes, draw = clock_changes(zone), random.Random(zone)
    times = [draw.randrange(1_767_225_600, 2_208_988_800) for _ in range(2000)]
    times += [at + near for at, _ in changes[1:] for near in (-1, 0)]
    for at in times:
        offset = datetime.fromtimestamp(at, ZoneInfo(zone)).utcoffset()
        assert offset is not None
        assert next(ahead for since, ahead in reversed(changes) if since <= at) == offset.total_seconds()


def test_machines_follow_the_schedule_through_a_day() -> None:
    """Two come before the first job, and end after the last hour, the one with a job when that is done."""
    schedule = variable(OFFICE)
    usual = Rules((ON_DEMAND,), 0, 9, 300, 600, 1200, 86400)
    day = datetime(2027, 3, 29, tzinfo=UTC).timestamp()
    machines: list[Machine] = []
    counts: dict[int, int] = {}
    for minute in range(24 * 60):
        now = day + minute * 60
        rules = Rules(**{**vars(usual), "least": least(now, 0, schedule)})
        busy = 15 * 60 <= minute < 20 * 60
        runners = [Runner(n, each.id, online=True, busy=busy and n == 0) for n, each in enumerate(machines)]
        done = decide(now, rules, [], machines, runners, {each.id: each.started for each in machines})
        machines = [each for each in machines if each.id not in done.end]
        for number in range(done.desired[ON_DEMAND] - len(machines)):
            machines.append(Machine(f"i-{minute}-{number}", ON_DEMAND, now))
        counts[minute] = len(machines)
    assert [counts[each * 60] for each in (5, 6, 12, 15, 16, 17, 19, 20, 23)] == [0, 2, 2, 3, 3, 1, 1, 0, 0]
