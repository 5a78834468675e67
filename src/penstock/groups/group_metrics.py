"""Metrics of the group coordinator. They are computed on the event loop, so their number is limited."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest

from penstock.errors import BrokerError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group import GroupKind, GroupState
from penstock.groups.shard import GroupShard
from penstock.model import TopicPartition
from penstock.observability.metrics import BrokerMetrics, GroupLag
from penstock.replication.replica_manager import ReplicaManager


class GroupMetrics:
    def __init__(self, groups: GroupCoordinator, replicas: ReplicaManager, max_groups: int) -> None:
        self._groups = groups
        self._replicas = replicas
        self._max_groups = max_groups

    def show(self, metrics: BrokerMetrics) -> None:
        counts = self._groups.counts
        metrics.group_states = self._states
        metrics.group_lags = self._lags
        metrics.add_gauge("penstock_group_members", "Members of consumer groups.", self._members)
        metrics.add_counter(
            "penstock_offset_commits", "Commits of offsets that became durable.", lambda: counts.commits
        )
        metrics.add_counter(
            "penstock_group_load_seconds",
            "Time spent on loading groups from __consumer_offsets.",
            lambda: self._groups.load_seconds,
        )
        metrics.add_counter(
            "penstock_group_unknown_records",
            "Records of __consumer_offsets that could not be decoded and were skipped.",
            lambda: self._groups.unknown_records,
        )

    def _states(self) -> dict[str, int]:
        states = dict.fromkeys((state.value for state in GroupState if state is not GroupState.DEAD), 0)
        for shard in self._groups.shards:
            for group in shard.groups.values():
                states[group.state] = states.get(group.state, 0) + 1
        return states

    def _members(self) -> int:
        return sum(group.member_count for shard in self._groups.shards for group in shard.groups.values())

    def _lags(self) -> Iterator[GroupLag]:
        shown = nsmallest(
            self._max_groups,
            ((group_id, shard.partition) for shard in self._groups.shards for group_id in shard.groups),
        )
        shards = {shard.partition: shard for shard in self._groups.shards}
        for group_id, index in shown:
            # A group may be deleted while the metrics are computed in slices. A share group has no committed
            # offsets.
            group = shards[index].groups.get(group_id)
            if group is not None and group.kind is not GroupKind.SHARE:
                yield from self._lags_of(group_id, shards[index])

    def _lags_of(self, group_id: str, shard: GroupShard) -> Iterator[GroupLag]:
        """Consumer lag of every partition of the topics that the group reads, which are the topics with a
        subscribed member or a committed offset. Without a committed offset the lag counts from the log start
        offset.
        """
        image = self._groups.image
        committed = shard.offsets.fetch(group_id, None, image)
        for name in sorted(shard.groups[group_id].topics | {partition.topic for partition in committed}):
            topic = image.topics.get(name)
            for number in range(len(image.shown(topic).partitions) if topic is not None else 0):
                try:
                    replica = self._replicas.get(image.views.get(name, name), number)
                except BrokerError:
                    continue  # Another broker has the replica.
                offset = committed.get(TopicPartition(name, number))
                reached = replica.log.log_start_offset if offset is None else offset.offset
                yield GroupLag(group_id, name, number, max(0, replica.log.high_watermark - reached))
