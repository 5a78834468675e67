"""Fetcher of an offset range in a task: a thread fetches a few responses ahead of the decoding.

`read_range` is a generator. It raises OffsetsLost if offsets of the range no longer exist, and DamagedRecords if
records are damaged.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

import pyarrow as pa

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.api import check_error
from penstock.internal_client.records import fetch
from penstock.internal_client.routes import Routes
from penstock.model import TopicId
from penstock.net.broker_connection import BrokerConnection
from penstock.pipeline.columns import ALL
from penstock.pipeline.decoding import DamagedRecords, decode
from penstock.pipeline.offsets import find_offset
from penstock.pipeline.options import LATEST
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings, open_routes
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.wire.fetch import AbortedTransaction, FetchResult

Chunk = tuple[memoryview, Sequence[AbortedTransaction] | None]

FETCH_BYTES = 4 << 20
READ_AHEAD = 3
MAX_WAIT_MS = 500

_GONE = frozenset(
    {ErrorCode.offset_out_of_range, ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}
)


class OffsetsLost(PenstockError):
    """Offsets were deleted by retention or truncation, or belong to another topic of the same name."""


def read_range(
    read_settings: ReadSettings, wanted: OffsetRange, columns: tuple[str, ...] = ALL
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range in offset order, as Arrow record batches."""
    with _ReadAhead(read_settings, wanted) as chunks:
        yield from decode(chunks, wanted, columns)


class _ReadAhead:
    """Thread that fetches while the task decodes. A short queue bounds its memory."""

    def __init__(self, read_settings: ReadSettings, wanted: OffsetRange) -> None:
        self._read_settings = read_settings
        self._wanted = wanted
        self._queue: queue.Queue[Chunk | BaseException | None] = queue.Queue(READ_AHEAD)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-read-ahead", daemon=True)

    def __enter__(self) -> Iterator[Chunk]:
        self._thread.start()
        return self._chunks()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._queue.get(timeout=0.05)

    def _chunks(self) -> Iterator[Chunk]:
        while (chunk := self._queue.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    def _run(self) -> None:
        try:
            asyncio.run(self._fetch())
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the rows are read
            self._put(error)

    def _put(self, chunk: Chunk | BaseException | None) -> bool:
        while not self._is_over.is_set():
            with suppress(queue.Full):
                self._queue.put(chunk, timeout=0.1)
                return True
        return False

    async def _fetch(self) -> None:
        routes = open_routes(self._read_settings.bootstrap)
        try:
            offset = self._wanted.start
            while offset < self._wanted.end:
                result = await self._fetch_from(routes, offset)
                records = memoryview(result.records)  # type: ignore[arg-type]
                following = _next_offset(records)
                if following is None and len(records):
                    # A broker returns at least the first batch completely.
                    raise self._damaged(offset, "the length of the batch is wrong")
                if following is not None and following > result.high_watermark:
                    raise self._damaged(offset, f"a batch ends at {following}, above the high watermark")
                if following is None:
                    if self._ends_at(result) >= self._wanted.end:
                        return  # compaction removed the remaining records
                    await self._check_end(routes)
                    continue
                offset = following
                if not self._put((records, result.aborted_transactions)):
                    return
        finally:
            routes.close()

    async def _check_end(self, routes: Routes) -> None:
        """Raise OffsetsLost if the log ends before the end of the range. An empty fetch response alone does not prove
        this: a new leader may not know its high watermark yet.
        """
        wanted = self._wanted
        name = wanted.topic, wanted.partition
        if await find_offset(routes, name, LATEST, self._read_settings.read_committed) < wanted.end:
            raise OffsetsLost(f"{self._name} ends before {wanted.end}")

    def _ends_at(self, result: FetchResult) -> int:
        return result.last_stable_offset if self._read_settings.read_committed else result.high_watermark

    async def _fetch_from(self, routes: Routes, offset: int) -> FetchResult:
        wanted = self._wanted

        async def ask(client: BrokerConnection) -> FetchResult:
            if (await routes.topic(wanted.topic)).id != UUID(wanted.topic_id):
                raise OffsetsLost(f"topic {wanted.topic} with id {wanted.topic_id} does not exist any more")
            [result] = await fetch(
                client,
                TopicId(UUID(wanted.topic_id)),
                {wanted.partition: offset},
                FETCH_BYTES,
                MAX_WAIT_MS,
                read_committed=self._read_settings.read_committed,
            )
            check_error(result.error_code)
            return result

        try:
            return await routes.at_leader(wanted.topic, wanted.partition, ask)
        except BrokerError as error:
            if error.code is ErrorCode.corrupt_message:
                raise self._damaged(offset, str(error) or error.code.name) from error
            if error.code in _GONE:
                raise OffsetsLost(
                    f"offset {offset} of {self._name} does not exist any more ({error.code.name})"
                ) from error
            raise

    def _damaged(self, offset: int, reason: str) -> DamagedRecords:
        return DamagedRecords(self._wanted.topic, self._wanted.partition, offset, reason)

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"


def _next_offset(records: memoryview) -> int | None:
    """Offset after the last complete batch; None if there is no complete batch."""
    following, position = None, 0
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if not HEADER_SIZE <= header.size <= len(records) - position:
            break
        following = header.next_offset
        position += header.size
    return following
