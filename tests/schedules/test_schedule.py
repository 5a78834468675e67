"""The state machine of a schedule: due times, catch-up, requested firings and intents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schedules import schedule as states
from penstock.schedules.catch_up import MAX_CATCH_UP, CatchUp
from penstock.schedules.schedule import FiringTarget, Schedule, ScheduleDefinition

START = 1_700_000_000_000
TARGET = FiringTarget("id", 0, 7)


def made(cron: str = "@every 10s", catch_up: CatchUp = CatchUp.ONE) -> Schedule:
    return states.new_schedule(ScheduleDefinition(cron, "UTC", "t", catch_up=catch_up), START)


def fire_all(schedule: Schedule, now_ms: int) -> tuple[Schedule, list[int]]:
    """Carry out everything that is due; returns the times in order."""
    fired: list[int] = []
    while True:
        schedule = states.skip(schedule, now_ms)
        schedule = states.begin(schedule, schedule.target or TARGET, 0, now_ms)
        if schedule.intent is None:
            return schedule, fired
        fired.append(schedule.intent.scheduled_for_ms - START)
        schedule = states.finish(schedule, schedule.intent)


@pytest.mark.parametrize(
    ("catch_up", "expected", "missed"),
    [(CatchUp.NONE, [], 3), (CatchUp.ONE, [30_000], 2), (CatchUp.ALL, [10_000, 20_000, 30_000], 0)],
)
def test_catch_up_decides_about_passed_times(catch_up: CatchUp, expected: list[int], missed: int) -> None:
    schedule, fired = fire_all(made(catch_up=catch_up), START + 35_000)
    assert (fired, schedule.missed, schedule.next_ms) == (expected, missed, START + 40_000)


def test_none_fires_with_a_small_delay() -> None:
    schedule, fired = fire_all(made(catch_up=CatchUp.NONE), START + 12_000)
    assert (fired, schedule.missed) == ([10_000], 0)


def test_all_catches_up_on_a_bounded_number_of_times() -> None:
    schedule, fired = fire_all(made("@every 1s", CatchUp.ALL), START + 5_000_000)
    assert len(fired) == MAX_CATCH_UP
    assert fired[-1] == 5_000_000
    assert schedule.missed == MAX_CATCH_UP  # counted up to the bound


def test_sequences_follow_each_other_and_stay_with_an_intent() -> None:
    schedule = states.begin(made(), TARGET, 5, START + 10_000)
    intent = schedule.intent
    assert intent is not None
    assert (intent.sequence, intent.from_offset, intent.scheduled_for_ms) == (0, 5, START + 10_000)
    assert states.begin(schedule, TARGET, 9, START + 20_000) is schedule
    schedule = states.finish(schedule, intent)
    assert states.finish(schedule, intent) is schedule
    assert schedule.target is not None
    schedule = states.begin(schedule, schedule.target, 6, START + 20_000)
    assert schedule.intent is not None
    assert schedule.intent.sequence == 1


def test_pause_completes_the_firing_in_flight_and_resume_skips_the_pause() -> None:
    schedule = states.pause(states.begin(made(), TARGET, 0, START + 10_000))
    assert states.wakes_at(schedule) == 0
    assert schedule.intent is not None
    schedule = states.finish(schedule, schedule.intent)
    assert states.wakes_at(schedule) is None
    schedule = states.resume(schedule, START + 95_000)
    assert (schedule.next_ms, schedule.missed) == (START + 100_000, 0)


def test_requested_firing_is_added_once_for_a_token() -> None:
    schedule = states.request_run(made(), "a", START + 1)
    assert states.request_run(schedule, "a", START + 2) is schedule
    schedule = states.request_run(schedule, "b", START + 1)
    schedule, fired = fire_all(schedule, START + 1)
    assert fired == [1, 2]
    assert states.request_run(schedule, "a", START + 3) is schedule
    assert schedule.last_scheduled_for_ms is None


def test_requested_firing_is_for_another_time_than_a_regular_one() -> None:
    schedule = states.request_run(made(), "a", START + 10_000)
    schedule = states.request_run(schedule, "b", START + 10_000)
    _, fired = fire_all(schedule, START + 10_000)
    assert fired == [10_001, 10_002, 10_000]


def test_retargeted_firing_keeps_its_time() -> None:
    schedule = states.begin(made(), TARGET, 0, START + 10_000)
    assert schedule.intent is not None
    schedule = states.retarget(schedule, schedule.intent, FiringTarget("other", 1, 8), 3, START + 11_000)
    assert schedule.intent is not None
    assert (schedule.intent.scheduled_for_ms, schedule.intent.producer_id) == (START + 10_000, 8)
    assert (schedule.intent.topic_id, schedule.intent.sequence) == ("other", 0)


@given(
    st.sampled_from(list(CatchUp)),
    st.sampled_from(["@every 7s", "*/5 * * * * *", "* * * * *"]),
    st.lists(st.integers(-100_000, 200_000), max_size=30),
)
def test_no_time_fires_twice_whatever_the_clock_does(catch_up: CatchUp, cron: str, jumps: list[int]) -> None:
    schedule, now_ms, fired = made(cron, catch_up), START, []
    for jump in jumps:
        now_ms += jump
        schedule, times = fire_all(schedule, now_ms)
        fired += times
        assert all(START + each <= now_ms for each in times)
    assert fired == sorted(set(fired))
    if catch_up is CatchUp.ALL and fired:
        times = []
        following = schedule.recurrence.after(START)
        while following is not None and following <= START + fired[-1]:
            times.append(following - START)
            following = schedule.recurrence.after(following)
        assert fired == times
