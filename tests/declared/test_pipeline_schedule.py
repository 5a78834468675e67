"""Schedules: intervals, cron expressions with time zones, and continuous pipelines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.declared.schedule import PipelineSchedule, ScheduleProblem, check_cron, parse_duration_ms


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_interval_counts_from_the_last_start_and_is_due_at_once_at_first() -> None:
    schedule = PipelineSchedule(every_ms=60_000)
    assert schedule.next_ms(None, 5_000) == 5_000
    assert schedule.next_ms(5_000, 7_000) == 65_000


def test_missed_runs_of_an_interval_are_made_up_by_one_run() -> None:
    assert PipelineSchedule(every_ms=60_000).next_ms(0, 600_000) <= 600_000


def test_cron_in_a_time_zone_follows_daylight_saving() -> None:
    schedule = PipelineSchedule(cron="0 9 * * *", timezone="Europe/Paris")
    assert schedule.next_ms(None, ms("2026-03-28T12:00:00")) == ms("2026-03-29T07:00:00")
    assert schedule.next_ms(None, ms("2026-03-27T12:00:00")) == ms("2026-03-28T08:00:00")


def test_schedule_without_interval_and_cron_is_continuous() -> None:
    assert PipelineSchedule().is_continuous
    assert not PipelineSchedule(every_ms=1).is_continuous


@pytest.mark.parametrize("text", ["0s", "5", "5x", "", 5, None, "-1s"])
def test_other_durations_are_refused(text: object) -> None:
    with pytest.raises(ScheduleProblem):
        parse_duration_ms(text)


def test_cron_that_never_comes_is_refused() -> None:
    with pytest.raises(ScheduleProblem):
        check_cron("0 0 31 2 *", "UTC")
