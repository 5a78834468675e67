"""Checks of partitions that go: how each one is sealed and removed, and what its log takes between.

A partition is sealed when no transaction is open in it and its records are committed. From then on no leader, not even
a replaced one, commits anything but transaction markers. The log ends where its removal is recorded.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.cluster import znodes
from penstock.cluster.image import PartitionPhase
from penstock.errors import InvalidBatch, StorageError
from penstock.model import Offset
from penstock.records.iteration import read_batches
from penstock.replication.replica import Replica
from penstock.storage.log import Log
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.stage import Stage

_MAX_BYTES = 1 << 20


class SealedPartitions:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._history = stage.history
        self._unchecked: list[tuple[Replica, Offset, Offset]] = []
        """Replicas of leaders that have just sealed a partition, each with its high watermark and log end offset."""
        self._ends: dict[Place, Offset] = {}
        """Log end offset of the leader of each sealed partition, from when it was sealed."""
        self._history.on_phase = self.on_phase
        self._history.on_removal = self.on_removal

    def on_phase(self, place: Place, state: znodes.PartitionNode) -> None:
        """Check a partition at the moment at which a new phase is recorded."""
        if state.phase < PartitionPhase.SEALED:
            self._ends.pop(place, None)
        replica = self._leader(place, state)
        if state.phase != PartitionPhase.SEALED or replica is None:
            return
        log = replica.log
        start = log.producers.unstable.first_open()
        if start is not None:
            message = f"it is sealed while a transaction is open from offset {start} on"
            self._history.violate("sealed transaction", place, message)
        self._ends[place] = log.log_end_offset
        self._unchecked.append((replica, log.high_watermark, log.log_end_offset))

    def on_removal(self, place: Place, state: znodes.PartitionNode, log_end: int) -> None:
        self._ends.pop(place, None)
        replica = self._leader(place, state)
        if replica is None:
            return
        log = replica.log
        if log.log_end_offset != log_end:
            message = f"it is removed with log end offset {log_end}, which is {log.log_end_offset}"
            self._history.violate("removal", place, message)
        if state.phase == PartitionPhase.SEALED and log.log_start_offset < log_end:
            message = f"it is removed although its records from {log.log_start_offset} on have not expired"
            self._history.violate("removal", place, message)

    def _leader(self, place: Place, state: znodes.PartitionNode) -> Replica | None:
        """Replica of the recorded leader, if it knows that it leads."""
        if not self._stage.leads(state.leader, *place):
            return None
        replicas = self._stage.member(state.leader).replicas()
        return next(replica for replica in replicas if _place(replica) == place)

    def look(self) -> None:
        unchecked, self._unchecked = self._unchecked, []
        for replica, high_watermark, log_end in unchecked:
            uncommitted = _first_record(replica.log, high_watermark, log_end)
            if uncommitted is not None:
                message = f"{replica.name} was sealed before its record at {uncommitted} was committed"
                raise InvariantViolated("sealed records", message)
        for member in self._stage.members if self._ends else ():
            for replica in member.replicas() if member.is_serving else ():
                if replica.partition.is_leader and _place(replica) in self._ends:
                    self._check_growth(member.node_id, replica, self._ends[_place(replica)])

    def _check_growth(self, node_id: int, replica: Replica, sealed_end: Offset) -> None:
        taken = _first_record(replica.log, sealed_end, replica.log.high_watermark)
        if taken is not None:
            message = f"{node_id} has taken a record at {taken} after {replica.name} was sealed"
            raise InvariantViolated("sealed log", message)


def _first_record(log: Log, start: Offset, end: Offset) -> Offset | None:
    """Offset of the first batch between the offsets that is no transaction marker; None where there is none."""
    position = max(start, log.log_start_offset)
    with suppress(InvalidBatch, StorageError):  # other checks find damage
        while position < min(end, log.log_end_offset):
            found = log.read(position, _MAX_BYTES, below=end, at_least_one=True, wait=True).read()
            for header, _ in read_batches(memoryview(found)):
                if not header.is_control and header.next_offset > start:
                    return Offset(header.base_offset)
                position = Offset(header.next_offset)
            if not found:
                break
    return None


def _place(replica: Replica) -> Place:
    return replica.name.topic, replica.name.partition
