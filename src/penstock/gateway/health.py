"""What a broker says of itself to load balancers and people: whether it serves, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BrokerState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Health:
    state: BrokerState
    failed_logs: tuple[str, ...] = ()
    """Partitions that an I/O error took out of service until the next start."""
    is_disk_full: bool = False
    """Writes are refused for lack of space, reads go on: said, but no reason to be taken out of service."""

    @property
    def is_ok(self) -> bool:
        return self.state is BrokerState.SERVING and not self.failed_logs
