"""Health of a process, as `/health` shows it: its state and its problems."""

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
    """Partitions whose log is offline after an I/O error. They stay offline until the broker is restarted."""
    is_disk_full: bool = False
    """True if writes are refused because the disk is full. `/health` still returns 200, because reads continue."""

    damage: tuple[PartitionDamage, ...] = ()
    """Stored records that cannot be read. `/health` still returns 200, as for alarms: all other records can be
    read, and a restart would not repair the damage.
    """
    alarms: tuple[Alarm, ...] = ()

    @property
    def is_degraded(self) -> bool:
        """True if an operator should look at the process. It may be serving nevertheless."""
        return bool(self.failed_logs or self.is_disk_full or self.damage or self.alarms)

    @property
    def is_ok(self) -> bool:
        return self.state is BrokerState.SERVING and not self.failed_logs
