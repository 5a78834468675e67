"""Batches of due messages, made from the stored records in the order of delivery. Runs in a thread pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.delay.headers import (
    DELIVER_AT,
    ORIGIN_OFFSET,
    ORIGIN_TIMESTAMP,
    read_delay_headers,
    without_delay,
)
from penstock.delay.packing import DueMessage
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.content import Headers
from penstock.records.iteration import Record

MAX_BATCH_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A delayed record as it is in the log."""

    due: DueMessage
    record: Record
    codec: Codec


@dataclass(frozen=True, slots=True)
class DelayBatch:
    """A batch to append, with the messages in it."""

    messages: tuple[DueMessage, ...]
    batch: bytearray


def deliveries(stored: Sequence[StoredMessage]) -> list[DelayBatch]:
    """Make batches of due messages that consumers receive. The timestamp of a record is its due time, or the time at
    which it was stored if that is later; headers contain the offset and the time at which it was first stored.
    """
    return _batches(stored, _visible)


def copies(stored: Sequence[StoredMessage], now_ms: int) -> list[DelayBatch]:
    """Make batches that copy pending messages, which are still delayed, before their segment is deleted."""
    return _batches(stored, lambda each: _hidden(each, now_ms))


def _visible(stored: StoredMessage) -> NewRecord:
    record = stored.record
    offset, timestamp = _origin(record)
    headers = (*without_delay(record.headers), *_origin_headers(offset, timestamp))
    return NewRecord(record.key, record.value, max(stored.due.due_ms, timestamp), headers)


def _hidden(stored: StoredMessage, now_ms: int) -> NewRecord:
    record = stored.record
    delay = (DELIVER_AT, str(max(0, stored.due.due_ms)).encode())
    headers = (*without_delay(record.headers), delay, *_origin_headers(*_origin(record)))
    return NewRecord(record.key, record.value, now_ms, headers)


def _origin(record: Record) -> tuple[int, int]:
    """Offset and time at which the message of a delayed record was first stored."""
    found = read_delay_headers(record.headers)
    offset = record.offset if found.origin is None else found.origin
    return offset, record.timestamp if found.origin_timestamp is None else found.origin_timestamp


def _origin_headers(offset: int, timestamp: int) -> Headers:
    return (ORIGIN_OFFSET, str(offset).encode()), (ORIGIN_TIMESTAMP, str(timestamp).encode())


def _batches(stored: Iterable[StoredMessage], make: Callable[[StoredMessage], NewRecord]) -> list[DelayBatch]:
    made = []
    for codec, group in groupby(stored, key=lambda each: each.codec):
        for some in _sized(list(group)):
            batch = build_batch([make(each) for each in some], codec=codec)
            made.append(DelayBatch(tuple(each.due for each in some), batch))
    return made


def _sized(stored: list[StoredMessage]) -> Iterable[list[StoredMessage]]:
    """Split messages into parts, so that the batches have a limited size."""
    part: list[StoredMessage] = []
    size = 0
    for each in stored:
        length = len(each.record.value or b"") + len(each.record.key or b"")
        if part and size + length > MAX_BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    yield part
