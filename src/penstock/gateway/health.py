"""The health of a process, as `/health` shows it: its state, and what is wrong."""

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
    """Partitions whose log is offline after an I/O error, until the next start."""
    is_disk_full: bool = False
    """Whether writes are refused for lack of disk space. Reads go on, so `/health` still responds with 200."""

    damage: tuple[PartitionDamage, ...] = ()
    """Stored records that cannot be read. The status stays 200, as for alarms: everything else is served, and
    a restart repairs nothing.
    """
    alarms: tuple[Alarm, ...] = ()

    @property
    def is_degraded(self) -> bool:
        """Whether an operator should look at the process, although it may serve."""
        return bool(self.failed_logs or self.is_disk_full or self.damage or self.alarms)

    @property
    def is_ok(self) -> bool:
        return self.state is BrokerState.SERVING and not self.failed_logs
