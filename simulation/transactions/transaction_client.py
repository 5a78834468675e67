"""A simulated client of transactions: requests of both versions of the protocol, over a `RoutingClient`.

As with `SimulatedClient`, a refusal is a BrokerError and an unknown outcome is `NoAnswer`. After a timeout
the connection is closed; the timeout is drawn, so that many requests arrive twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cluster.internal_topics import is_internal
from penstock.errors import BrokerError
from simulation.clients.client import NoAnswer, SentBatch, SimulatedClient, check_error
from simulation.clients.routing_client import GROUP, TRANSACTION, RoutingClient
from simulation.models.offset_model import ShownOffset
from simulation.models.partition_history import Place

_PATIENCE_SECONDS = (0.02, 0.3, 1.5, 3.0)
_INIT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Dialect:
    """The request versions of one version of the transaction protocol."""

    version: int
    produce: tuple[int, ...]
    end: tuple[int, ...]
    commit_offsets: tuple[int, ...]

    @property
    def is_implicit(self) -> bool:
        """Whether leaders add their partitions to transactions, and each transaction has an epoch of its own."""
        return self.version > 1


VERSION_1 = Dialect(1, (3, 7, 9, 11), (0, 1, 2, 3, 4), (0, 2, 3, 4))
VERSION_2 = Dialect(2, (12,), (5,), (5,))


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer id and epoch that a coordinator has assigned."""

    producer_id: int
    epoch: int


class TransactionClient:
    def __init__(
        self, transactional_id: str, dialect: Dialect, routing: RoutingClient, random: random.Random
    ) -> None:
        self.transactional_id = transactional_id
        self.dialect = dialect
        self.routing = routing
        self._random = random

    async def initialise(self, timeout_ms: int, before: Producer | None, *, is_held: bool) -> Producer:
        """Return a producer id and epoch; a producer that names `before` is fenced if another one has come
        since.
        """
        client = await self.coordinator()
        try:
            producer = await client.init_transactions(
                self.transactional_id,
                timeout_ms,
                (-1, -1) if before is None else (before.producer_id, before.epoch),
                is_held=is_held,
                seconds=_INIT_SECONDS,
            )
        except (BrokerError, NoAnswer):
            self._mistrust()
            raise
        return Producer(*producer)

    async def add_partitions(self, producer: Producer, places: Sequence[Place]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        assert not any(map(is_internal, topics))
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": indexes} for topic, indexes in topics.items()
            ],
        }
        response = await self._ask("AddPartitionsToTxn", (0, 1, 2, 3), fields)
        for topic in response.results_by_topic_v3_and_below:
            for partition in topic.results_by_partition:
                self._check(partition.partition_error_code)

    async def end(self, producer: Producer, *, commit: bool) -> Producer:
        """End a transaction; return the producer id and epoch of the next one."""
        response = await self._ask("EndTxn", self.dialect.end, self.end_fields(producer, commit=commit))
        self._check(response.error_code)
        if not self.dialect.is_implicit:
            return producer
        return Producer(response.producer_id, response.producer_epoch)

    async def end_late(self, client: SimulatedClient, producer: Producer, *, commit: bool) -> None:
        """Send the same EndTxn again over a connection that was given up, and ignore the outcome."""
        try:
            fields = self.end_fields(producer, commit=commit)
            await client.ask("EndTxn", self.dialect.end, fields, _INIT_SECONDS)
        except NoAnswer:
            return

    def end_fields(self, producer: Producer, *, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": commit,
        }

    async def coordinator(self) -> SimulatedClient:
        _, client = await self.routing.coordinator(self.transactional_id, TRANSACTION)
        return client

    # --- records

    def produce(self, leader: SimulatedClient, place: Place, batch: bytes) -> SentBatch:
        return leader.produce(
            *place,
            batch,
            -1,
            zstd=False,
            transactional_id=self.transactional_id,
            versions=self.dialect.produce,
        )

    # --- offsets of a group

    async def commit_offset(
        self, producer: Producer, group: str, place: Place, offset: int, metadata: str
    ) -> None:
        if not self.dialect.is_implicit:
            fields: dict[str, Any] = {
                "transactional_id": self.transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "group_id": group,
            }
            self._check((await self._ask("AddOffsetsToTxn", (0, 1, 2, 3), fields)).error_code)
        asked = {"partition_index": place[1], "committed_offset": offset, "committed_metadata": metadata}
        fields = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "topics": [{"name": place[0], "partitions": [asked]}],
        }
        response = await self._ask_group(group, "TxnOffsetCommit", self.dialect.commit_offsets, fields)
        self._check_group(group, response.topics[0].partitions[0].error_code)

    async def committed_offset(self, group: str, place: Place) -> ShownOffset | None:
        """Return a committed offset; a refusal while an open transaction would change it."""
        asked = {"name": place[0], "partition_indexes": [place[1]]}
        in_group = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": [asked]}
        fields = {"group_id": group, "topics": [asked], "groups": [in_group], "require_stable": True}
        response = await self._ask_group(group, "OffsetFetch", (7, 8, 9), fields)
        found = response.groups[0] if hasattr(response, "groups") else response
        self._check_group(group, found.error_code)
        shown = found.topics[0].partitions[0]
        self._check_group(group, shown.error_code)
        if shown.committed_offset < 0:
            return None
        return ShownOffset(shown.committed_offset, shown.metadata or "")

    async def _ask_group(
        self, group: str, api: str, versions: tuple[int, ...], fields: dict[str, Any]
    ) -> Any:
        _, client = await self.routing.coordinator(group, GROUP)
        try:
            return await client.ask(api, versions, fields)
        except NoAnswer:
            self.routing.mistrust_coordinator(group, GROUP)
            raise

    def _check_group(self, group: str, error_code: int) -> None:
        if error_code:
            self.routing.mistrust_coordinator(group, GROUP)
        check_error(error_code)

    # --- the coordinator

    async def _ask(self, api: str, versions: tuple[int, ...], fields: dict[str, Any]) -> Any:
        client = await self.coordinator()
        try:
            return await client.ask(api, versions, fields, self._random.choice(_PATIENCE_SECONDS))
        except NoAnswer:
            self._mistrust()
            raise

    def _check(self, error_code: int) -> None:
        if error_code:
            self._mistrust()
        check_error(error_code)

    def _mistrust(self) -> None:
        self.routing.mistrust_coordinator(self.transactional_id, TRANSACTION)
