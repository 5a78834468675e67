"""Interfaces of the services that `ShareLeader` uses, and of the fetches that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.observability.logs import Logger
from penstock.queues.batch_notes import RecordBodies
from penstock.queues.dead_letter_record import Origin
from penstock.queues.share_settings import GroupShareSettings
from penstock.queues.state_client import ShareStateClient
from penstock.records.building import NewRecord
from penstock.state_log.timers import Timers
from penstock.threads import Threads

if TYPE_CHECKING:
    from penstock.queues.share_leader import ShareLeader


class WaitingFetch(Protocol):
    """A fetch that waits for records of one or several share-partitions."""

    def serve(self) -> None:
        """Try to acquire records. A fetch that gets none continues to wait and keeps its place."""


class LetterSink(Protocol):
    """The dead-letter topics of the cluster."""

    async def producer_id(self) -> int:
        """Allocate a producer id."""

    async def write(
        self, topic: str, source: Origin, records: list[NewRecord], producer_id: int, sequence: int
    ) -> None:
        """Send a batch once; BrokerError if it was not written or the outcome is unknown."""


class LeaderContext(Protocol):
    """Services of `SharePartitions` that its share-partitions use."""

    timers: Timers
    states: ShareStateClient
    threads: Threads
    logger: Logger
    letters: LetterSink
    bodies: RecordBodies

    def wall_ms(self) -> int: ...

    def settings_of(self, group_id: str) -> GroupShareSettings: ...

    def closed(self, leader: ShareLeader) -> None:
        """Remove a share-partition that has closed: it was fenced, lost the leadership or could not be loaded."""
