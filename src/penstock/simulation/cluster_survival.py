"""What a cluster promises to survive: whether the nemesis may take a process, a machine's memory or a copy.

A copy is lost when its disk was emptied, restored to an earlier state or damaged. Every in-sync set keeps one whole
copy. With `durability=fsync` all machines may lose their power; with `auto` and `os` not those of all members of an
in-sync set, except, with `auto`, where the set is one machine: its brokers have fsynced what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.cluster import znodes
from penstock.simulation.cluster_member import ClusterMember
from penstock.simulation.cluster_stage import ClusterStage
from penstock.simulation.partition_history import Place


class Survival:
    def __init__(self, stage: ClusterStage, durability: str) -> None:
        self._stage = stage
        self._durability = durability
        self.damaged_places: Callable[[], dict[Place, ClusterMember]] = dict
        """Partitions of which one copy is damaged, and by whom it is held."""

    def may_crash(self, member: ClusterMember) -> bool:
        """Whether its process may end: that costs nothing, unless an fsync has failed."""
        return not member.is_suspect or self.may_lose_power(member)

    def may_lose_power(self, member: ClusterMember) -> bool:
        """Whether unsynced data of all brokers on the machine may go: it was promised to nobody, or others have it."""
        if self._durability == "fsync":
            return True
        lost = member.housemates
        return self._spares_damaged(lost) and all(
            self._others(lost, state) or self._is_durable(lost, place, state)
            for place, state in self._sets_of(lost).items()
        )

    def may_lose_copy(self, member: ClusterMember) -> bool:
        """Whether everything on its disk may be gone: of every partition another replica is complete."""
        lost = (member,)
        return self._spares_damaged(lost) and all(
            self._others(lost, state) for state in self._sets_of(lost).values()
        )

    def is_anybody_suspect(self) -> bool:
        """Then the others had better stay: it may be left alone before its error comes."""
        return self._durability != "fsync" and any(member.is_suspect for member in self._stage.members)

    def _spares_damaged(self, lost: Sequence[ClusterMember]) -> bool:
        """Whether no copy that a damaged one must be repaired from is taken."""
        return all(
            holder in lost or not self._holds(lost, place) for place, holder in self.damaged_places().items()
        )

    def _holds(self, members: Sequence[ClusterMember], place: Place) -> bool:
        state = self._stage.history.now.get(place)
        return state is not None and any(member.node_id in state.replicas for member in members)

    def _is_durable(self, lost: Sequence[ClusterMember], place: Place, state: znodes.PartitionNode) -> bool:
        """Whether the in-sync set is one machine that has fsynced: before its leader wrote that set, or since."""
        members = [member for member in lost if member.node_id in state.isr]
        if len(members) < len(state.isr) or self._durability == "os":
            return False
        writer = self._stage.history.left_alone_by.get(place)
        return (
            writer is None
            or any(writer.startswith(f"{member.host.name}/") for member in lost)
            or all(_has_fsynced(member, place) for member in members)
        )

    def _sets_of(self, members: Sequence[ClusterMember]) -> dict[Place, znodes.PartitionNode]:
        """The partitions of which one of them is a complete replica, or a last resort."""
        nodes = {member.node_id for member in members}
        states = self._stage.history.now.items()
        return {
            place: state
            for place, state in states
            if nodes.intersection((*_complete(state), *state.last_resort))
        }

    def _others(self, lost: Sequence[ClusterMember], state: znodes.PartitionNode) -> list[ClusterMember]:
        """The other complete replicas."""
        members = [self._stage.member(node_id) for node_id in _complete(state)]
        return [member for member in members if member not in lost and not member.is_suspect]


def _complete(state: znodes.PartitionNode) -> tuple[int, ...]:
    """The replicas with every committed record: the in-sync set, and the eligible leaders recorded beside it."""
    return (*state.isr, *state.eligible)


def _has_fsynced(member: ClusterMember, place: Place) -> bool:
    return any(
        (replica.name.topic, replica.name.partition) == place
        and replica.log.flushed_offset == replica.log.log_end_offset
        for replica in (member.replicas() if member.is_serving else ())
    )
