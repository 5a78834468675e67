"""Positions in a partition: its start or end, an offset, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from confluent_kafka.admin import OffsetSpec

Where = Literal["start", "end"] | int | datetime
"""A position: an int is an offset, a datetime stands for the first message at or after it."""

START: Final = "start"
END: Final = "end"


def lookup_of(where: Where) -> OffsetSpec | None:
    """Return the ListOffsets query for a position; None for an offset, which needs no query."""
    if isinstance(where, datetime):
        return OffsetSpec.for_timestamp(round(where.timestamp() * 1000))
    if where == START:
        return OffsetSpec.earliest()
    return OffsetSpec.latest() if where == END else None
