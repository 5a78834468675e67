"""Checks inside of the brokers that serve simulated share groups, for what no member can see."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import ACQUIRED, AVAILABLE
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.share_model import ShareModel
from simulation.scenarios.stage import Stage
from simulation.shares.share_group import ShareGroup
from simulation.shares.share_order import OrderWatch


class ShareInspector:
    def __init__(self, stage: Stage, groups: Sequence[ShareGroup], *, is_freed: bool = False) -> None:
        """`is_freed` says that the topic has `retention.acknowledged`."""
        self._stage = stage
        self._groups = groups
        self._is_freed = is_freed
        self._kept: dict[tuple[ShareModel, Place], int] = {}
        """Log start that was checked last."""
        self._violations: list[InvariantViolated] = []
        """Violations of the order of delivery since the start."""
        self._seen: dict[ShareLeader, tuple[int, int, int]] = {}
        """Start offset, number of locks and their limit at the last look."""

    def look(self) -> None:
        if self._violations:
            raise self._violations[0]
        for group in self._groups:
            if group.topic.id is None:
                continue
            if self._is_freed:
                self._check_storage(group)
            for place, leader in group.leaders():
                if leader.partition is not None and place in group.model.places:
                    self._check(group, place, leader, leader.partition)

    def _check(self, group: ShareGroup, place: Place, leader: ShareLeader, partition: SharePartition) -> None:
        known = group.model.places[place]
        known.leaders.add(leader)
        known.loaded.setdefault(leader.leader_epoch, self._stage.world.loop.time())
        what = f"{group.model.group} {place} at epoch {leader.leader_epoch}"
        first_look = leader not in self._seen
        if first_look:
            OrderWatch(leader, partition, what, self._violations.append)
        start, locks, limit = self._seen.get(leader, (0, 0, 0))
        if first_look:
            start = group.model.on_loaded(place, leader, _state_epoch(leader), partition.start_offset)
        max_locks = partition.settings.max_locks
        if partition.start_offset < start:
            raise InvariantViolated("Q5", f"{what}: start {partition.start_offset} after {start}")
        if partition.acquired > max_locks == limit and partition.acquired > locks and not first_look:
            raise InvariantViolated("Q6", f"{what}: {partition.acquired} locks, {max_locks} are allowed")
        self._seen[leader] = partition.start_offset, partition.acquired, max_locks
        self._check_counts(what, partition)
        self._check_holds(group, place, leader, partition)
        if leader not in known.stale:
            self._check_below(group, place, range(start, partition.start_offset), what)

    def _check_storage(self, group: ShareGroup) -> None:
        """No record is deleted that the group has not settled."""
        for place in group.model.places:
            starts = [
                replica.log.log_start_offset
                for member in self._stage.members
                if member.is_serving and member._broker is not None
                for replica in member._broker._context.replicas
                if (replica.name.topic, replica.name.partition) == (group.topic.source, place[1])
            ]
            log_start = max(starts, default=0)
            known = group.model, place
            first = max(self._kept.get(known, 0), group.deleted_before(place))
            self._kept[known] = max(log_start, first)
            if log_start <= first or not group.keeps_storage(place, log_start):
                continue
            for offset in group.topic.written.get(place, set()).intersection(range(first, log_start)):
                if not group.model.is_done(place, offset):
                    what = f"{group.model.group} {place}: {offset} is deleted and not settled"
                    raise InvariantViolated("unsettled storage", what)

    def _check_below(self, group: ShareGroup, place: Place, offsets: range, what: str) -> None:
        """The start offset is at or below the first unsettled record."""
        written = group.topic.written.get(place, set())
        deleted_before = group.deleted_before(place)
        for offset in offsets[max(0, deleted_before - offsets.start) :]:
            if offset in written and not group.model.is_done(place, offset):
                raise InvariantViolated("Q5", f"{what}: the start is above {offset}, which is not settled")

    @staticmethod
    def _check_holds(group: ShareGroup, place: Place, leader: ShareLeader, partition: SharePartition) -> None:
        """A record that a member certainly holds is locked for it."""
        log_start = leader.replica.log.log_start_offset
        for offset, delivery in group.model.still_held(place):
            if delivery.grip is None or delivery.grip.leader is not leader or offset < log_start:
                continue
            ranges = partition._ranges
            found = ranges.all[ranges.place(offset)] if partition.start_offset <= offset else None
            if found is None or found.state != ACQUIRED or found.member != delivery.member:
                raise InvariantViolated(
                    "Q3", f"{place} {offset} of {delivery.member} until {delivery.until_s} is {found}"
                )

    @staticmethod
    def _check_counts(what: str, partition: SharePartition) -> None:
        """The counts that limit locks are right."""
        ranges = partition._ranges.all
        acquired = sum(len(each) for each in ranges if each.state == ACQUIRED)
        available = sum(len(each) for each in ranges if each.state == AVAILABLE)
        if (acquired, available) != (partition.acquired, partition.available):
            raise InvariantViolated(
                "Q6",
                f"{what}: {partition.acquired} acquired, {partition.available} available, not {ranges}",
            )


def _state_epoch(leader: ShareLeader) -> int:
    assert leader._writer is not None
    return leader._writer._epochs[0]
