"""The recorded state of every partition, write by write, checked as it is written.

An epoch has one leader, epochs increase, and a leader comes from the in-sync set before it and is in the
one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from penstock.cluster import znodes
from penstock.cluster.image import PartitionPhase
from penstock.cluster.memory import MemoryEnsemble
from penstock.cluster.tree import PreparedWrite
from simulation.machine.process import PROCESS
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated

Place = tuple[str, int]

_NO_BROKER = -1
_NO_TOPIC = UUID(int=0)


class PartitionHistory:
    def __init__(self, trace: Trace, seconds: Callable[[], float]) -> None:
        self.now: dict[Place, znodes.PartitionNode] = {}
        """The recorded states."""
        self.topic_ids: dict[str, UUID] = {}
        self.left_alone_by: dict[Place, str] = {}
        """The process that recorded an in-sync set on one machine only."""
        self.machines: Mapping[int, str] = {}
        """The machine of each broker."""
        self.may_shrink = True
        """Whether a replica may leave the in-sync set while it stays a replica."""
        self.on_phase: Callable[[Place, znodes.PartitionNode], None] = lambda place, state: None
        """Called when a new phase of a partition is about to be recorded."""
        self.on_removal: Callable[[Place, znodes.PartitionNode, int], None] = lambda place, state, log_end: (
            None
        )
        """Called with the log end offset when the removal of a sealed partition is about to be recorded."""
        self.problem: InvariantViolated | None = None
        """The first violation; it is raised by the next look of the inspector, not in the process that wrote."""
        self._leaders: dict[tuple[Place, int], int] = {}
        self._in_sync: dict[Place, list[tuple[float, int]]] = {}
        """The sizes of the in-sync set, each with the time from which on it was recorded."""
        self._counts: dict[str, int] = {}
        """Partition counts of topics."""
        self._ended: dict[tuple[UUID, Place], int] = {}
        """Leader epochs of partitions that were removed while their topic stayed."""
        self._removed_ends: dict[tuple[UUID, Place], int] = {}
        """Log end offsets of these partitions."""
        self._trace = trace
        self._seconds = seconds

    def leader_of(self, place: Place, epoch: int) -> int | None:
        return self._leaders.get((place, epoch))

    def most_in_sync(self, place: Place, since: float) -> int:
        """Return the size of the largest in-sync set that was recorded at some moment since then."""
        sizes = self._in_sync.get(place, [])
        later = [size for begun, size in sizes if begun > since]
        return max(later + [size for begun, size in sizes if begun <= since][-1:], default=0)

    def on_transaction(self, transaction: PreparedWrite, writer: str) -> None:
        """Check and note a write; the nodes of topics come first, because they say which partitions are removed."""
        changes = [each for each in transaction.changes.items() if each[0].startswith(f"{znodes.TOPICS}/")]
        for path, entry in changes:
            if path.count("/") == 2:
                self._on_topic(path.rpartition("/")[2], None if entry is None else entry.data)
        for path, entry in changes:
            if path.count("/") == 2:
                continue
            _, _, topic, index = path.split("/")
            place = (topic, int(index))
            if entry is None:
                self._forget(place)
            else:
                self._on_state(place, znodes.decode(entry.data, znodes.PartitionNode), writer)

    def _on_topic(self, topic: str, data: bytes | None) -> None:
        if data is None:
            self.topic_ids.pop(topic, None)
            self._counts.pop(topic, None)
            return
        node = znodes.decode(data, znodes.TopicNode)
        self.topic_ids[topic] = node.topic_id
        if node.partitions:  # a deleted topic has none
            self._check_removals(topic, node)
        self._counts[topic] = node.partitions

    def _check_removals(self, topic: str, node: znodes.TopicNode) -> None:
        """Check that only sealed partitions are removed, and tell of them."""
        for index in range(node.partitions, self._counts.get(topic, 0)):
            place = (topic, index)
            state = self.now.get(place)
            if state is None:
                continue
            if state.phase < PartitionPhase.SEALED:
                phase = PartitionPhase(state.phase).name.lower()
                self.violate("removal", place, f"it is removed while it is {phase}")
            log_end, _ = node.removed[index - node.partitions]
            self._removed_ends[node.topic_id, place] = log_end
            self.on_removal(place, state, log_end)

    def _on_state(self, place: Place, state: znodes.PartitionNode, writer: str) -> None:
        before = self.now.get(place)
        if state == before:
            return
        self._trace.record("partition", *place, state)
        known = self._leaders.setdefault((place, state.leader_epoch), state.leader)
        if known != state.leader:
            self.violate("I10", place, f"epoch {state.leader_epoch} is led by {known} and by {state.leader}")
        if state.leader not in (_NO_BROKER, *state.isr):
            self.violate("I10", place, f"its leader {state.leader} is not in sync: {state.isr}")
        if before is None:
            self._check_beginning(place, state)
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                self.violate("I10", place, f"epoch {before.leader_epoch} is followed by {state.leader_epoch}")
            if state.leader_epoch > before.leader_epoch and state.leader not in _electable(before):
                self.violate("I10", place, f"{state.leader} was elected, in sync were {before.isr}")
        if before is not None and state.phase != before.phase:
            self.on_phase(place, state)
        if before is not None and not self.may_shrink:
            self._check_all_stay(place, before, state)
        if before is not None and self._is_one_machine(state.isr) and not self._is_one_machine(before.isr):
            self.left_alone_by[place] = writer
        self.now[place] = state
        self._in_sync.setdefault(place, []).append((self._seconds(), len(state.isr)))

    def _check_beginning(self, place: Place, state: znodes.PartitionNode) -> None:
        """Check that a partition uses neither leader epochs nor offsets of a removed one with its index."""
        life = self.topic_ids.get(place[0], _NO_TOPIC), place
        if state.leader_epoch <= self._ended.get(life, -1):
            self.violate(
                "I10", place, f"epoch {state.leader_epoch} was used before the partition was removed"
            )
        if state.first_offset < self._removed_ends.get(life, 0):
            self.violate(
                "I3", place, f"offset {state.first_offset} was used before the partition was removed"
            )

    def _check_all_stay(
        self, place: Place, before: znodes.PartitionNode, state: znodes.PartitionNode
    ) -> None:
        staying = set(before.isr) & set(state.replicas) & set(state.target or state.replicas)
        if dropped := staying - set(state.isr):
            self.violate("I13", place, f"{sorted(dropped)} left the in-sync set, nothing was wrong with them")

    def _is_one_machine(self, members: Sequence[int]) -> bool:
        return len({self.machines.get(member, str(member)) for member in members}) <= 1

    def _forget(self, place: Place) -> None:
        before = self.now.pop(place, None)
        if before is not None and place[0] in self.topic_ids:
            self._ended[self.topic_ids[place[0]], place] = before.leader_epoch
        self._in_sync.pop(place, None)
        for known, epoch in [key for key in self._leaders if key[0] == place]:
            del self._leaders[known, epoch]

    def violate(self, invariant: str, place: Place, message: str) -> None:
        """Note a violation by the write in progress."""
        self.problem = self.problem or InvariantViolated(invariant, f"{place[0]}-{place[1]}: {message}")


def _electable(state: znodes.PartitionNode) -> tuple[int, ...]:
    """Return the replicas that may be elected; a last resort only where the in-sync set has one member or
    none.
    """
    return (_NO_BROKER, *state.isr, *state.eligible, *(state.last_resort if len(state.isr) <= 1 else ()))


class RecordedEnsemble(MemoryEnsemble):
    def __init__(self, history: PartitionHistory) -> None:
        super().__init__()
        self.history = history

    def commit(self, transaction: PreparedWrite) -> None:
        process = PROCESS.get()
        self.commit_as("" if process is None else process.name, transaction)

    def commit_as(self, writer: str, transaction: PreparedWrite) -> None:
        """Commit a write of another process than the one that runs."""
        self.history.on_transaction(transaction, writer)
        super().commit(transaction)
