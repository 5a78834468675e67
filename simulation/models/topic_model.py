"""The rules of a topic: its partitions, whether it exists, and what its durability promises.

The promise is weak from a request for `durability=os` until a stronger setting was acknowledged. Records
that were read in a weak time may be taken back until a strong write behind them was acknowledged or the
broker restarted. A record of a replicated topic that only its leader acknowledged (acks=1) may be lost with
the leader; others stay, because faults never take more replicas than `durability` covers.
"""

from __future__ import annotations

from enum import Enum
from uuid import UUID

from simulation.models.history import Audit, InvariantViolated, Outcome, ReadRange, Write
from simulation.models.partition_model import PartitionModel

WEAK_DURABILITY = "os"


class TopicState(Enum):
    CREATING = "creating"
    ALIVE = "alive"
    DELETING = "deleting"
    DELETED = "deleted"


class TopicModel:
    def __init__(
        self, name: str, incarnation: int, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.configs = configs
        self.replicas = replicas
        """The replication factor with which the topic is created."""
        self.state = TopicState.CREATING
        self.is_compacted = configs.get("cleanup.policy") == "compact"
        self.partitions: list[PartitionModel] = []
        self.grow(partitions)
        self.asked_partitions = partitions
        """The partition count after a request for more partitions, which may not be acknowledged yet."""
        self.id: UUID | None = None
        """The topic id, once it was looked up."""
        self.deleted_at: float | None = None
        """The virtual time of an acknowledged deletion."""
        self.is_weak = configs.get("durability") == WEAK_DURABILITY
        self.weak_changes = 0
        self._was_weak = self.is_weak

    @property
    def is_replicated(self) -> bool:
        return self.replicas > 1

    @property
    def min_insync_replicas(self) -> int:
        return int(self.configs.get("min.insync.replicas", "1"))

    @property
    def has_append_time(self) -> bool:
        return self.configs.get("message.timestamp.type") == "LogAppendTime"

    def grow(self, partitions: int) -> None:
        for index in range(len(self.partitions), partitions):
            name = f"{self.name}#{self.incarnation}-{index}"
            partition = PartitionModel(name, compacted=self.is_compacted)
            partition.may_expire = bool(self.configs.keys() & {"retention.ms", "retention.bytes"})
            partition.may_start_earlier = partition.may_expire and self.is_replicated
            self.partitions.append(partition)

    # --- settings

    def begin_durability(self, value: str) -> None:
        """Note that another durability is about to be requested."""
        if value == WEAK_DURABILITY:
            self.is_weak = self._was_weak = True
        self.weak_changes += 1

    def end_durability(self, value: str) -> None:
        """Note that the durability was changed."""
        self.is_weak = value == WEAK_DURABILITY
        self.weak_changes += 1

    # --- audits

    def check_existence(self, partitions: int | None) -> None:
        """Check that the topic exists, or not; `partitions` is the count that brokers report, None without a topic."""
        if self.state is TopicState.ALIVE and partitions is None:
            raise InvariantViolated("I1", f"the topic {self.name} is gone")
        if self.state is TopicState.DELETED and partitions is not None:
            raise InvariantViolated("I1", f"the deleted topic {self.name} is back")

    def settle_partitions(self, partitions: int) -> None:
        """Check the partition count, and find out whether a request for more partitions was carried out."""
        if partitions == self.asked_partitions:
            self.grow(partitions)
        self.asked_partitions = len(self.partitions)
        if partitions != len(self.partitions):
            raise InvariantViolated("I1", f"{self.name} has {partitions} partitions")

    # --- what clients learned

    def on_ack(self, partition: int, write: Write, base_offset: int) -> None:
        if self.is_replicated and write.acks != -1:
            write.outcome = Outcome.OK
            return
        strong = write.acks == -1 and not self.is_weak and write.weak_changes == self.weak_changes
        self.partitions[partition].on_ack(write, base_offset, durable=strong)

    def on_read(self, partition: int, read: ReadRange) -> None:
        self.partitions[partition].on_read(read, durable=not self._was_weak)

    def on_audit(self, audits: list[Audit], *, cache_lost: bool) -> None:
        self._was_weak = self.is_weak
        for partition, audit in zip(self.partitions, audits, strict=True):
            partition.on_audit(audit, cache_lost=cache_lost, durable=not self.is_weak)
            if self.is_replicated and self.is_compacted:
                partition.check_newest(audit)
