"""The records of a share-partition that reads a view or a topic with delayed messages.

Batches are made in a thread pool (`replication/projected_log.py`) and kept in windows, from which records are acquired
on the event loop. One read runs at a time, for all fetches of the share-partition. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.errors import BrokerError, ConfigError, CorruptLog, ErrorCode, StorageError, WouldBlock
from penstock.model import Offset
from penstock.queues.projected_window import ProjectedWindow, WindowSpans
from penstock.queues.record_source import LogSource, RecordSource, Spans
from penstock.replication.projections import Projection
from penstock.replication.replica import Replica
from penstock.storage.projection.reading import ProjectedQuery
from penstock.threads import Threads

WINDOW_BYTES = 1 << 20
_NEAR_OFFSETS = 200
"""Maximum distance in offsets at which earlier records are read together with the missing one, because one receive may
get records of several priorities.
"""
_MAX_WINDOWS = 3
"""Maximum number of windows: for released records, for new records, and for the first records of a peek."""


class ProjectedSource:
    def __init__(
        self, replica: Replica, projection: Projection, threads: Threads, when_read: Callable[[], None]
    ) -> None:
        """`when_read` is called after each read."""
        self.identity = projection.identity
        self._replica = replica
        self._projection = projection
        self._threads = threads
        self._when_read = when_read
        self._windows: list[ProjectedWindow] = []
        self._missed: int | None = None
        """Offset of the last acquisition that found no window, which the next read has to begin at."""
        self._failure: tuple[int, BrokerError] | None = None
        """Offset and error of the last read if it failed. The next acquisition at this offset raises the error."""
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def spans(
        self,
        first: int,
        last: int,
        max_bytes: int,
        below: int,
        sent: int | None = None,
        *,
        is_committed: bool,
    ) -> WindowSpans:
        failure, self._failure = self._failure, None
        if failure is not None and failure[0] == first:
            raise failure[1]
        window = next((each for each in self._windows if each.has(first)), None)
        if window is None:
            self._missed = first
            raise WouldBlock
        aborted = self._replica.log.producers.aborted if is_committed else None
        return WindowSpans(window, first, min(last, below - 1), max_bytes, aborted, sent)

    def used(self, spans: Spans, end_offset: int) -> None:
        pass

    def available_bytes(self, offset: int, below: int, at_most: int) -> int:
        """Return `at_most`: a fetch of a projection waits for a record and not for a number of bytes."""
        return at_most

    async def warm(self, offset: int, below: int, lowest: int | None = None) -> None:
        if self._reading is None:
            if self._missed is not None:
                offset, self._missed = self._missed, None
            self._reading = asyncio.get_running_loop().create_task(self._read_around(offset, below, lowest))
            self._reading.add_done_callback(partial(self._on_read, offset))
        await asyncio.wait([self._reading])

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read_around(self, offset: int, below: int, lowest: int | None) -> None:
        """Read from `offset` on, or from `lowest` on if both fit into one window."""
        if lowest is not None and 0 < offset - lowest <= _NEAR_OFFSETS:
            await self._read(lowest, below)
            if self._failure is None and any(each.has(offset) for each in self._windows):
                return
        await self._read(offset, below)

    async def _read(self, offset: int, below: int) -> None:
        log = self._replica.log
        if offset < log.log_start_offset or offset >= below:
            return
        query = ProjectedQuery(Offset(offset), WINDOW_BYTES, Offset(below), at_least_one=True)
        try:
            projected = self._replica.projections.get(self._projection)
            found = await projected.read(query)
            limit = log.config.max_decompressed_bytes
            window = await self._threads.run("read", lambda: ProjectedWindow(offset, found.records, limit))
        except (ConfigError, StorageError) as error:
            self._failure = offset, self._refusal(offset, error)
            return
        if not projected.is_retired:
            self._windows = [window, *self._windows][:_MAX_WINDOWS]

    def _refusal(self, offset: int, error: Exception) -> BrokerError:
        if isinstance(error, CorruptLog):
            self._replica.on_unreadable(Offset(offset))
            return BrokerError(ErrorCode.corrupt_message, str(error))
        if isinstance(error, StorageError):
            return BrokerError(ErrorCode.kafka_storage_error, str(error))
        return BrokerError(ErrorCode.unknown_server_error, f"{self._replica.name}: {error}")

    def _on_read(self, offset: int, done: asyncio.Task[None]) -> None:
        self._reading = None
        if done.cancelled():
            return
        if done.exception() is not None:
            self._failure = offset, BrokerError(ErrorCode.unknown_server_error, "the records were not read")
        self._when_read()
        done.result()


def make_source(
    replica: Replica, projection: Projection | None, threads: Threads, when_read: Callable[[], None]
) -> RecordSource:
    """Make the source of a share-partition: the stored log, or a projection of it."""
    if projection is None:
        return LogSource(replica.log, threads)
    return ProjectedSource(replica, projection, threads, when_read)
