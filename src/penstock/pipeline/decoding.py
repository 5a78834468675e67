"""Decoder from record batches to Arrow, with the visibility rules of a consumer.

The CRC of every batch is verified before the batch is used. Control records are skipped, and also records of the
aborted transactions that the broker lists. The compiled builder parses the records if it is available, else the Python
builder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidBatch, PenstockError
from penstock.pipeline.columns import CREATE_TIMESTAMP, schema_of
from penstock.pipeline.content_columns import computed, is_computed, with_sources
from penstock.pipeline.pure_builder import PureBuilder
from penstock.pipeline.ranges import OffsetRange
from penstock.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_matches,
)
from penstock.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from penstock.records.control import read_marker
from penstock.records.iteration import read_batches
from penstock.wire.fetch import AbortedTransaction

ROWS_AT_ONCE = 8_192
BYTES_AT_ONCE = 1 << 20
"""Target size of a batch of rows in bytes. Larger batches are slower, because they use fresh memory."""


class DamagedRecords(PenstockError):
    """Fetched records differ from the records that were written."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"records of {topic}-{partition} are damaged at offset {offset}: {reason}; reading stops "
            "there. `/health` of the brokers lists damaged ranges; set endingOffsets and startingOffsets to skip them"
        )


class ColumnBuilder(Protocol):
    """Builder of Arrow columns from record batches."""

    def append(
        self,
        body: bytes | memoryview,
        record_count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_timestamp_ms: int,
        first_offset: int,
        end_offset: int,
    ) -> None:
        """Add the records of a decompressed batch with first_offset <= offset < end_offset.

        `append_timestamp_ms` replaces the timestamps of all records unless it is -1. Raises InvalidBatch or
        ValueError for malformed records.
        """
        ...

    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def take(self) -> dict[str, pa.Array]:
        """Return the columns offset and timestamp, and those of key, value and headers that were requested.
        Resets the builder.
        """
        ...


class BuilderType(Protocol):
    def __call__(self, key: bool, value: bool, headers: bool) -> ColumnBuilder: ...


def fastest_builder() -> BuilderType:
    try:
        from penstock.pipeline.native_builder import NativeBuilder
    except ImportError:
        return PureBuilder
    return NativeBuilder


def decode(
    chunks: Iterator[tuple[memoryview, Sequence[AbortedTransaction] | None]],
    wanted: OffsetRange,
    columns: tuple[str, ...],
    builder_type: BuilderType | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of the range `wanted`. `chunks` are the fetched bytes in offset order, each with the broker's list of
    aborted transactions.

    Raises DamagedRecords at a batch whose CRC does not match. Rows of earlier batches may then not have been yielded.
    """
    rows = _Rows(wanted, columns, builder_type or fastest_builder())
    visibility = _Visibility()
    next_offset = 0
    for records, aborted in chunks:
        visibility.learn(aborted)
        for header, batch in _verified(records, wanted, next_offset):
            next_offset = header.next_offset
            if header.next_offset <= wanted.start or not visibility.shows(header, batch):
                continue
            if header.base_offset >= wanted.end:
                break
            if rows.must_be_taken_before(header):
                yield rows.take()
            rows.append(header, batch)
    if rows.count:
        yield rows.take()


class _Rows:
    """Rows of the wanted range that are decoded but not yet returned; all have the same timestamp type."""

    def __init__(self, wanted: OffsetRange, columns: tuple[str, ...], builder_type: BuilderType) -> None:
        needed = with_sources(columns)
        self._builder = builder_type("key" in needed, "value" in needed, "headers" in needed)
        self._wanted = wanted
        self._columns = columns
        self._is_append_time = False
        self._append_times = _AppendTimes() if CREATE_TIMESTAMP in columns else None

    @property
    def count(self) -> int:
        return self._builder.rows

    def must_be_taken_before(self, header: BatchHeader) -> bool:
        """Return True if there are enough rows for a batch, or if the next record batch has another timestamp type."""
        return bool(self.count) and (
            _has_append_time(header) != self._is_append_time
            or self.count >= ROWS_AT_ONCE
            or self._builder.size_bytes >= BYTES_AT_ONCE
        )

    def append(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the records of a batch that are in the wanted range."""
        self._is_append_time = _has_append_time(header)
        body = batch[HEADER_SIZE : header.size]
        if header.codec is not Codec.NONE:
            body = memoryview(decompress(header.codec, body, MAX_DECOMPRESSED_BYTES))
        append_ms, rows_before = header.max_timestamp if self._is_append_time else -1, self.count
        self._builder.append(
            body,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            append_ms if self._append_times is None else -1,
            self._wanted.start,
            self._wanted.end,
        )
        if self._append_times is not None and self._is_append_time:
            self._append_times.add(append_ms, self.count - rows_before)

    def take(self) -> pa.RecordBatch:
        """Return the rows with the requested columns, and remove them from this buffer."""
        rows = self.count
        made = self._builder.take()
        if self._append_times is not None:
            made[CREATE_TIMESTAMP] = made["timestamp"]
            made["timestamp"] = self._append_times.take(made["timestamp"])
        fixed = {
            "topic": lambda: pa.repeat(pa.scalar(self._wanted.topic), rows),
            "partition": lambda: pa.repeat(pa.scalar(self._wanted.partition, pa.int32()), rows),
            "timestampType": lambda: pa.repeat(pa.scalar(int(self._is_append_time), pa.int32()), rows),
        }

        def column(name: str) -> pa.Array:
            if name in made:
                return made[name]
            return computed(name, column) if is_computed(name) else fixed[name]()

        arrays = [column(name) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._columns))


def _has_append_time(header: BatchHeader) -> bool:
    return bool(header.attributes & LOG_APPEND_TIME_FLAG)


def _verified(
    records: memoryview, wanted: OffsetRange, next_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batches with matching CRC and increasing offsets, from `next_offset` on. Raises DamagedRecords for any other
    batch.
    """

    def damaged(reason: str) -> DamagedRecords:
        return DamagedRecords(wanted.topic, wanted.partition, max(next_offset, wanted.start), reason)

    try:
        for header, batch in read_batches(records):
            if not crc_matches(batch, header):
                raise damaged("the CRC of the batch does not match")
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise damaged("the batch starts below the end of the batch before it")
            next_offset = header.next_offset
            yield header, batch
    except InvalidBatch as error:
        raise damaged(str(error)) from error


class _AppendTimes:
    """Append times of rows, for reads that also request the create time: a builder stores only one of the two."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._counts: list[int] = []

    def add(self, time_ms: int, rows: int) -> None:
        self._times.append(time_ms)
        self._counts.append(rows)

    def take(self, created: pa.Array) -> pa.Array:
        """Append times of the rows so far, or `created` if no batch had an append time. Resets the times."""
        if not self._times:
            return created
        times = np.repeat(np.array(self._times, "int64") * 1000, self._counts)
        self._times, self._counts = [], []
        return pa.array(times).view(created.type)


class _Visibility:
    """Filter of batches as for a consumer with `isolation.level=read_committed`."""

    def __init__(self) -> None:
        self._aborted: dict[int, list[int]] = {}
        """First offsets of aborted transactions that begin after the current offset, by producer id."""
        self._ongoing: set[int] = set()
        """Producer ids with an aborted transaction at the current offset."""

    def learn(self, aborted: Sequence[AbortedTransaction] | None) -> None:
        for each in aborted or ():
            firsts = self._aborted.setdefault(each.producer_id, [])
            if each.first_offset not in firsts:
                firsts.append(each.first_offset)
                firsts.sort()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        producer = header.producer_id
        if header.attributes & CONTROL_FLAG:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                self._ongoing.discard(producer)
            return False
        if not header.attributes & TRANSACTIONAL_FLAG:
            return True
        firsts = self._aborted.get(producer)
        while firsts and firsts[0] <= header.base_offset:
            firsts.pop(0)
            self._ongoing.add(producer)
        return producer not in self._ongoing
