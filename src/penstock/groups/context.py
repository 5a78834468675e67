"""Dependencies and counters that the shards of the group coordinator share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.groups.settings import GroupSettings
from penstock.model import ShareKey
from penstock.state_log.shard import ShardContext


@dataclass(slots=True)
class GroupCounts:
    """Counters of the group coordinator, for its metrics."""

    commits: int = 0


class ShareStates(Protocol):
    """Access to the states of share-partitions in `__share_group_state`."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Create or reset a state. BrokerError unless it is certain that the state is stored."""

    async def delete(self, key: ShareKey) -> None: ...


class GroupContext(ShardContext, Protocol):
    settings: GroupSettings
    counts: GroupCounts
    share_states: ShareStates

    @property
    def image(self) -> ClusterImage: ...

    @property
    def config(self) -> BrokerConfig: ...

    def wall_ms(self) -> int: ...

    async def confirm_image(self) -> None:
        """Apply every change that was recorded before this call. BrokerError if the store does not respond."""
