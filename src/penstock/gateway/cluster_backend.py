"""The `Backend` over a cluster's routes, inside a broker and in a process of its own alike.

Four sets of connections, because answers on one come in the order of the questions: writes and the commits of groups
wait for their fsyncs, administration may take seconds, reads shall wait for none of them. Whoever makes it closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import BrokerSummary, ClusterHealth, TransactionSummary
from penstock.gateway.cluster_groups import ClusterGroups
from penstock.gateway.cluster_records import ClusterRecords
from penstock.gateway.cluster_topics import ClusterConfigs, ClusterTopics
from penstock.gateway.surroundings import CLIENT_ID, Way
from penstock.net.client import Client
from penstock.net.keyed_reads import KeyedReads
from penstock.net.routes import CoordinatorKind, Routes, check
from penstock.net.sender import Sender
from penstock.observability.alarms import Alarms
from penstock.threads import Threads

PATIENCE_SECONDS = 10.0
_END_TXN, _DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS = 26, 65, 66


class ClusterBackend:
    def __init__(self, way: Way, threads: Threads, delivery_seconds: float, alarms: Alarms) -> None:
        self.routes = way.routes()
        self._reads = way.routes()
        self._administration = way.routes()
        self._writes = way.routes()
        self._sender = Sender(self._writes, delivery_seconds)
        self._keyed_reads = KeyedReads(way.network, self._reads, CLIENT_ID)
        self.records = ClusterRecords(self._reads, self._sender, self._keyed_reads, threads, alarms)
        self.topics = ClusterTopics(self._administration)
        self.configs = ClusterConfigs(self._administration)
        self.groups = ClusterGroups(self._administration, self.records)
        self.transactions = ClusterTransactions(self._administration)
        self.cluster = ClusterView(self._administration)

    async def close(self) -> None:
        await self._sender.close()
        self._keyed_reads.close()
        for routes in (self.routes, self._reads, self._administration, self._writes):
            routes.close()


class ClusterTransactions:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> Sequence[TransactionSummary]:
        await self._routes.topics()
        fields = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        found: list[TransactionSummary] = []
        for node_id in sorted(self._routes.brokers):
            client = await self._routes.broker(node_id)
            response = await client.request(_LIST_TRANSACTIONS, 1, fields)
            check(response.error_code)
            found += [
                TransactionSummary(each.transactional_id, each.producer_id, each.transaction_state)
                for each in response.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    async def abort(self, transactional_id: str) -> None:
        async def describe(client: Client) -> Any:
            response = await client.request(
                _DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}
            )
            [state] = response.transaction_states
            check(state.error_code)
            return state

        state = await self._at_coordinator(transactional_id, describe)
        if state.transaction_state != "Ongoing":
            raise BrokerError(
                ErrorCode.invalid_txn_state, f"it is {state.transaction_state}; there is nothing to abort"
            )
        fields = {
            "transactional_id": transactional_id,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "committed": False,
        }

        async def end(client: Client) -> Any:
            check((await client.request(_END_TXN, 5, fields)).error_code)

        await self._at_coordinator(transactional_id, end)

    async def _at_coordinator(self, transactional_id: str, ask: Any) -> Any:
        kind = CoordinatorKind.TRANSACTION
        return await self._routes.at_coordinator(kind, transactional_id, ask, PATIENCE_SECONDS)


class ClusterView:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def brokers(self) -> Sequence[BrokerSummary]:
        await self._routes.topics()
        return self._known_brokers()

    async def health(self) -> ClusterHealth:
        topics = await self._routes.topics()
        alive = self._routes.brokers
        partitions = [partition for topic in topics.values() for partition in topic.partitions]
        return ClusterHealth(
            self._routes.cluster_id,
            self._known_brokers(),
            len(partitions),
            sum(partition.leader not in alive for partition in partitions),
            sum(len(partition.in_sync) < len(partition.replicas) for partition in partitions),
        )

    def _known_brokers(self) -> tuple[BrokerSummary, ...]:
        return tuple(
            BrokerSummary(
                node_id,
                broker.address.host,
                broker.address.port,
                broker.rack,
                node_id == self._routes.controller,
            )
            for node_id, broker in sorted(self._routes.brokers.items())
        )
