"""Fetch of partitions with a projection: their batches are built in a thread pool, and a range of the log without
visible records does not end a long poll.

The end of such a range is sent with the next visible record, when the wait of the request ends, or when the response
has no room for more. Other partitions of the same request are read as in any fetch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ConfigError, CorruptLog, ErrorCode
from penstock.net.response import Answer
from penstock.replication.projected_log import MatchWait, ProjectedLog
from penstock.replication.projections import Projection
from penstock.replication.replica import Replica
from penstock.server.cold_read import Found, LogRead
from penstock.server.dispatch import Request
from penstock.server.fetch_sessions import FetchSession, FetchTarget
from penstock.server.handlers.fetch import FetchOperation
from penstock.server.projection_kinds import projection_of
from penstock.storage.projection.reading import ProjectedQuery, ProjectedRecords
from penstock.threads import Threads
from penstock.wire.fetch import FetchRequest, FetchResult


@dataclass(frozen=True, slots=True)
class _ProjectedRead:
    projected: ProjectedLog
    query: ProjectedQuery
    is_committed: bool

    def start(self, threads: Threads) -> asyncio.Future[ProjectedRecords]:
        return self.projected.read(self.query)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Records that were read through a projection, and the position from which the request waits for the next match."""

    projected: ProjectedLog
    records: ProjectedRecords
    wait: MatchWait


class ProjectedFetchOperation(FetchOperation):
    """One Fetch request with at least one partition of a topic that has a projection."""

    __slots__ = ("_deadline", "_outcomes", "_places", "_plain", "_projections", "_waits")

    def __init__(
        self,
        request: Request,
        fetch: FetchRequest,
        session: FetchSession | None,
        targets: list[FetchTarget],
    ) -> None:
        super().__init__(request, fetch, session, targets)
        self._projections: dict[int, Projection] = {}
        """Projections by the index of their fetch target in the request."""
        self._plain: dict[Replica, None] = {}
        """Replicas that are read without a projection."""
        self._outcomes: dict[int, _Outcome] = {}
        self._waits: dict[ProjectedLog, MatchWait] = {}
        self._places = {id(target): place for place, target in enumerate(targets)}
        self._deadline = 0.0

    def start(self) -> Answer:
        self._deadline = asyncio.get_running_loop().time() + self._wait_ms / 1000
        return super().start()

    # --- reading

    def _topic(self, target: FetchTarget) -> str:
        topic = super()._topic(target)
        image = self._request.context.image
        index = self._places[id(target)]
        projection = projection_of(image, topic)
        if projection is None:
            self._projections.pop(index, None)
        else:
            self._projections[index] = projection
        return image.views.get(topic, topic)

    def _attempt(self, *, final: bool) -> list[FetchResult] | None:
        self._waits.clear()
        results = super()._attempt(final=final)
        if results is None or final or self._must_respond(results):
            return results
        return None

    def _must_respond(self, results: list[FetchResult]) -> bool:
        """True if the response has an error, a redirection, or at least `min_bytes` of records. Ranges without visible
        records do not count while they may still wait for a match.
        """
        counted = 0
        for index, result in enumerate(results):
            if result.error_code or result.diverging_epoch is not None or result.preferred_read_replica >= 0:
                return True
            outcome = self._outcomes.get(index)
            if outcome is None or outcome.records.is_due:
                counted += len(result.records)
        return counted >= max(1, self._fetch.min_bytes)

    def _find(self, index: int, read: LogRead) -> Found:
        projection = self._projections.get(index)
        if projection is None:
            self._plain[read.replica] = None
            return super()._find(index, read)
        log = read.replica.log
        if not log.log_start_offset <= read.offset <= log.log_end_offset:
            raise log.out_of_range(read.offset)
        known = self._cold_results.get(index)
        if isinstance(known, BrokerError):
            raise known
        outcome = self._outcomes.get(index)
        if outcome is not None and known is not None:
            self._waits[outcome.projected] = outcome.wait
            return known
        projected = _projected(read.replica, projection)
        if read.offset >= read.below:
            self._waits[projected] = MatchWait(read.offset, read.is_committed)
            return b"", (() if read.is_committed else None)
        now_ms = self._request.context.clock.now_ms() if projection.hides_expired else None
        query = ProjectedQuery(read.offset, read.max_bytes, read.below, read.at_least_one, now_ms)
        self._cold_reads[index] = _ProjectedRead(projected, query, read.is_committed)
        return b"", (() if read.is_committed else None)

    def _on_cold_read(self, index: int, done: asyncio.Future[Any]) -> None:
        read = self._cold_reads[index]
        if not isinstance(read, _ProjectedRead):
            super()._on_cold_read(index, done)
            return
        del self._cold_reads[index]
        error = done.exception()
        if read.projected.is_retired:
            pass  # the next attempt reads through the new filter
        elif error is not None:
            self._cold_results[index] = self._refusal(read, error)
        else:
            records: ProjectedRecords = done.result()
            known_end = max(read.query.offset, read.query.below)
            self._outcomes[index] = _Outcome(read.projected, records, MatchWait(known_end, read.is_committed))
            self._cold_results[index] = records.records, (records.aborted if read.is_committed else None)
        if not self._cold_reads:
            self._after_reads()

    def _refusal(self, read: _ProjectedRead, error: BaseException) -> BrokerError:
        if isinstance(error, BrokerError):
            return error
        is_damage = isinstance(error, CorruptLog)
        if is_damage:
            for replica in self._replicas:
                if read.projected in tuple(replica.projections):
                    replica.on_unreadable(read.query.offset)
        code = ErrorCode.corrupt_message if is_damage else ErrorCode.kafka_storage_error
        return BrokerError(code, str(error))

    def _after_reads(self) -> None:
        """Respond, wait, or continue to scan the partitions in which nothing was found so far."""
        assert self._later is not None
        if self._later.is_done:
            return
        is_over = self._wait_ms <= 0 or asyncio.get_running_loop().time() >= self._deadline
        unfinished = [
            index
            for index, outcome in self._outcomes.items()
            if outcome.records.is_partial and not outcome.records.is_due
        ]
        if unfinished and not is_over and not any(each.records.is_due for each in self._outcomes.values()):
            for index in unfinished:
                self._forget(index)
        self._retry(final=is_over)

    def _forget(self, index: int) -> None:
        del self._outcomes[index]
        self._cold_results.pop(index, None)

    # --- waiting

    def _go_on(self) -> None:
        if self._has_moved:
            for index in tuple(self._outcomes):
                self._forget(index)
            self._cold_results.clear()
        super()._go_on()

    def _watch(self) -> None:
        for replica in self._plain:
            replica.data_waiters.add(self._on_move)
        for projected, wait in self._waits.items():
            projected.wait(self._on_move, wait)

    def _unwatch(self) -> None:
        for replica in self._plain:
            replica.data_waiters.discard(self._on_move)
        for projected in self._waits:
            projected.stop_waiting(self._on_move)


def _projected(replica: Replica, projection: Projection) -> ProjectedLog:
    try:
        return replica.projections.get(projection)
    except ConfigError as error:
        raise BrokerError(ErrorCode.unknown_server_error, f"{replica.name}: {error}") from error
