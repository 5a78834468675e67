"""The record of a firing: key, value and headers of the schedule, and two headers that identify the firing. Pure."""

from __future__ import annotations

from typing import Final

from penstock.records.building import NewRecord, build_batch
from penstock.schedules.schedule import Intent, ScheduleDefinition

SCHEDULE: Final = "penstock-schedule"
"""Header with the name of the schedule."""
SCHEDULED_FOR: Final = "penstock-scheduled-for"
"""Header with the scheduled time of the message, in milliseconds since the epoch."""
OWN_HEADERS: Final = frozenset({SCHEDULE, SCHEDULED_FOR})


def firing_batch(name: str, definition: ScheduleDefinition, intent: Intent, now_ms: int) -> bytearray:
    """Batch with the record of a firing. Attempts may differ in the timestamp: the sequence number identifies the
    batch.
    """
    headers = (
        *definition.headers,
        (SCHEDULE, name.encode()),
        (SCHEDULED_FOR, str(intent.scheduled_for_ms).encode()),
    )
    record = NewRecord(definition.key, definition.value, now_ms, headers)
    return build_batch(
        [record], producer_id=intent.producer_id, producer_epoch=0, base_sequence=intent.sequence
    )
