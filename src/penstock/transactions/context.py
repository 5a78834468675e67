"""What the shards of a transaction coordinator share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.config import BrokerConfig
from penstock.model import ProducerId
from penstock.state_log.shard import ShardContext
from penstock.transactions.endings import Ending


@dataclass(slots=True)
class Counts:
    """For metrics."""

    commits: int = 0
    aborts: int = 0
    timeouts: int = 0
    late_requests: int = 0
    """Those that came on an older connection than their producer uses."""


class TransactionContext(ShardContext, Protocol):
    counts: Counts

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def id_count(self) -> int:
        """Transactional ids of all shards."""
        ...

    @property
    def id_characters(self) -> int:
        """Of all their names together."""
        ...

    @property
    def held_count(self) -> int:
        """Of those, whose transactions are held."""
        ...

    def wall_ms(self) -> int: ...

    async def new_producer_id(self) -> ProducerId: ...

    def write_markers(self, ending: Ending) -> None: ...
