"""Lookups by key (FetchByKey) of one connection.

Requests add lookups, and a result is sent in the response to whichever request waits when the result is ready. At most
`MAX_FOUND_BYTES` of results are held for a slow client: a lookup beyond that is put back, and repeated after the client
has received results. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.replication.keyed_log import KeyedLog, KeyWait
from penstock.replication.replica import Replica
from penstock.server.long_polls import LongPolls
from penstock.storage.keys.lookup import KeyQuery, KeyRecords
from penstock.wire.fetch_by_key import KeyLookup, KeyResult, encode_fetch_by_key_response

MAX_LOOKUPS = 20_000
"""Maximum number of open lookups of one connection."""
MAX_RECORDS = 10_000
MAX_BYTES = 1024 * 1024
"""Maximum size in bytes of the records in one result; a single record may be larger."""
MAX_WAIT_MS = 300_000
MAX_FOUND_BYTES = 8 * 1024 * 1024
"""Maximum size in bytes of the results that are held for a slow client."""

_CHECKS_PER_TURN = 200

FindReplica = Callable[[KeyLookup], Replica]
"""Function that returns the replica for a lookup. It raises BrokerError if this broker does not lead the partition or
the client may not read it.
"""


@dataclass(slots=True)
class _Open:
    """Lookup that has no result yet."""

    lookup: KeyLookup
    find_replica: FindReplica
    keyed: KeyedLog | None = None
    wait: KeyWait | None = None

    def give_up(self) -> None:
        if self.keyed is not None and self.wait is not None:
            self.keyed.give_up(self.wait)


class KeySession:
    def __init__(self, clock: Clock, long_polls: LongPolls) -> None:
        self._clock = clock
        self._long_polls = long_polls
        self._open: dict[int, _Open] = {}
        self._put_back: dict[int, _Open] = {}
        self._found: list[KeyResult] = []
        self._found_bytes = 0
        self._later: PendingResponse | None = None
        self._correlation_id = 0
        self._is_due = False
        long_polls.parked.add(self.check_rights)

    def start(self, lookups: Iterable[KeyLookup], find_replica: FindReplica) -> None:
        for lookup in lookups:
            if lookup.id in self._open or len(self._open) >= MAX_LOOKUPS:
                self._add(KeyResult(lookup.id, ErrorCode.invalid_request))
            else:
                opened = self._open[lookup.id] = _Open(lookup, find_replica)
                self._look_up(opened)

    def give_up(self, lookup_ids: Iterable[int]) -> None:
        for lookup_id in lookup_ids:
            opened = self._open.pop(lookup_id, None)
            self._put_back.pop(lookup_id, None)
            if opened is not None:
                opened.give_up()

    def close(self) -> None:
        self._long_polls.parked.discard(self.check_rights)
        self.give_up(list(self._open))

    def check_rights(self) -> None:
        """Refuse open lookups that the client may not make any more, checking a few in each turn of the loop."""
        self._check_some(deque(self._open.values()))

    def _check_some(self, unchecked: deque[_Open]) -> None:
        for _ in range(min(len(unchecked), _CHECKS_PER_TURN)):
            opened = unchecked.popleft()
            if self._open.get(opened.lookup.id) is opened:
                self._check_right(opened)
        if unchecked:
            self._long_polls.serve(partial(self._check_some, unchecked))

    def _check_right(self, opened: _Open) -> None:
        try:
            opened.find_replica(opened.lookup)
        except BrokerError as error:
            if error.code is ErrorCode.topic_authorization_failed:
                opened.give_up()
                self._put_back.pop(opened.lookup.id, None)
                self._finish(opened, KeyResult(opened.lookup.id, error.code))

    def answer(self, correlation_id: int) -> Answer:
        """Respond to a request with the ready results, or later when there are some. An earlier request that still
        waits gets its response now.
        """
        earlier, self._later = self._later, None
        if earlier is not None:
            # Deferred: the connection is still reading the request that ends the wait, and would miss the response.
            asyncio.get_running_loop().call_soon(_resolve, earlier, self._take_found())
        self._correlation_id = correlation_id
        if self._found or not self._open:
            return self._take_found()
        self._later = PendingResponse()  # no barrier: the next request ends the wait of this one
        return self._later

    def _look_up(self, opened: _Open) -> None:
        lookup = opened.lookup
        try:
            replica = opened.find_replica(lookup)
        except BrokerError as error:
            self._finish(opened, KeyResult(lookup.id, error.code))
            return
        assert replica.keyed is not None
        limits = min(lookup.max_records, MAX_RECORDS), min(lookup.max_bytes, MAX_BYTES)
        query = KeyQuery(lookup.key, Offset(max(0, lookup.from_offset)), *limits, self._clock.now_ms())
        wait_ms = max(0, min(lookup.max_wait_ms, MAX_WAIT_MS))
        opened.keyed = replica.keyed
        opened.wait = replica.keyed.look_up(query, wait_ms, partial(self._on_records, opened, replica))

    def _on_records(self, opened: _Open, replica: Replica, records: KeyRecords | BrokerError) -> None:
        lookup_id = opened.lookup.id
        if self._open.get(lookup_id) is not opened:
            return
        if isinstance(records, BrokerError):
            self._finish(opened, KeyResult(lookup_id, records.code))
        elif records.batches and self._found_bytes > MAX_FOUND_BYTES:
            self._put_back[lookup_id] = opened
        else:
            result = KeyResult(
                lookup_id,
                ErrorCode.none if records.damage is None else ErrorCode.corrupt_message,
                replica.log.high_watermark,
                records.log_start_offset,
                records.next_offset,
                records.is_complete,
                b"".join(records.batches),
            )
            self._finish(opened, result)

    def _finish(self, opened: _Open, result: KeyResult) -> None:
        del self._open[opened.lookup.id]
        self._add(result)

    def _add(self, result: KeyResult) -> None:
        self._found.append(result)
        self._found_bytes += len(result.records)
        if self._later is not None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._on_due)

    def _on_due(self) -> None:
        """Respond once, with all results of this turn of the loop."""
        self._is_due = False
        later = self._later
        if later is not None and self._found:
            self._later = None
            _resolve(later, self._take_found())

    def _take_found(self) -> Parts:
        found, self._found, self._found_bytes = self._found, [], 0
        again, self._put_back = self._put_back, {}
        for opened in again.values():
            self._look_up(opened)
        return [encode_fetch_by_key_response(self._correlation_id, found)]


def _resolve(later: PendingResponse, parts: Parts) -> None:
    if not later.is_done:
        later.resolve(parts)
