"""Messages in a leader's response to QueueReceive, in the order in which the leader has chosen them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, InvalidBatch
from penstock.internal_client.receipts import Receipt
from penstock.records.batch import CONTROL_FLAG, crc_matches
from penstock.records.iteration import Record, iterate_between, read_batches
from penstock.wire.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveResponse,
    ReceivedPartition,
    ReceiveKind,
)

MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of one batch after decompression, in bytes."""


class ReceivedMessage(NamedTuple):
    """Message of a queue. `state` is one of `queues.states`; a received message is acquired."""

    record: Record
    partition: int
    attempt: int
    place: Receipt | None
    """Receipt of an acquired message; None for a message that is only shown."""
    lock_ms: int
    state: int

    @property
    def receipt(self) -> str:
        """Receipt as text; empty for a message that is only shown."""
        return "" if self.place is None else str(self.place)


def messages_of(
    request: QueueReceiveRequest, response: QueueReceiveResponse, found: ReceivedPartition
) -> list[ReceivedMessage]:
    """Messages in the acquired or shown ranges of a partition. Offsets without a record are left out.

    With priorities the ranges are ordered by level, and a batch with records of several levels may occur more
    than once.
    """
    places = {each.first_offset: place for place, each in enumerate(found.ranges)}
    ranges = sorted(found.ranges)
    lasts = [each.last_offset for each in ranges]
    chosen: dict[int, tuple[int, ReceivedMessage]] = {}
    for record in _records(found) if ranges else ():
        place = bisect_left(lasts, record.offset)
        if place == len(ranges) or record.offset < ranges[place].first_offset or record.offset in chosen:
            continue
        receipt = Receipt(request.topic_id, found.partition, record.offset, response.token)
        first, _, count, state = ranges[place]
        taken = receipt if request.kind == ReceiveKind.TAKE else None
        message = ReceivedMessage(record, found.partition, count, taken, response.lock_ms, state)
        chosen[record.offset] = places[first], message
    in_order = sorted(chosen.values(), key=lambda each: (each[0], each[1].record.offset))
    return [message for _, message in in_order]


def _records(found: ReceivedPartition) -> Iterator[Record]:
    first = min(each.first_offset for each in found.ranges)
    last = max(each.last_offset for each in found.ranges)
    for part in found.records:
        assert isinstance(part, bytes | memoryview)
        for header, batch in read_batches(memoryview(part)):
            if header.attributes & CONTROL_FLAG:
                continue
            if not crc_matches(batch, header):
                raise InvalidBatch(ErrorCode.corrupt_message, "the CRC of the batch does not match")
            yield from iterate_between(batch, header, first, last, MAX_BATCH_BYTES)
