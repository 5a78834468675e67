"""Writer of the markers of an ending transaction: sends them to the leaders of all its partitions, and
retries until all are written.

Markers for one broker share a request; markers for partitions of this broker need none. A partition of a
deleted topic needs no marker, but a partition that this broker does not know yet needs one. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from penstock.cluster.image import NO_LEADER
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import ErrorCode, PenstockError
from penstock.internal_client.broker_transactions import MarkersToWrite, PartitionErrors, write_txn_markers
from penstock.model import BrokerId, TopicPartition
from penstock.observability.logs import Logger
from penstock.records.control import Marker
from penstock.transactions.batching import Batches
from penstock.transactions.endings import Ending
from penstock.transactions.links import BrokerLinks

_SETTLED = frozenset(
    {
        ErrorCode.none,
        # The partition has seen a later epoch of this producer, which ended all earlier transactions.
        ErrorCode.invalid_producer_epoch,
    }
)

WriteHere = Callable[
    [Marker, int, Sequence[TopicPartition], Callable[[Mapping[TopicPartition, ErrorCode]], None]], object
]
"""Function that writes a marker, in this version of the transaction protocol, to partitions that this broker
leads. It calls back with the error of each partition when the marker is committed or refused in all of them.
"""


Written = tuple[Ending, tuple[TopicPartition, ...]]


_place = attrgetter("topic", "partition")


class Markers:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        links: BrokerLinks,
        write_here: WriteHere,
        logger: Logger,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._links = links
        self._write_here = write_here
        self._logger = logger
        self._batches: Batches[Written] = Batches(self._write)
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks that check whether partitions were deleted."""
        self._due: list[Ending] = []
        """Endings whose markers are written in the next turn."""

    def write(self, ending: Ending) -> None:
        """Write the markers of an ending transaction. Writing begins in the next turn of the loop, so that
        the client gets its response first.
        """
        if not self._due:
            asyncio.get_running_loop().call_soon(self._send_due)
        self._due.append(ending)

    def _send_due(self) -> None:
        due, self._due = self._due, []
        for ending in due:
            self._send_unless_abandoned(ending, ending.left)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._batches.close()
        self._links.close()

    def _send(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        image = self._metadata.image
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        unknown: list[TopicPartition] = []
        for partition in sorted(partitions, key=_place):
            state = image.partition(partition)
            if state is None:
                unknown.append(partition)
            else:
                by_leader.setdefault(state.leader, []).append(partition)
        if unknown or not by_leader:
            self._start(self._look_for(ending, unknown))
        for leader, led in by_leader.items():
            if leader == NO_LEADER:
                self._send_later(ending, led)
            elif leader == self._node_id:
                self._write_led(ending, led)
            else:
                self._batches.add(leader, (ending, tuple(led)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_for(self, ending: Ending, unknown: Sequence[TopicPartition]) -> None:
        """Complete the ending for partitions that were deleted. An unknown partition may instead be so new
        that only its leader knows it.
        """
        try:
            if unknown:
                await self._metadata.catch_up()
        except PenstockError as error:
            self._logger.error_rarely("topics of a transaction could not be looked up; retrying", error)
            self._send_later(ending, unknown)
            return
        image = self._metadata.image
        ending.settle([partition for partition in unknown if image.partition(partition) is None])
        known = [partition for partition in unknown if image.partition(partition) is not None]
        if known:
            self._send_unless_abandoned(ending, known)

    def _send_later(self, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        asyncio.get_running_loop().call_later(
            ending.next_pause_seconds(), self._send_unless_abandoned, ending, partitions
        )

    def _send_unless_abandoned(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        if not ending.is_abandoned:
            self._send(ending, partitions)

    def _write_led(self, ending: Ending, led: Sequence[TopicPartition]) -> None:
        """Write the marker to partitions that this broker leads."""
        try:
            self._write_here(ending.marker, ending.version, led, partial(self._on_written, ending, led))
        except Exception as error:  # noqa: BLE001 - whatever it is, transactions must not stay open for ever
            self._logger.error("transaction markers failed", error, leader=self._node_id)
            self._on_written(ending, led, {})

    async def _write(self, leader: BrokerId, all_written: list[Written]) -> None:
        """Send a request to write markers to the broker that leads their partitions."""
        wanted = [written for written in all_written if not written[0].is_abandoned]
        results: list[PartitionErrors] = [{} for _ in wanted]
        try:
            if wanted:
                results = await self._ask(leader, wanted)
        except (OSError, PenstockError, TimeoutError) as error:
            self._logger.error_rarely(
                "transaction markers could not be written; retrying", error, leader=leader
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, transactions must not stay open for ever
            self._logger.error("transaction markers failed", error, leader=leader)
        for (ending, led), result in zip(wanted, results, strict=True):
            self._on_written(ending, led, result)

    def _on_written(
        self, ending: Ending, led: Sequence[TopicPartition], result: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        settled = [partition for partition in led if result.get(partition) in _SETTLED]
        ending.settle(settled)
        unsettled = [partition for partition in led if partition not in settled]
        if unsettled and not ending.is_abandoned:
            self._send_later(ending, unsettled)

    async def _ask(self, leader: BrokerId, wanted: list[Written]) -> list[PartitionErrors]:
        markers = [MarkersToWrite(ending.marker, ending.version, led) for ending, led in wanted]
        return await self._links.send(leader, lambda connection: write_txn_markers(connection, markers))
