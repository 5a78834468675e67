"""Checks inside of every broker of a simulated cluster, for what no client can see.

A broker leads only in an epoch that was given to it; committed records are on every recorded member of the
in-sync set; the high watermark is never above the log end and never decreases in an epoch; in peace
replicas are equal.
"""

from __future__ import annotations

from uuid import UUID

from penstock.cluster import znodes
from penstock.errors import InvalidBatch
from penstock.model import Offset
from penstock.records.iteration import read_batches
from penstock.replication.replica import Replica
from simulation.checks.compacted_replicas import check_compacted
from simulation.checks.sealed_partitions import SealedPartitions
from simulation.faults.cluster_traits import COMPACTION
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

_MAX_BYTES = 1 << 20


class Inspector:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._sealed = SealedPartitions(stage)
        self._ids: dict[str, UUID] = {}
        self._committed: dict[Place, int] = {}
        self._high_watermarks: dict[tuple[Place, int, int], int] = {}
        self._states: dict[tuple[Place, int, int], znodes.PartitionNode | None] = {}
        """The recorded state at the last look, by partition, leader and leader epoch."""

    def expect(self, topic: str, index: int, *, committed: int) -> None:
        """Demand that everything below an offset is committed, whatever leaders know."""
        place = (topic, index)
        self._committed[place] = max(self._committed.get(place, 0), committed)

    def committed(self, place: Place) -> int:
        """Return the greatest high watermark that a leader of the partition ever had."""
        return self._committed.get(place, 0)

    def look(self) -> None:
        if self._stage.history.problem is not None:
            raise self._stage.history.problem
        self._sealed.look()
        serving = [
            (member, replica)
            for member in self._stage.members
            if member.is_serving
            for replica in member.replicas()
            if self._stage.history.topic_ids.get(replica.name.topic) == replica.topic_id
        ]
        self._forget_deleted()
        for member, replica in serving:
            if replica.partition.is_leader:
                self._check_leader(member, replica)
        for member, replica in serving:
            self._check_member(member, replica)

    def _forget_deleted(self) -> None:
        """Forget the offsets of deleted topics, which say nothing about a later topic with the name."""
        now = self._stage.history.topic_ids
        for topic in [topic for topic, known in self._ids.items() if now.get(topic) != known]:
            self._committed = {place: end for place, end in self._committed.items() if place[0] != topic}
            self._high_watermarks = {
                life: end for life, end in self._high_watermarks.items() if life[0][0] != topic
            }
        self._ids = dict(now)

    def _check_leader(self, member: BrokerHost, replica: Replica) -> None:
        place, partition = _place(replica), replica.partition
        given = self._stage.history.leader_of(place, partition.leader_epoch)
        if given is None:
            return  # the topic is deleted
        if given != member.node_id:
            raise _violation(
                "I10",
                replica,
                f"{member.node_id} leads in epoch {partition.leader_epoch}, which is {given}'s",
            )
        high_watermark = replica.log.high_watermark
        if high_watermark > replica.log.log_end_offset:
            raise _violation("I8", replica, f"{high_watermark} is above the end of the log")
        life = (place, member.node_id, partition.leader_epoch)
        if high_watermark < self._high_watermarks.get(life, 0):
            raise _violation("I8", replica, f"the high watermark went back to {high_watermark}")
        self._check_held(replica, self._high_watermarks.get(life), life)
        self._high_watermarks[life] = high_watermark
        self._committed[place] = max(self._committed.get(place, 0), high_watermark)

    def _check_held(self, replica: Replica, before: int | None, life: tuple[Place, int, int]) -> None:
        """Check that nothing is committed which a recorded eligible leader lacks.

        A leader may commit by an earlier state, if all members of that state have the records.
        """
        state, last = self._stage.partition(*life[0]), self._states.get(life)
        self._states[life] = state
        if state is None or state is not last or before is None or replica.log.high_watermark <= before:
            return
        if any(self._lacks(node_id, replica) for node_id in {*state.eligible, *state.last_resort}):
            raise _violation(
                "T15", replica, f"{replica.log.high_watermark} was committed under min ISR: {state}"
            )

    def _check_member(self, member: BrokerHost, replica: Replica) -> None:
        state = self._stage.partition(*_place(replica))
        if state is None or member.node_id not in state.isr:
            return
        committed, log_end = self._committed.get(_place(replica), 0), replica.log.log_end_offset
        if log_end < committed:
            raise _violation(
                "I11", replica, f"{member.node_id} is in sync and ends at {log_end}; {committed} is committed"
            )

    # --- peace

    def is_whole(self) -> bool:
        """Whether every replica is in sync and no reassignment is in progress."""
        return all(
            state.leader in state.isr and set(state.isr) == set(state.replicas) and not state.target
            for state in self._stage.history.now.values()
        )

    def _lacks(self, node_id: int, leader: Replica) -> bool:
        """Whether a replica ends below the high watermark of its leader, or its broker is not running."""
        held = (
            each
            for member in self._stage.members
            if member.node_id == node_id
            for each in member.replicas()
            if each.name == leader.name
        )
        replica = next(held, None)
        return replica is None or replica.log.log_end_offset < leader.log.high_watermark

    def unhealthy(self) -> str:
        return ", ".join(
            f"{topic}-{index}: {state}"
            for (topic, index), state in self._stage.history.now.items()
            if set(state.isr) != set(state.replicas) or state.leader not in state.isr or state.target
        )

    def check_equal(self) -> None:
        """Check that replicas are equal byte for byte up to the high watermark, from the greatest log start
        on: some replicas may lack records whose deletion was not acknowledged.

        Replicas of a compacted topic were compacted at different times: see `check_compacted`.
        """
        contents: dict[Place, tuple[int, bytes]] = {}
        starts: dict[Place, int] = {}
        for replica in (each for member in self._stage.members for each in member.replicas()):
            place = _place(replica)
            starts[place] = max(starts.get(place, 0), replica.log.log_start_offset)
        for member in self._stage.members:
            for replica in member.replicas():
                place = _place(replica)
                content = _content(replica, starts[place], self._committed.get(place, 0))
                node_id, known = contents.setdefault(place, (member.node_id, content))
                if COMPACTION in self._stage.traits and replica.log.config.compacts:
                    check_compacted(str(replica.name), known, content)
                elif known != content:
                    raise _violation("I9", replica, f"{node_id} and {member.node_id} have other bytes")


def _content(replica: Replica, start: int, end: int) -> bytes:
    log, parts = replica.log, []
    position = Offset(start)
    while position < end:
        found = log.read(position, _MAX_BYTES, below=Offset(end), at_least_one=True, wait=True)
        part = found.read()
        if not part:
            break
        parts.append(part)
        try:
            position = _end_of(part)
        except InvalidBatch as error:
            raise _violation("I9", replica, f"{replica.log.directory} from {position} on: {error}") from error
    return b"".join(parts)


def _end_of(batches: bytes) -> Offset:
    last = None
    for header, _ in read_batches(memoryview(batches)):
        last = header
    assert last is not None
    return Offset(last.next_offset)


def _place(replica: Replica) -> Place:
    return replica.name.topic, replica.name.partition


def _violation(invariant: str, replica: Replica, message: str) -> InvariantViolated:
    return InvariantViolated(invariant, f"{replica.name}: {message}")
