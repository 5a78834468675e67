"""State of a shard after loading, and dependencies and counters that the shards of the group coordinator
share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.groups.group import Group
from penstock.groups.offsets import Offsets
from penstock.groups.settings import GroupSettings
from penstock.state_log.shard import ShardContext


@dataclass(slots=True)
class ShardState:
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)


@dataclass(slots=True)
class Counts:
    """Counters for metrics."""

    commits: int = 0


class GroupContext(ShardContext, Protocol):
    settings: GroupSettings
    counts: Counts

    @property
    def image(self) -> ClusterImage: ...

    @property
    def config(self) -> BrokerConfig: ...

    def wall_ms(self) -> int: ...

    async def confirm_image(self) -> None:
        """Apply every change that was recorded before this call; BrokerError if the store does not respond."""
