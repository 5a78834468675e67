"""Records in-sync sets in the store, each on condition of the partition's version and of whom it lets in.

A broker that lets another in knows what that one had in one life of it. It may have crashed since and have less, so the
write also checks that it has not registered again, nor begun to: from then on what was known of it proves nothing.
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
    """What was written without a clear end is unknown: the image, which follows the store, settles it."""

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
    """What is decided for some writes, again where it could not be written."""

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
        # One that is let in may be coming back just now: next time that holds up nobody else.
        self._lets_in = False
        operations = (*checks.values(), *writes.operations) if writes.operations else ()
        return MetadataChange(outcomes, Writes(operations), writes.scope)

    def _joining(self, write: InSyncWrite, image: ClusterImage) -> list[RegisteredBroker] | None:
        """Those the set lets in, where each is still in the life in which it had everything."""
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
        """The partition, if it is still the one the change was made for."""
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
