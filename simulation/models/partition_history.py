"""The recorded state of every partition, write by write, checked as it is written.

An epoch has one leader, epochs increase, and a leader comes from the in-sync set before it and is in the
one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from penstock.cluster import znodes
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
        self.problem: InvariantViolated | None = None
        """The first violation; it is raised by the next look of the inspector, not in the process that wrote."""
        self._leaders: dict[tuple[Place, int], int] = {}
        self._in_sync: dict[Place, list[tuple[float, int]]] = {}
        """The sizes of the in-sync set, each with the time from which on it was recorded."""
        self._ended: dict[tuple[UUID, Place], int] = {}
        """Leader epochs of partitions that were removed while their topic stayed."""
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
        for path, entry in transaction.changes.items():
            if not path.startswith(f"{znodes.TOPICS}/"):
                continue
            if path.count("/") == 2:
                self._on_topic(path.rpartition("/")[2], None if entry is None else entry.data)
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
        else:
            self.topic_ids[topic] = znodes.decode(data, znodes.TopicNode).topic_id

    def _on_state(self, place: Place, state: znodes.PartitionNode, writer: str) -> None:
        before = self.now.get(place)
        if state == before:
            return
        self._trace.record("partition", *place, state)
        known = self._leaders.setdefault((place, state.leader_epoch), state.leader)
        if known != state.leader:
            self._violate("I10", place, f"epoch {state.leader_epoch} is led by {known} and by {state.leader}")
        if state.leader not in (_NO_BROKER, *state.isr):
            self._violate("I10", place, f"its leader {state.leader} is not in sync: {state.isr}")
        ended = self._ended.get((self.topic_ids.get(place[0], _NO_TOPIC), place), -1)
        if before is None and state.leader_epoch <= ended:
            self._violate(
                "I10", place, f"epoch {state.leader_epoch} was used before the partition was removed"
            )
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                self._violate(
                    "I10", place, f"epoch {before.leader_epoch} is followed by {state.leader_epoch}"
                )
            if state.leader_epoch > before.leader_epoch and state.leader not in _electable(before):
                self._violate("I10", place, f"{state.leader} was elected, in sync were {before.isr}")
        if before is not None and not self.may_shrink:
            self._check_all_stay(place, before, state)
        if before is not None and self._is_one_machine(state.isr) and not self._is_one_machine(before.isr):
            self.left_alone_by[place] = writer
        self.now[place] = state
        self._in_sync.setdefault(place, []).append((self._seconds(), len(state.isr)))

    def _check_all_stay(
        self, place: Place, before: znodes.PartitionNode, state: znodes.PartitionNode
    ) -> None:
        staying = set(before.isr) & set(state.replicas) & set(state.target or state.replicas)
        if dropped := staying - set(state.isr):
            self._violate(
                "I13", place, f"{sorted(dropped)} left the in-sync set, nothing was wrong with them"
            )

    def _is_one_machine(self, members: Sequence[int]) -> bool:
        return len({self.machines.get(member, str(member)) for member in members}) <= 1

    def _forget(self, place: Place) -> None:
        before = self.now.pop(place, None)
        if before is not None and place[0] in self.topic_ids:
            self._ended[self.topic_ids[place[0]], place] = before.leader_epoch
        self._in_sync.pop(place, None)
        for known, epoch in [key for key in self._leaders if key[0] == place]:
            del self._leaders[known, epoch]

    def _violate(self, invariant: str, place: Place, message: str) -> None:
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
