"""Transaction markers for partitions that this broker leads, of its own coordinator and of others
(WriteTxnMarkers).

A marker is done when it is committed. A marker that is in the log is not written again. While a partition
is under min ISR its markers are refused, as Kafka does, and the coordinator sends them again. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.clock import Clock
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import BrokerId, TopicPartition
from penstock.records.control import Marker
from penstock.replication.replica_manager import ReplicaManager
from penstock.transactions.transaction import VERSION_2


class MarkerWriter:
    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._newest: dict[BrokerId, int] = {}
        """Newest connection over which each broker has sent markers."""

    def check_connection(self, broker_id: BrokerId, number: int) -> None:
        """Refuse markers that arrive after their coordinator has sent them again over a newer connection: by
        now they might end another transaction. Raises ProtocolError.
        """
        if number < self._newest.get(broker_id, 0):
            raise ProtocolError("markers arrived late, over a connection that the coordinator has replaced")
        self._newest[broker_id] = number

    async def write(
        self,
        marker: Marker,
        version: int,
        partitions: Sequence[TopicPartition],
        wait_seconds: float | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Write a marker to each partition; the error of each. `version` is that of the transaction: since
        version 2 a marker has an epoch of its own. A marker that is not committed after `wait_seconds`
        gets REQUEST_TIMED_OUT.
        """
        # All markers are appended before any is waited for.
        outcomes = {partition: self._append(marker, version, partition) for partition in partitions}
        waiting = [outcome for outcome in outcomes.values() if not outcome.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_seconds)
        return {
            partition: outcome.result() if outcome.done() else ErrorCode.request_timed_out
            for partition, outcome in outcomes.items()
        }

    def _append(self, marker: Marker, version: int, name: TopicPartition) -> asyncio.Future[ErrorCode]:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def finish(error: BrokerError | None) -> None:
            if error is None and replica.is_under_min_insync:
                error = BrokerError(ErrorCode.not_enough_replicas_after_append)
            if not done.done():
                done.set_result(ErrorCode.none if error is None else error.code)

        now_ms = self._clock.now_ms()
        try:
            replica = self._replicas.get(name.topic, name.partition)
            if replica.is_under_min_insync:
                raise BrokerError(ErrorCode.not_enough_replicas)
            if name.topic == OFFSETS_TOPIC and replica.on_marker is None:
                # Groups that are being loaded from their log would miss records appended to it now.
                raise BrokerError(ErrorCode.coordinator_load_in_progress)
            info = replica.append_marker(marker, is_epoch_new=version >= VERSION_2, now_ms=now_ms)
            if replica.when_committed(info, finish):
                finish(None)
        except BrokerError as error:
            finish(error)
        return done
