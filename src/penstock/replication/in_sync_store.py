"""Writes of in-sync sets to the store, each on condition of the partition epoch and of the members that join.

A leader knows the records of a joining broker in one broker epoch. After a crash that broker may have
fewer, so the write also checks that it has not registered again, nor begun to.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.coordination import Check
from penstock.cluster.eligible import with_members
from penstock.cluster.image import ClusterImage, PartitionState, RegisteredBroker
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.partition_writes import PartitionWrites
from penstock.cluster.topic_writes import Writes, chunks
from penstock.model import BrokerId, TopicPartition
from penstock.replication.in_sync_writer import InSyncOutcome, InSyncWrite, WriteResult

_UNKNOWN = InSyncOutcome(WriteResult.UNKNOWN)
_REFUSED = InSyncOutcome(WriteResult.REFUSED)


class RecordedInSync:
    """In-sync sets in the coordination store. A write without a response has an unknown outcome until the cluster image
    shows the result.
    """

    def __init__(self, changes: ChangeMaker, node_id: BrokerId) -> None:
        self._changes = changes
        self._node_id = node_id

    async def write_in_sync(self, writes: Sequence[InSyncWrite]) -> Sequence[InSyncOutcome]:
        outcomes: list[InSyncOutcome] = []
        for chunk in chunks(writes):
            outcomes += await self._write(chunk)
        return outcomes

    async def _write(self, writes: Sequence[InSyncWrite]) -> Sequence[InSyncOutcome]:
        return await self._changes.make(_Attempts(self._node_id, writes).decide)


class _Attempts:
    """Decision on some writes, which is repeated if the conditions of the writes have failed."""

    def __init__(self, node_id: BrokerId, writes: Sequence[InSyncWrite]) -> None:
        self._node_id = node_id
        self._writes = writes
        self._tried: set[TopicPartition] = set()
        self._lets_in = True

    def decide(self, image: ClusterImage) -> MetadataChange[Sequence[InSyncOutcome]]:
        outcomes: list[InSyncOutcome] = []
        checks: dict[BrokerId, Check] = {}
        writes = PartitionWrites()
        for write in self._writes:
            state, joining = self._present(write, image), self._joining(write, image)
            if state is None or joining is None:
                outcomes.append(_UNKNOWN if write.name in self._tried else _REFUSED)
                continue
            for broker in joining:
                checks[broker.node_id] = Check(
                    znodes.directory_path(broker.node_id), broker.directory_version
                )
            isr = tuple(member for member in state.replicas if member in write.change.members)
            change = write.change
            changed = with_members(
                state,
                isr,
                keeps_eligible=change.keeps_eligible,
                committed=change.committed,
                log_end=change.log_end,
            )
            writes.set(write.name, changed)
            outcomes.append(InSyncOutcome(WriteResult.RECORDED, state.partition_epoch + 1))
            self._tried.add(write.name)
        # The conditions fail if a joining broker registers at this moment: the next attempt leaves joining brokers out,
        # so that they do not delay other writes.
        self._lets_in = False
        operations = (*checks.values(), *writes.operations) if writes.operations else ()
        return MetadataChange(outcomes, Writes(operations), writes.scope)

    def _joining(self, write: InSyncWrite, image: ClusterImage) -> list[RegisteredBroker] | None:
        """The joining brokers; None if one of them is not in the broker epoch in which it had all records."""
        brokers = [image.brokers.get(member) for member in write.change.joining]
        known = [
            broker
            for broker in brokers
            if broker is not None
            and not broker.is_stopping
            and broker.epoch == write.change.joining[broker.node_id]
        ]
        return known if len(known) == len(brokers) and (self._lets_in or not known) else None

    def _present(self, write: InSyncWrite, image: ClusterImage) -> PartitionState | None:
        """Recorded state of the partition; None if the change was proposed for another state."""
        topic, state = image.topic(write.name.topic), image.partition(write.name)
        is_same = (
            topic is not None
            and topic.id == write.topic_id
            and state is not None
            and state.leader == self._node_id
            and state.leader_epoch == write.leader_epoch
            and state.partition_epoch == write.change.partition_epoch
            and write.change.members <= set(state.replicas)
        )
        return state if is_same else None
