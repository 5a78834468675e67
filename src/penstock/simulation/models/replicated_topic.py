"""A topic of a cluster as its clients see it: a record that only the leader acknowledged (acks=1) may be lost
with it.

Records acknowledged with acks=all, or shown to a reader, stay: faults never take more replicas than
`durability` covers.
"""

from __future__ import annotations

from penstock.simulation.models.history import Audit, Outcome, Write
from penstock.simulation.models.topic_model import TopicModel


class ReplicatedTopic(TopicModel):
    def grow(self, partitions: int) -> None:
        super().grow(partitions)
        for partition in self.partitions:
            partition.may_start_earlier = partition.may_expire

    def on_audit(self, audits: list[Audit], *, cache_lost: bool) -> None:
        super().on_audit(audits, cache_lost=cache_lost)
        if self.is_compacted:
            for partition, audit in zip(self.partitions, audits, strict=True):
                partition.check_newest(audit)

    @property
    def min_insync_replicas(self) -> int:
        return int(self.configs["min.insync.replicas"])

    def on_ack(self, partition: int, write: Write, base_offset: int) -> None:
        if write.acks == -1:
            self.partitions[partition].on_ack(write, base_offset, durable=True)
        else:
            write.outcome = Outcome.OK
