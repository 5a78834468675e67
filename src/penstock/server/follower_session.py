"""Fetch session of one follower on one connection: the partitions it fetches, and those of them that have news for it.

A partition that was in a response with records or an error leaves the session until the follower names it again, with
its new offset. So the cost of a request depends on the number of partitions with news, not on the number that the
follower replicates. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model import BrokerEpoch, BrokerId, TopicId
from penstock.replication.replica import Replica

FollowedKey = tuple[TopicId, int]


@dataclass(slots=True, eq=False)
class FollowedPartition:
    key: FollowedKey
    offset: int
    leader_epoch: int
    fetched_epoch: int
    flushed: int
    max_bytes: int
    log_start: int = -1
    is_damaged: bool = False
    replica: Replica | None = None
    told_high_watermark: int = -1
    told_log_start: int = -1


class FollowerSession:
    def __init__(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, session_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.id = session_id
        self.epoch = 1
        """Session epoch that the next request must have."""
        self.told_ms = 0
        """Monotonic time in milliseconds at which the follower was last sent the changed high watermarks of partitions
        without new records.
        """
        self.moved: dict[FollowedPartition, None] = {}
        """Partitions to check for the next response: named in a request, or changed since the last check."""
        self.held: dict[FollowedPartition, None] = {}
        """Partitions whose further records a replication throttle holds back at the moment."""
        self.wake: Callable[[], None] | None = None
        self.finish: Callable[[], None] | None = None
        """Callbacks of a waiting request: `wake` checks the partitions again, `finish` ends the wait because the next
        request has come.
        """
        self._waiting: dict[FollowedKey, FollowedPartition] = {}
        self._by_replica: dict[Replica, FollowedPartition] = {}

    def name(self, partition: FollowedPartition) -> None:
        self.forget(partition.key)
        self._waiting[partition.key] = partition
        self.moved[partition] = None

    def put_back(self, partition: FollowedPartition) -> None:
        """Return a partition without news to the session, unless the follower has named it again meanwhile."""
        if partition.key not in self._waiting:
            self.name(partition)

    def forget(self, key: FollowedKey) -> None:
        partition = self._waiting.pop(key, None)
        if partition is not None:
            self.moved.pop(partition, None)
            self.held.pop(partition, None)
            if partition.replica is not None:
                self._by_replica.pop(partition.replica, None)
                partition.replica.listeners.pop(self, None)

    def watch(self, partition: FollowedPartition, replica: Replica) -> None:
        """Check the partition again whenever its replica changes."""
        partition.replica = replica
        self._by_replica[replica] = partition
        replica.listeners[self] = None

    def release(self) -> None:
        """Check the throttled partitions again."""
        self.moved.update(self.held)
        self.held.clear()

    def untold(self) -> list[FollowedPartition]:
        """Partitions of the session whose current high watermark or log start offset the follower has not been sent
        yet.
        """
        return [
            partition
            for partition in self._waiting.values()
            if (replica := partition.replica) is not None
            and replica.partition.is_leader
            and (
                replica.log.high_watermark != partition.told_high_watermark
                or replica.log.log_start_offset != partition.told_log_start
            )
        ]

    def on_replica_change(self, replica: Replica) -> None:
        partition = self._by_replica.get(replica)
        if partition is not None:
            self.moved[partition] = None
            if self.wake is not None:
                self.wake()

    def end_wait(self) -> None:
        """End the waiting request because the follower has sent its next one. The response has none of the partitions
        that the next request names.
        """
        finish, self.finish, self.wake = self.finish, None, None
        if finish is not None:
            finish()

    def close(self) -> None:
        for key in tuple(self._waiting):
            self.forget(key)
