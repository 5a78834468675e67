"""The faults that a cluster promises to survive: whether a process, the memory of a machine or a replica may be lost
now.

A replica is lost when its disk was emptied, restored to an earlier copy or damaged; every partition keeps
a complete one. With `durability=fsync` all machines may lose power. With `auto` and `os` not all machines
of an in-sync set may; with `auto` they may where the set is one machine, because its brokers have fsynced
what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.cluster import znodes
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage


class Survival:
    def __init__(self, stage: Stage, durability: str) -> None:
        self._stage = stage
        self._durability = durability
        self.damaged_places: Callable[[], dict[Place, BrokerHost]] = dict
        """Returns the partitions with a damaged replica, and the broker that has it."""

    def may_crash(self, member: BrokerHost) -> bool:
        """Whether the process may end: that loses nothing, unless an fsync has failed."""
        return not member.is_suspect or self.may_lose_power(member)

    def may_lose_power(self, member: BrokerHost) -> bool:
        """Whether the unsynced data of all brokers on the machine may be lost: it is not committed, or others
        have it.
        """
        if self._durability == "fsync":
            return True
        lost = member.machine_members
        return self._spares_damaged(lost) and all(
            self._others(lost, state) or self._is_durable(lost, place, state)
            for place, state in self._sets_of(lost).items()
        )

    def may_lose_copy(self, member: BrokerHost) -> bool:
        """Whether the whole disk may be lost: of every partition another replica is complete, and no write in flight
        makes this broker the only one in sync.
        """
        lost = (member,)
        return (
            not member.may_write_state
            and self._spares_damaged(lost)
            and all(self._others(lost, state) for state in self._sets_of(lost).values())
        )

    def is_any_suspect(self) -> bool:
        """Whether the disk of some broker may lack records: the others have to stay, or that broker may be
        left alone in sync.
        """
        return self._durability != "fsync" and any(member.is_suspect for member in self._stage.members)

    def _spares_damaged(self, lost: Sequence[BrokerHost]) -> bool:
        """Whether no replica is lost that a damaged one must be repaired from."""
        return all(
            holder in lost or not self._holds(lost, place) for place, holder in self.damaged_places().items()
        )

    def _holds(self, members: Sequence[BrokerHost], place: Place) -> bool:
        state = self._stage.history.now.get(place)
        return state is not None and any(member.node_id in state.replicas for member in members)

    def _is_durable(self, lost: Sequence[BrokerHost], place: Place, state: znodes.PartitionNode) -> bool:
        """Whether the in-sync set is one machine that has fsynced, before its leader recorded that set or
        since.
        """
        members = [member for member in lost if member.node_id in state.isr]
        if len(members) < len(state.isr) or self._durability == "os":
            return False
        writer = self._stage.history.left_alone_by.get(place)
        return (
            writer is None
            or any(writer.startswith(f"{member.host.name}/") for member in lost)
            or all(_has_fsynced(member, place) for member in members)
        )

    def _sets_of(self, members: Sequence[BrokerHost]) -> dict[Place, znodes.PartitionNode]:
        """Return the partitions of which one of the brokers has a complete replica, or a last resort."""
        nodes = {member.node_id for member in members}
        states = self._stage.history.now.items()
        return {
            place: state
            for place, state in states
            if nodes.intersection((*_complete(state), *state.last_resort))
        }

    def _others(self, lost: Sequence[BrokerHost], state: znodes.PartitionNode) -> list[BrokerHost]:
        """Return the other complete replicas."""
        members = [self._stage.member(node_id) for node_id in _complete(state)]
        return [member for member in members if member not in lost and not member.is_suspect]


def _complete(state: znodes.PartitionNode) -> tuple[int, ...]:
    """Return the replicas with every committed record: the in-sync set and the eligible leaders recorded
    beside it.
    """
    return (*state.isr, *state.eligible)


def _has_fsynced(member: BrokerHost, place: Place) -> bool:
    return any(
        (replica.name.topic, replica.name.partition) == place
        and replica.log.flushed_offset == replica.log.log_end_offset
        for replica in (member.replicas() if member.is_serving else ())
    )
