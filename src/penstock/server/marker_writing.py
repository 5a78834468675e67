"""Writing of transaction markers to partitions that this broker leads, for its own transaction coordinator and for
others (WriteTxnMarkers).

A marker is complete when it is committed. A marker that is already in the log is not written again. While a partition
is under min ISR, its markers are refused, as in Kafka, and the coordinator sends them again. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from penstock.clock import Clock
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import BrokerId, TopicPartition
from penstock.records.control import Marker
from penstock.replication.replica_manager import ReplicaManager
from penstock.transactions.transaction import VERSION_2

Done = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class Writing:
    """A marker that is being written to several partitions."""

    __slots__ = ("_done", "_left", "codes")

    def __init__(self, partitions: Sequence[TopicPartition], done: Done) -> None:
        self.codes = dict.fromkeys(partitions, ErrorCode.request_timed_out)
        """Error code of each partition; REQUEST_TIMED_OUT until the outcome is known."""
        self._left = len(self.codes)
        self._done = done
        if not self._left:
            done(self.codes)

    def settle(self, partition: TopicPartition, code: ErrorCode) -> None:
        self.codes[partition] = code
        self._left -= 1
        if not self._left:
            self._done(self.codes)


class MarkerWriter:
    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._newest: dict[BrokerId, int] = {}
        """Number of the newest connection over which each broker has sent markers."""

    def check_connection(self, broker_id: BrokerId, number: int) -> None:
        """Refuse delayed markers on a connection that their coordinator has replaced by a newer one: they might end a
        later transaction. Raises ProtocolError.
        """
        if number < self._newest.get(broker_id, 0):
            raise ProtocolError("transaction markers arrived late: their coordinator uses a newer connection")
        self._newest[broker_id] = number

    async def write(
        self,
        marker: Marker,
        version: int,
        partitions: Sequence[TopicPartition],
        wait_seconds: float | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Write a marker to each partition, and return the error code of each. A marker that is not committed after
        `wait_seconds` gets REQUEST_TIMED_OUT.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writing = self.begin(marker, version, partitions, lambda _: _finish(written))
        if not written.done():
            await asyncio.wait([written], timeout=wait_seconds)
        return dict(writing.codes)

    def begin(
        self, marker: Marker, version: int, partitions: Sequence[TopicPartition], done: Done
    ) -> Writing:
        """Write a marker to each partition. `done` is called with the error code of each partition once all are known,
        possibly before this returns.

        `version` is the transaction version: from version 2 on, each transaction ends with a new producer epoch
        (KIP-890).
        """
        writing = Writing(partitions, done)
        for partition in partitions:
            self._append(marker, version, partition, writing)
        return writing

    def _append(self, marker: Marker, version: int, name: TopicPartition, writing: Writing) -> None:
        def finish(error: BrokerError | None) -> None:
            if error is None and replica.is_under_min_insync:
                error = BrokerError(ErrorCode.not_enough_replicas_after_append)
            writing.settle(name, ErrorCode.none if error is None else error.code)

        try:
            replica = self._replicas.get(name.topic, name.partition)
            if replica.is_under_min_insync:
                raise BrokerError(ErrorCode.not_enough_replicas)
            if name.topic == OFFSETS_TOPIC and replica.on_marker is None:
                # Groups that are being loaded from their log would miss records appended to it now.
                raise BrokerError(ErrorCode.coordinator_load_in_progress)
            is_epoch_new = version >= VERSION_2
            info = replica.append_marker(marker, is_epoch_new=is_epoch_new, now_ms=self._clock.now_ms())
            is_committed = replica.when_committed(info, finish)
        except BrokerError as error:
            finish(error)
            return
        if is_committed:
            finish(None)


def _finish(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)
