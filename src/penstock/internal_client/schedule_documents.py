"""Schedules as JSON documents, the same for HTTP and the command line. Pure."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.internal_client.schedules import ScheduleDetails, ScheduleSummary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def summary_document(schedule: ScheduleSummary) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "topic": schedule.topic,
        "catch_up": schedule.catch_up,
        "paused": schedule.paused,
        "next": _time(schedule.next_ms),
        "next_ms": schedule.next_ms,
        "last": _time(schedule.last_ms),
        "last_ms": schedule.last_ms,
        "fired": schedule.fired,
        "missed": schedule.missed,
    }


def details_document(details: ScheduleDetails) -> dict[str, Any]:
    shown = {
        **summary_document(details.summary),
        "created": _time(details.created_ms),
        "created_ms": details.created_ms,
        "next_times": [_time(each) for each in details.next_times_ms],
        "next_times_ms": list(details.next_times_ms),
        "in_flight_ms": details.in_flight_ms,
        "waiting_runs": details.waiting_runs,
        "problem": details.problem or None,
    }
    message = details.message
    if message is not None:
        shown |= {
            **_content("key", message.key),
            **_content("value", message.value),
            "headers": [{"name": name, **_content("value", value)} for name, value in message.headers],
        }
    return shown


def _content(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as text or, if they are not UTF-8, as base64 in a field of its own."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _time(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    shown = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")
