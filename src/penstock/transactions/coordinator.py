"""The transaction coordinator: maps transactional ids to shards of `__transaction_state`.

The base class has the shards and their loading. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC, new_transactions_topic
from penstock.config import TRANSACTION_CLEANUP_INTERVAL_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, ProducerId
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender
from penstock.state_log.coordinator import Coordinator
from penstock.state_log.replaying import Replaying
from penstock.state_log.shards import CoordinatorContext
from penstock.transactions.context import TransactionCounts
from penstock.transactions.endings import Ending
from penstock.transactions.markers import Markers
from penstock.transactions.record_codec import decode_record, encode_record
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import Transaction
from penstock.wire.known_transactions import KnownTransactions, OpenTransaction

MAX_ID_CHARACTERS = 8_191
"""Maximum length of a transactional id in characters. UTF-8 needs at most 32,767 bytes for them, the maximum
of a Kafka string.
"""
TRANSACTIONS_PER_TURN = 2_000


class TransactionCoordinator(Coordinator[TransactionShard]):
    def __init__(
        self,
        context: CoordinatorContext,
        markers: Markers,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
        newest_connection: Callable[[], int],
    ) -> None:
        """`newest_connection` returns the number of the last accepted connection."""
        super().__init__(context, TRANSACTIONS_TOPIC, new_transactions_topic)
        self.counts = TransactionCounts()
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._newest_connection = newest_connection

    def leader_of(self, transactional_id: str) -> BrokerId:
        """Return the broker that coordinates the id; NO_LEADER if there is none at present. BrokerError if
        the internal topic does not exist.
        """
        return self._shards.leader_of(transactional_id)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of the id. BrokerError if this broker does not coordinate the id or the shard is
        not loaded.
        """
        if not 0 < len(transactional_id) <= MAX_ID_CHARACTERS:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"the transactional id must have 1 to {MAX_ID_CHARACTERS} characters",
            )
        return self._shards.of(transactional_id)

    async def walk(self) -> AsyncIterator[tuple[TransactionShard, Sequence[tuple[str, Transaction]]]]:
        """Iterate over all transactions in portions, each from one shard. Other tasks of the loop run between
        portions.

        A portion has the transactions of the moment at which the iteration reaches their shard. A shard
        without transactions yields one empty portion; a shard that closes meanwhile may yield none.
        """
        left = TRANSACTIONS_PER_TURN
        for shard in self.shards:
            if self._shards.get(shard.partition) is not shard:
                continue
            transactions = tuple(shard.transactions.items())
            for start in range(0, len(transactions) or 1, TRANSACTIONS_PER_TURN):
                part = transactions[start : start + TRANSACTIONS_PER_TURN]
                yield shard, part
                left -= len(part)
                if left <= 0:
                    left = TRANSACTIONS_PER_TURN
                    await asyncio.sleep(0)

    async def known(self, asked: Sequence[OpenTransaction]) -> KnownTransactions:
        """Return the open transactions that this coordinator knows, which are those whose producer has the
        partition in its transaction.
        """
        shards: dict[int, LeaderEpoch] = {}
        under_way: set[OpenTransaction] = set()
        producers = {each.producer_id for each in asked}
        async for shard, transactions in self.walk():
            shards[shard.partition] = shard.coordinator_epoch
            under_way.update(
                OpenTransaction(transaction.producer.producer_id, partition)
                for _, transaction in transactions
                if not transaction.is_idle and transaction.producer.producer_id in producers
                for partition in transaction.partitions
            )
        return KnownTransactions(
            shards=shards, known=tuple(place for place, each in enumerate(asked) if each in under_way)
        )

    async def stop(self) -> None:
        await super().stop()
        await self._markers.close()

    async def _load(self, index: int, replica: Replica) -> TransactionShard:
        appender = Appender(replica, self._context.clock, encode_record)
        shard = TransactionShard(index, appender, self, self._newest_connection() + 1)
        replaying = Replaying(replica, self._context.threads, decode_record, shard.apply, newest_only=True)
        await replaying.run()
        self._note_passed_over(shard, replaying.unknown, replaying.damaged_parts)
        return shard

    async def _on_loaded(self, shard: TransactionShard) -> None:
        shard.resume()

    @property
    def _sweep_interval_ms(self) -> int:
        return self.config[TRANSACTION_CLEANUP_INTERVAL_MS]

    async def _sweep(self, shard: TransactionShard) -> None:
        await asyncio.sleep(0)
        shard.sweep()

    # --- context for shards

    @property
    def id_count(self) -> int:
        return sum(len(shard.transactions) for shard in self.shards)

    @property
    def held_count(self) -> int:
        return sum(shard.held_count for shard in self.shards)

    @property
    def id_characters(self) -> int:
        return sum(shard.id_characters for shard in self.shards)

    async def new_producer_id(self) -> ProducerId:
        return await self._new_producer_id()

    def write_markers(self, ending: Ending) -> None:
        self._markers.write(ending)
