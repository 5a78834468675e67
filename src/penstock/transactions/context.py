"""Dependencies and counters that the shards of a transaction coordinator share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.config import BrokerConfig
from penstock.model import ProducerId
from penstock.state_log.shard import ShardContext
from penstock.transactions.endings import Ending


@dataclass(slots=True)
class TransactionCounts:
    """Counters of the transaction coordinator, for its metrics."""

    commits: int = 0
    aborts: int = 0
    timeouts: int = 0
    late_requests: int = 0
    """Number of requests that were refused because their producer has used a newer connection."""


class TransactionContext(ShardContext, Protocol):
    counts: TransactionCounts

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def id_count(self) -> int:
        """Number of transactional ids in all shards."""
        ...

    @property
    def id_characters(self) -> int:
        """Total length of all transactional ids, in characters."""
        ...

    @property
    def held_count(self) -> int:
        """Number of transactional ids whose transactions are held."""
        ...

    def wall_ms(self) -> int: ...

    async def new_producer_id(self) -> ProducerId: ...

    def write_markers(self, ending: Ending) -> None: ...
