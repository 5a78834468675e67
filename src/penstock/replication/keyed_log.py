"""Index by key of a replica's log: lookups, long polls for the next record of a key, and the index files.

One job at a time runs in a thread pool for a log: the index catches up with the log, then the job serves lookups.
Appends wait for the index only while it is more than MAX_LAG_RECORDS behind, so that a lookup never has to read more
records than that. A waiting lookup is repeated only when a record with the hash of its key is committed. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from penstock.errors import BrokerError, ErrorCode, InvalidBatch, StorageError
from penstock.model import Offset
from penstock.records.batch import BatchHeader
from penstock.records.iteration import iterate
from penstock.replication.index_filing import place_file
from penstock.storage.derived.index import DerivedIndex, EntriesMissing, EntryFileJob, NewEntries
from penstock.storage.keys.entries import KEYS, idempotency_key, key_hash, may_have_idempotency_key
from penstock.storage.keys.lookup import KeyQuery, KeyRecords, find_original, look_up
from penstock.storage.log import Log
from penstock.storage.log_config import KEYED_SEGMENT_RECORDS
from penstock.storage.log_view import LogView
from penstock.storage.segment import Segment
from penstock.threads import Threads

LookupCallback = Callable[[KeyRecords | BrokerError], None]
OriginalCallback = Callable[[Offset | BrokerError | None], None]
Outcome = KeyRecords | BrokerError

MAX_LAG_RECORDS = 1 << 16
"""Maximum lag of the index in records. Above it producers wait; above half of it the index starts to catch up."""
_LOOKUPS_PER_JOB = 64
_MAX_FOUND_BYTES = 8 * 1024 * 1024
"""Limit of the bytes that one job returns; the remaining lookups are served by the next job."""
_NOT_YET = BrokerError(
    ErrorCode.offset_not_available, "the key index of this partition is being built; try again"
)


@dataclass(slots=True, eq=False)
class KeyWait:
    """Lookup whose response has not been sent yet."""

    query: KeyQuery
    deadline: float
    callback: LookupCallback
    hash: bytes
    is_done: bool = False
    timer: asyncio.TimerHandle | None = None
    next_offset: int = 0
    """Offset below which the log has no record of the key."""

    @property
    def rest(self) -> KeyQuery:
        start = max(self.query.from_offset, self.next_offset)
        return self.query._replace(from_offset=Offset(start))


@dataclass(slots=True, eq=False)
class _Check:
    """Batch whose idempotency key has to be looked up before its append."""

    batch: memoryview
    header: BatchHeader
    callback: OriginalCallback


@dataclass(slots=True)
class _Job:
    view: LogView
    waits: list[KeyWait]
    checks: list[_Check]
    news: NewEntries = field(default_factory=dict)
    outcomes: list[tuple[KeyWait, Outcome]] = field(default_factory=list)
    left: list[KeyWait] = field(default_factory=list)
    originals: list[Offset | BrokerError | None] = field(default_factory=list)


class KeyedLog:
    def __init__(self, log: Log, threads: Threads) -> None:
        self._log = log
        self._threads = threads
        self._index = DerivedIndex(log.files, KEYS)
        self._pending: deque[KeyWait] = deque()
        self._checks: list[_Check] = []
        self._waiting: dict[bytes, list[KeyWait]] = {}
        self._due: list[tuple[int, int, KeyWait]] = []
        """Heap of waiting lookups: the offset that has to be committed, a counter as tie-breaker, and the lookup."""
        self._numbers = count()
        self._running: _Job | None = None
        self._idle: asyncio.Future[None] | None = None
        self._not_before = log.log_end_offset
        """Log end offset at creation. The indexing of older records does not make producers wait."""
        self._on_caught_up: list[Callable[[], None]] = []

    # --- lookups

    @property
    def suspects(self) -> frozenset[Segment]:
        """Segments with damage that is not recorded in the log yet; lookups fail until they are scrubbed."""
        return frozenset(self._index.suspects)

    def on_scrubbed(self, segments: frozenset[Segment]) -> None:
        """Remove segments from `suspects`, because their damage is recorded in the log now."""
        self._index.suspects -= segments

    def on_repaired(self, segment: Segment) -> None:
        """Index a segment again after its damaged batches were repaired."""
        self._index.outdated.add(segment)

    def look_up(self, query: KeyQuery, max_wait_ms: int, callback: LookupCallback) -> KeyWait:
        """Look up the records of a key, wait up to `max_wait_ms` if there are none, and call back with the result."""
        deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000
        wait = KeyWait(query, deadline, callback, key_hash(query.key))
        self._pending.append(wait)
        self._run()
        return wait

    def give_up(self, wait: KeyWait) -> None:
        """Drop a lookup whose client has disconnected."""
        wait.is_done = True
        self._forget(wait)

    def check_size(self, header: BatchHeader) -> None:
        """Check the number of records in a batch; InvalidBatch if it is above the limit of a segment."""
        if header.record_count > KEYED_SEGMENT_RECORDS:
            raise InvalidBatch(
                ErrorCode.invalid_record,
                f"the batch has {header.record_count} records; {KEYED_SEGMENT_RECORDS} are allowed with index.by.key",
            )

    def must_check(self, batch: memoryview, header: BatchHeader) -> bool:
        """True if the batch may have an idempotency key, which has to be looked up before the append."""
        return (
            header.record_count == 1 and not header.has_producer and may_have_idempotency_key(batch, header)
        )

    def find_original(self, batch: memoryview, header: BatchHeader, callback: OriginalCallback) -> None:
        """Call back with the offset of the stored record that has the idempotency key of this batch's record, or None.

        The caller must not append records until the callback.
        """
        self._checks.append(_Check(batch, header, callback))
        self._run()

    # --- back-pressure

    def must_wait(self) -> bool:
        """True if an append has to wait for the index. Starts to index if the lag is above half of the maximum."""
        lag = self._log.log_end_offset - max(self._index.end_offset, self._not_before)
        if lag > MAX_LAG_RECORDS // 2 and self._running is None:
            self._start(_Job(LogView.of(self._log), [], []))
        return lag > MAX_LAG_RECORDS

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back after the running job, or after a new job: the index has caught up, or the log cannot be read."""
        self._on_caught_up.append(callback)
        if self._running is None:
            self._start(_Job(LogView.of(self._log), [], []))

    # --- changes of the log

    def on_high_watermark(self) -> None:
        """Repeat waiting lookups whose records are committed now."""
        if self._waiting or self._due:
            self._wake()
            self._run()

    def fail(self, error: BrokerError) -> None:
        """Fail all lookups and checks."""
        waits = [*self._pending, *(wait for waits in self._waiting.values() for wait in waits)]
        waits += () if self._running is None else self._running.waits
        checks, self._checks = self._checks, []
        self._pending.clear()
        self._waiting.clear()
        self._due.clear()
        for wait in waits:
            self._answer(wait, error)
        for check in checks:
            check.callback(error)

    # --- jobs

    def _run(self) -> None:
        has_news = bool(self._waiting) and self._index.end_offset < self._log.log_end_offset
        if self._running is not None or not (self._pending or self._checks or has_news):
            return
        taken = min(len(self._pending), _LOOKUPS_PER_JOB)
        waits = [wait for wait in (self._pending.popleft() for _ in range(taken)) if not wait.is_done]
        checks, self._checks = self._checks, []
        self._start(_Job(LogView.of(self._log), waits, checks))

    def _start(self, job: _Job) -> None:
        self._running = job
        self._threads.run("read", partial(self._work, job)).add_done_callback(partial(self._finish, job))

    def _work(self, job: _Job) -> None:
        """Run a job in the thread pool."""
        job.news = self._index.catch_up(job.view, self._waiting)
        woken = [
            wait
            for key, offset in job.news.items()
            if offset < job.view.below
            for wait in tuple(self._waiting.get(key, ()))
        ]
        found_bytes = 0
        for wait in (*job.waits, *woken):
            if found_bytes > _MAX_FOUND_BYTES:
                job.left.append(wait)
            elif not wait.is_done:
                outcome = self._look_up(job.view, wait.rest)
                job.outcomes.append((wait, outcome))
                if isinstance(outcome, KeyRecords):
                    found_bytes += sum(map(len, outcome.batches))
        job.originals += (self._find_original(job.view, check) for check in job.checks)

    def _look_up(self, view: LogView, query: KeyQuery) -> Outcome:
        try:
            return look_up(self._index, view, query)
        except EntriesMissing:
            return _NOT_YET
        except (OSError, StorageError) as error:
            return BrokerError(ErrorCode.kafka_storage_error, str(error))

    def _find_original(self, view: LogView, check: _Check) -> Offset | BrokerError | None:
        try:
            [record] = iterate(check.batch, check.header, max_decompressed_bytes=view.max_decompressed_bytes)
            own_key = idempotency_key(record.headers)
            original = None if own_key is None else find_original(self._index, view, record.key, own_key)
            if original is None:
                return None
            if not original.says(record.value, record.headers):
                return BrokerError(
                    ErrorCode.invalid_record,
                    "the idempotency key was used before for another message; use a new key",
                )
            return original.offset
        except EntriesMissing:
            # Producers of all versions retry after this error.
            return BrokerError(ErrorCode.not_enough_replicas, str(_NOT_YET))
        except ValueError:
            return BrokerError(
                ErrorCode.invalid_record, "a batch with an idempotency key must have one record"
            )
        except BrokerError as error:
            return BrokerError(error.code, str(error))
        except (OSError, StorageError) as error:
            return BrokerError(ErrorCode.kafka_storage_error, str(error))

    def _finish(self, job: _Job, done: asyncio.Future[None]) -> None:
        self._running = None
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        try:
            self._settle_job(job, done)
        finally:
            waiting, self._on_caught_up = self._on_caught_up, []
            for callback in waiting:
                callback()

    def _settle_job(self, job: _Job, done: asyncio.Future[None]) -> None:
        error = done.exception()
        has_changed = self._log.segments is not job.view.segments
        if error is not None:
            self._on_failed_job(job, error, has_changed=has_changed)
            return
        if self._index.has_skipped:
            self._index.has_skipped = False
            self._pending.extend(wait for waits in self._waiting.values() for wait in waits)
        for key, offset in job.news.items():
            for wait in self._waiting.get(key, ()):
                heappush(self._due, (offset, next(self._numbers), wait))
        for wait, outcome in job.outcomes:
            is_stale = isinstance(outcome, BrokerError) and outcome is not _NOT_YET and has_changed
            if is_stale and not wait.is_done:
                self._pending.append(wait)
            elif not wait.is_done:
                self._settle(wait, outcome)
        self._pending.extend(job.left)
        for check, original in zip(job.checks, job.originals, strict=True):
            check.callback(original)
        self._wake()
        self._run()

    def _on_failed_job(self, job: _Job, error: BaseException, *, has_changed: bool) -> None:
        """Run a failed job again if segments were replaced during the job; else fail its lookups and checks."""
        if has_changed:
            self._pending.extendleft(job.waits)
            self._checks[:0] = job.checks
            self._run()
            return
        refusal = BrokerError(ErrorCode.kafka_storage_error, str(error))
        for wait in job.waits:
            self._answer(wait, refusal)
        for check in job.checks:
            check.callback(refusal)
        if not isinstance(error, OSError | StorageError):
            raise error

    def _settle(self, wait: KeyWait, outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        if (
            isinstance(outcome, BrokerError)
            or outcome.batches
            or outcome.damage is not None
            or loop.time() >= wait.deadline
        ):
            self._forget(wait)
            self._answer(wait, outcome)
            return
        wait.next_offset = outcome.next_offset
        if wait.timer is None:
            wait.timer = loop.call_at(wait.deadline, self._on_time_over, wait)
            self._waiting.setdefault(wait.hash, []).append(wait)
        if outcome.next_due >= 0:
            heappush(self._due, (outcome.next_due, next(self._numbers), wait))

    def _wake(self) -> None:
        """Queue the waiting lookups whose records are committed now."""
        below = self._log.last_stable_offset if self._due else Offset(0)
        while self._due and self._due[0][0] < below:
            _, _, wait = heappop(self._due)
            if not wait.is_done:
                self._pending.append(wait)

    def _on_time_over(self, wait: KeyWait) -> None:
        if not wait.is_done:
            self._forget(wait)
            self._answer(
                wait, KeyRecords(self._log.log_start_offset, Offset(wait.next_offset), is_complete=True)
            )

    def _answer(self, wait: KeyWait, outcome: Outcome) -> None:
        if not wait.is_done:
            wait.is_done = True
            if wait.timer is not None:
                wait.timer.cancel()
            wait.callback(outcome)

    def _forget(self, wait: KeyWait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
            others = [each for each in self._waiting.get(wait.hash, ()) if each is not wait]
            if others:
                self._waiting[wait.hash] = others
            else:
                self._waiting.pop(wait.hash, None)

    # --- index files

    async def maintain(self, is_wanted: Callable[[], bool]) -> bool:
        """Index appended records and write the file of one closed segment; True if there may be more work. OSError if
        the disk is full.
        """
        await self._catch_up()
        found = self._index.unfiled(self._log.segments)
        if found is None:
            return False
        log, limit = self._log, self._log.config.max_decompressed_bytes
        job = EntryFileJob(log.files.disk, log.files, KEYS, *found, limit, is_wanted, self._index.suspects)
        file = await place_file(log, self._threads, job)
        if file is None:
            return False
        self._index.filed(job.segment, file)
        return True

    async def _catch_up(self) -> None:
        await self._until_idle()
        view = LogView.of(self._log)
        if self._index.is_behind(view):
            self._start(_Job(view, [], []))
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._running is not None:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
