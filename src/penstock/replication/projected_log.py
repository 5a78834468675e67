"""Projection of a replica's log: reads that return matching records, and long polls that wait for a match.

One job at a time runs in a thread pool for a projection of a log: it scans records that were not scanned before and
builds the response. A job is short, and few jobs run at a time in a broker (`ScanSlots`), so that an expensive filter
does not delay other work of the thread pool. A projection without readers costs nothing. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import CorruptLog, StorageError
from penstock.model import Offset
from penstock.records.selecting import Selector
from penstock.replication.index_filing import place_file
from penstock.replication.waiting import DataWaiters
from penstock.storage.derived.index import EntryFileJob
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.log_view import LogView
from penstock.storage.projection.match_index import MatchIndex
from penstock.storage.projection.reading import ProjectedQuery, ProjectedRecords, first_match, read_projected
from penstock.storage.segment import Segment
from penstock.threads import Threads

SCAN_SECONDS = 0.02
"""Time in seconds after which a job stops scanning. The next job continues."""
MAX_SCANS = 2
"""Maximum number of jobs of projections that run at a time in a broker."""


class ScanSlots:
    """Queue for the jobs of all projections in a broker, of which at most `MAX_SCANS` run at a time."""

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self.clock = clock
        self.scanned = 0
        """Number of records for which a filter was evaluated, for all projections."""
        self.matched = 0
        self.failed = 0
        self.threads = threads
        self._running = 0
        self._waiting: deque[tuple[Callable[[], None], asyncio.Future[None]]] = deque()

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run a job when a slot is free; jobs start in the order of the calls."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        self._start()
        return done

    def count(self, index: MatchIndex) -> None:
        """Add the counts of the last job of an index."""
        scanned, matched, failed = index.take_counts()
        self.scanned += scanned
        self.matched += matched
        self.failed += failed

    def _start(self) -> None:
        while self._waiting and self._running < MAX_SCANS:
            work, done = self._waiting.popleft()
            self._running += 1
            self.threads.run("read", work).add_done_callback(partial(self._finish, done))

    def _finish(self, done: asyncio.Future[None], finished: asyncio.Future[None]) -> None:
        self._running -= 1
        error = finished.exception()
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)
        self._start()


class MatchWait(NamedTuple):
    """Long poll that waits for a match."""

    offset: Offset
    """Offset from which the reader waits for a match."""
    is_committed: bool


@dataclass(slots=True, eq=False)
class _Read:
    query: ProjectedQuery
    done: asyncio.Future[ProjectedRecords]


class ProjectedLog:
    def __init__(self, log: Log, waiters: DataWaiters, slots: ScanSlots, selector: Selector) -> None:
        """`waiters` are the data waiters of the log's replica."""
        self.identity = selector.identity
        self.is_retired = False
        """True after the view was deleted or its filter was changed; results of running reads are then invalid."""
        self._log = log
        self._log_waiters = waiters
        self._slots = slots
        self.index = MatchIndex(log.files, selector)
        self._reads: deque[_Read] = deque()
        self._waits: dict[Callable[[], None], MatchWait] = {}
        self._is_running = False
        self._must_look = False
        self._used_at = slots.clock.monotonic()
        self._seen = (-1, -1, -1)
        """High watermark, last stable offset and log generation at the last search for matches of waiting readers."""

    def is_read_within(self, seconds: float) -> bool:
        """True if the projection has readers, or had a reader within the last `seconds`."""
        return bool(self._waits or self._reads) or self._slots.clock.monotonic() - self._used_at < seconds

    def read(self, query: ProjectedQuery) -> asyncio.Future[ProjectedRecords]:
        """Read in the thread pool, after earlier reads. CorruptLog or StorageError if the log cannot be read."""
        self._used_at = self._slots.clock.monotonic()
        done: asyncio.Future[ProjectedRecords] = asyncio.get_running_loop().create_future()
        self._reads.append(_Read(query, done))
        self._run()
        return done

    def wait(self, callback: Callable[[], None], wait: MatchWait) -> None:
        """Call back once, when a record from `wait.offset` on matches, or when the replica or the view has changed."""
        self._used_at = self._slots.clock.monotonic()
        if not self._waits:
            self._seen = self._state()
        self._waits[callback] = wait
        self._log_waiters.add(self._on_move)
        below = self._log.last_stable_offset if wait.is_committed else self._log.high_watermark
        if below > wait.offset:
            self._must_look = True
            self._run()

    def stop_waiting(self, callback: Callable[[], None]) -> None:
        self._waits.pop(callback, None)
        if not self._waits:
            self._log_waiters.discard(self._on_move)

    def retire(self) -> None:
        """Stop serving the projection, and wake waiting readers: their next reads find the new filter or an error."""
        self.is_retired = True
        self._log_waiters.discard(self._on_move)
        self._wake(tuple(self._waits))

    def on_repaired(self, segment: Segment) -> None:
        """Scan a segment again after its damaged batches were repaired."""
        self.index.outdated.add(segment)

    async def maintain(self, is_wanted: Callable[[], bool]) -> bool:
        """Write the file of one completely scanned closed segment; True if there may be more work. OSError if the disk
        is full.
        """
        log = self._log
        found = self.index.unfiled(log.segments)
        if found is None or self.is_retired:
            return False
        limit = log.config.max_decompressed_bytes
        job = EntryFileJob(log.files.disk, log.files, self.index.kind, *found, limit, is_wanted)
        file = await place_file(log, self._slots.threads, job)
        if file is None:
            return False
        self.index.filed(job.segment, file)
        return True

    def _on_move(self) -> None:
        """Search for matches if the log has moved. If it has not, the replica's role has changed: wake all readers."""
        if self._state() == self._seen:
            self._wake(tuple(self._waits))
            return
        self._log_waiters.add(self._on_move)
        self._must_look = True
        self._run()

    def _state(self) -> tuple[int, int, int]:
        return self._log.high_watermark, self._log.last_stable_offset, self._log.generation

    def _wake(self, callbacks: tuple[Callable[[], None], ...]) -> None:
        for callback in callbacks:
            if self._waits.pop(callback, None) is not None:
                callback()

    # --- jobs

    def _run(self) -> None:
        if self._is_running:
            return
        while self._reads and self._reads[0].done.cancelled():
            self._reads.popleft()
        if self._reads:
            self._start_read(self._reads.popleft())
        elif self._must_look and self._waits:
            self._must_look = False
            self._start_look()

    def _is_over(self) -> Callable[[], bool]:
        clock = self._slots.clock
        start = clock.monotonic()
        return lambda: clock.monotonic() - start > SCAN_SECONDS

    def _start_read(self, read: _Read) -> None:
        view, epochs = LogView.of(self._log), LeaderEpochs(self._log.leader_epochs.entries)
        found: list[ProjectedRecords] = []

        def work() -> None:
            found.append(read_projected(self.index, view, epochs, read.query, self._is_over()))

        self._start(work, partial(self._on_read, read, view, found))

    def _on_read(
        self, read: _Read, view: LogView, found: list[ProjectedRecords], error: BaseException | None
    ) -> None:
        if read.done.done():
            return
        if self._log.generation != view.generation or (error and self._log.segments is not view.segments):
            self._reads.appendleft(read)  # the log was truncated or compacted during the job
        elif error is None:
            read.done.set_result(found[0])
        elif isinstance(error, OSError):
            read.done.set_exception(StorageError(str(error)))
        else:
            read.done.set_exception(error)

    def _start_look(self) -> None:
        view, waits = LogView.of(self._log), dict(self._waits)
        high_watermark = self._log.high_watermark
        self._seen = self._state()
        due: list[Callable[[], None]] = []
        unknown: list[Callable[[], None]] = []

        def work() -> None:
            is_over = self._is_over()
            for callback, wait in waits.items():
                below = view.below if wait.is_committed else high_watermark
                has_match, known_end = first_match(self.index, view, wait.offset, below, is_over)
                if has_match:
                    due.append(callback)
                elif known_end < below:
                    unknown.append(callback)

        self._start(work, partial(self._on_look, due, unknown))

    def _on_look(
        self, due: list[Callable[[], None]], unknown: list[Callable[[], None]], error: BaseException | None
    ) -> None:
        if error is not None:
            self._wake(
                tuple(self._waits)
            )  # their next reads fail with the error, or succeed on the changed log
            return
        self._must_look = self._must_look or bool(unknown)
        self._wake(tuple(due))

    def _start(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        self._is_running = True
        self._slots.run(work).add_done_callback(partial(self._finish, then))

    def _finish(self, then: Callable[[BaseException | None], None], done: asyncio.Future[None]) -> None:
        self._is_running = False
        self._slots.count(self.index)
        error = done.exception()
        try:
            then(error)
        finally:
            self._run()
        if error is not None and not isinstance(error, CorruptLog | OSError | StorageError):
            raise error
