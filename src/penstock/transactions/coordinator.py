"""The transaction coordinator: which transactional ids this broker answers for, and the shards they live in.

There is a shard for each partition of `__transaction_state` that this broker leads (see `state_log.shards`). Loop
thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from typing import Any, cast

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.image import ImageChange
from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC, new_transactions_topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import TRANSACTION_CLEANUP_INTERVAL_MS, BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, ProducerId
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.state_log.appender import Appender
from penstock.state_log.replaying import Replaying
from penstock.state_log.shard import Shard
from penstock.state_log.shards import Shards
from penstock.state_log.timers import Timers
from penstock.threads import Threads
from penstock.transactions.context import Counts
from penstock.transactions.markers import Ending, Markers
from penstock.transactions.record_codec import decode_record, encode_record
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import Transaction
from penstock.wire.known_transactions import KnownTransactions, OpenTransaction

MAX_ID_CHARACTERS = 8_191
"""In UTF-8 that is no more than the 32,767 bytes Kafka's strings can have."""
TRANSACTIONS_PER_TURN = 2_000


class TransactionCoordinator:
    def __init__(
        self,
        node_id: BrokerId,
        metadata: ClusterMetadata,
        administration: Administration,
        replicas: ReplicaManager,
        clock: Clock,
        threads: Threads,
        log: Logger,
        markers: Markers,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
        newest_connection: Callable[[], int],
    ) -> None:
        """`newest_connection`: the number of the one that was accepted last."""
        self.timers = Timers(clock, self._on_due)
        self.counts = Counts()
        self._metadata = metadata
        self._clock = clock
        self._threads = threads
        self._log = log
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._newest_connection = newest_connection
        self._shards: Shards[TransactionShard] = Shards(
            TRANSACTIONS_TOPIC,
            new_transactions_topic,
            node_id,
            metadata,
            administration,
            replicas,
            clock,
            log,
            self._load,
            self._resume,
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._stopped = False

    # --- who answers for a transactional id

    async def find(self, transactional_id: str) -> BrokerId:
        return await self._shards.find(transactional_id)

    def leader_of(self, transactional_id: str) -> BrokerId:
        """Who answers for the id, if there is somebody; BrokerError where nobody ever did."""
        return self._shards.leader_of(transactional_id)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """The shard the id is in, if it is here and loaded."""
        if not 0 < len(transactional_id) <= MAX_ID_CHARACTERS:
            raise BrokerError(
                ErrorCode.invalid_request, f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters"
            )
        return self._shards.of(transactional_id)

    @property
    def shards(self) -> Sequence[TransactionShard]:
        """The loaded ones."""
        return self._shards.loaded

    async def walk(self) -> AsyncIterator[tuple[TransactionShard, Sequence[tuple[str, Transaction]]]]:
        """All transactions, some of a shard at a time, with turns of the loop between: each as it is when its shard is
        come to. Of a shard without any there is an empty part, of one that goes meanwhile there may be none."""
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
        """Which of these are under way here, as those of a producer that has the partition in its transaction."""
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

    @property
    def is_loading(self) -> bool:
        return self._shards.is_loading

    @property
    def load_seconds(self) -> float:
        return self._shards.load_seconds

    # --- coming and going

    def start(self) -> None:
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        self._shards.start()

    async def stop(self) -> None:
        """Answer everybody who waits; nothing is appended after this returns."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._shards.stop()
        await self._markers.close()
        self.timers.close()

    def on_image(self, change: ImageChange) -> None:
        if not self._stopped and TRANSACTIONS_TOPIC in change.topics:
            self._shards.follow_leadership()

    def on_repaired(self, replica: Replica) -> None:
        """Damaged records of this replica were repaired."""
        self._shards.on_repaired(replica)

    async def _load(self, index: int, replica: Replica) -> TransactionShard:
        appender = Appender(replica, self._clock, encode_record)
        shard = TransactionShard(index, appender, self, self._newest_connection() + 1)
        replaying = Replaying(replica, self._threads, decode_record, shard.apply)
        await replaying.run()
        self.counts.unknown_records += replaying.unknown
        if replaying.unknown or replaying.damaged_parts:
            self._log.warning(
                "records of transactions were passed over",
                partition=index,
                records=replaying.unknown,
                damaged_parts=replaying.damaged_parts,
            )
        shard.passed_over_damage = bool(replaying.damaged_parts)
        return shard

    async def _resume(self, shard: TransactionShard) -> None:
        shard.resume()

    # --- what shards ask for

    @property
    def config(self) -> BrokerConfig:
        return self._metadata.config

    @property
    def id_count(self) -> int:
        return sum(len(shard.transactions) for shard in self.shards)

    @property
    def held_count(self) -> int:
        return sum(shard.held_count for shard in self.shards)

    @property
    def id_characters(self) -> int:
        return sum(shard.id_characters for shard in self.shards)

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    async def new_producer_id(self) -> ProducerId:
        return await self._new_producer_id()

    def write_markers(self, ending: Ending) -> None:
        self._markers.write(ending)

    def lost(self, shard: Shard[Any]) -> None:
        self._shards.lost(shard)

    # --- time

    def _on_due(self, key: Hashable) -> None:
        # Not the shard itself: one that was closed would live on until its last deadline.
        index, transactional_id = cast("tuple[int, str]", key)
        shard = self._shards.get(index)
        if shard is not None:
            shard.on_due(transactional_id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.config[TRANSACTION_CLEANUP_INTERVAL_MS] / 1000)
            for shard in self.shards:
                await asyncio.sleep(0)
                shard.sweep()
