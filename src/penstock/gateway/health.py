"""What a broker says of itself to load balancers and people: whether it serves, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.model import TopicPartition
from penstock.observability.alarms import Alarm


class BrokerState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class PartitionDamage:
    """A damaged range of one log of this broker."""

    partition: TopicPartition
    base_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    state: BrokerState
    failed_logs: tuple[str, ...] = ()
    """Partitions that an I/O error took out of service until the next start."""
    is_disk_full: bool = False
    """Writes are refused for lack of space, reads go on: said, but no reason to be taken out of service."""

    damage: tuple[PartitionDamage, ...] = ()
    """Stored records that cannot be read. Like alarms no reason to be taken out of service: everything else is served,
    and a restart repairs nothing."""
    alarms: tuple[Alarm, ...] = ()

    @property
    def is_degraded(self) -> bool:
        """Whether a person should look, though the process may serve."""
        return bool(self.failed_logs or self.is_disk_full or self.damage or self.alarms)

    @property
    def is_ok(self) -> bool:
        return self.state is BrokerState.SERVING and not self.failed_logs
