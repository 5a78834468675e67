"""Events of the delayed messages of a partition, read from its log in the order of offsets.

The log has everything: which records are delayed, which of them were delivered, cancelled or stored again, and which
transactions were committed. Whoever reads the same log gets the same events.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.delay.headers import PREFIX, InvalidDelay, read_delay_headers
from penstock.errors import InvalidBatch
from penstock.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader
from penstock.records.compression import decompress
from penstock.records.control import read_marker
from penstock.records.iteration import record_timestamp
from penstock.records.walking import layouts, read_headers

NO_PRODUCER = -1
_PREFIX = PREFIX.encode()


class Delayed(NamedTuple):
    """A hidden record that is to be delivered."""

    offset: int
    due_ms: int
    message: int
    """Offset at which the message was first stored, its id. Another offset than `offset` in a record that was stored
    again before its segment was deleted.
    """
    producer_id: int = NO_PRODUCER
    """Producer of a record in a transaction, which counts when the transaction is committed."""


class Settled(NamedTuple):
    """A message was delivered or cancelled."""

    message: int


class Ended(NamedTuple):
    """A transaction has ended."""

    producer_id: int
    is_commit: bool


Event = Delayed | Settled | Ended


def events_of(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> list[Event]:
    """The events of a stored batch. A batch whose records cannot be read has none: no reader can be shown them."""
    if header.is_control:
        marker = read_marker(batch, header)
        return [] if marker is None else [Ended(marker.producer_id, marker.is_commit)]
    try:
        body = bytes(decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes))
        return _read(body, header) if _PREFIX in body else []
    except InvalidBatch:
        return []


def _read(body: bytes, header: BatchHeader) -> list[Event]:
    events: list[Event] = []
    has_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for start, end, time_delta, offset_delta, _, _, _, _, headers, count in layouts(
        body, header.record_count
    ):
        if not count or body.find(_PREFIX, start, end) < 0:
            continue
        try:
            found = read_delay_headers(read_headers(body, headers, count))
        except InvalidDelay:
            continue  # refused by every leader, so it is not in a log
        if found.delay is not None:
            offset = header.base_offset + offset_delta
            stored_ms = header.max_timestamp if has_append_time else record_timestamp(header, time_delta)
            message = offset if found.origin is None else found.origin
            events.append(Delayed(offset, found.delay.due_ms(stored_ms), message, producer_id))
        elif found.cancels is not None:
            events.append(Settled(found.cancels))
        elif found.origin is not None:
            events.append(Settled(found.origin))
    return events
