"""Plain Produce requests that wait until their batch is committed, with one timer for all requests of a route.

All requests of a route have the same timeout, so they are in the order of their deadlines. The timer is not cancelled
when the last request gets its response; it ends when it fires and finds no request. Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, CutOff, ErrorCode
from penstock.net.response import PendingResponse
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.admission import ACKS_ALL
from penstock.replication.replica import Replica
from penstock.storage.log import AppendInfo
from penstock.wire.plain_produce import PlainResponses

DOUBT_SECONDS = 2.0
"""Minimum time in seconds that a producer waits before a leader that may have lost its leadership closes the
connection.
"""
_LOOKS_PER_DOUBT = 4


def not_committed_in_time() -> BrokerError:
    return BrokerError(
        ErrorCode.request_timed_out,
        "the records were stored, but not committed within the timeout of the request",
    )


class ProduceWait(PendingResponse):
    """Response to one request whose batch is appended but not committed yet."""

    __slots__ = (
        "_correlation_id",
        "_info",
        "_metrics",
        "_responses",
        "_waits",
        "deadline",
        "replica",
        "since",
    )

    def __init__(
        self,
        waits: ProduceWaits,
        responses: PlainResponses,
        correlation_id: int,
        replica: Replica,
        info: AppendInfo,
        metrics: BrokerMetrics,
    ) -> None:
        super().__init__()
        self.replica = replica
        self.since = 0.0
        self.deadline = 0.0
        self._waits = waits
        self._responses = responses
        self._correlation_id = correlation_id
        self._info = info
        self._metrics = metrics

    def on_commit(self, error: BrokerError | None) -> None:
        """Respond, unless the timeout of the request came first."""
        if self._waits.remove(self):
            self.respond(error)

    def respond(self, error: BrokerError | None) -> None:
        info = self._info
        if error is None:
            self.resolve(
                [
                    self._responses.encode(
                        self._correlation_id, info.base_offset, info.log_append_time_ms, info.log_start_offset
                    )
                ]
            )
        else:
            self._metrics.produce_failed(error.code)
            self.resolve([self._responses.encode_refusal(self._correlation_id, error, info.log_start_offset)])


class ProduceWaits:
    """Requests of one route that wait, in the order of their deadlines."""

    __slots__ = ("_acks", "_is_timed", "_seconds", "_waiting")

    def __init__(self, acks: int, timeout_ms: int) -> None:
        self._acks = acks
        self._seconds = max(timeout_ms, 0) / 1000
        self._waiting: dict[ProduceWait, None] = {}
        self._is_timed = False

    def add(self, wait: ProduceWait) -> None:
        loop = asyncio.get_running_loop()
        wait.since = loop.time()
        wait.deadline = wait.since + self._seconds
        self._waiting[wait] = None
        if not self._is_timed:
            self._look_later(loop)

    def remove(self, wait: ProduceWait) -> bool:
        """Remove a request. Returns False if it already has its response."""
        if wait not in self._waiting:
            return False
        del self._waiting[wait]
        return True

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        first = next(iter(self._waiting))
        self._is_timed = True
        loop.call_at(min(first.deadline, loop.time() + DOUBT_SECONDS / _LOOKS_PER_DOUBT), self._look)

    def _look(self) -> None:
        """Respond to requests whose timeout is over, and close the connections of those whose leader may have been
        replaced.
        """
        self._is_timed = False
        loop = asyncio.get_running_loop()
        now = loop.time()
        for wait in tuple(self._waiting):
            if now >= wait.deadline:
                if self.remove(wait):
                    # with acks=1 the append is enough
                    wait.respond(not_committed_in_time() if self._acks == ACKS_ALL else None)
            elif now - wait.since < DOUBT_SECONDS:
                break
            elif wait.replica.is_in_doubt and self.remove(wait):
                wait.fail(CutOff())
        if self._waiting and not self._is_timed:
            self._look_later(loop)
