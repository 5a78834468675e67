"""A simulated cluster with a topic whose last partition goes, its transactions and groups, for directed scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.cluster import znodes
from penstock.cluster.coordination import Delete, Node, Operation, Set
from penstock.cluster.image import PartitionPhase
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.cluster.memory import MemoryStore
from penstock.records.building import NewRecord, build_batch
from simulation.checks.inspector import Inspector
from simulation.clients.client import check_error
from simulation.clients.retries import retried
from simulation.clients.shrinker import TOPIC, Shrinker
from simulation.groups.group_client import Commit, GroupClient, Identity
from simulation.models.history import InvariantViolated
from simulation.models.offset_model import ShownOffset
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage
from simulation.transactions.transaction_client import VERSION_1, Producer, TransactionClient
from support.eventually import eventually_async

INDEX = 3
"""The partition that goes."""
PLACE = (TOPIC, INDEX)
GROUP = "billing"


class Cluster:
    """Three brokers, and the topic of an administrator who changes its partition count."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.shrinker = Shrinker(stage)
        self.inspector = Inspector(stage)

    @property
    def phase(self) -> PartitionPhase:
        """Recorded phase of the partition that goes."""
        return PartitionPhase(self.state.phase)

    @property
    def state(self) -> znodes.PartitionNode:
        state = self.stage.partition(*PLACE)
        assert state is not None
        return state

    @property
    def leader(self) -> BrokerHost:
        return self.stage.member(self.state.leader)

    async def start(self) -> None:
        for member in self.stage.members:
            await member.start()
        await self.until(self.shrinker.create, "the topic is not made")
        await self.until(self._allow_one_in_sync, "the topic is not configured")
        await eventually_async(lambda: self.is_led() and set(self.state.isr) == set(self.state.replicas))

    async def _allow_one_in_sync(self) -> None:
        broker = await self.stage.routing("administrator").any_broker()
        await broker.set_topic_config(TOPIC, "min.insync.replicas", "1")

    def is_led(self) -> bool:
        state = self.stage.partition(*PLACE)
        return state is not None and self.stage.leads(state.leader, *PLACE)

    async def until(self, act: Callable[[], Awaitable[Any]], complaint: str) -> Any:
        return await retried(act, complaint, 40)

    async def request(self, change: str, count: int = INDEX) -> None:
        await self.until(lambda: self.shrinker.request(count, change, 0), f"{change} is refused")

    async def look(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.02)):
            await asyncio.sleep(0.02)
            self.inspector.look()

    async def write(self) -> None:
        """Write a record until one is acknowledged."""
        known = len(self.shrinker.acknowledged(INDEX))
        while len(self.shrinker.acknowledged(INDEX)) == known:
            await self.shrinker.produce(INDEX)
            await self.look(0.2)

    async def reach(self, phase: PartitionPhase) -> None:
        await eventually_async(lambda: self.phase is phase)
        await self.look(0.1)


class Transaction:
    """An open transaction with one record in the partition that goes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        stage = cluster.stage
        self._client = TransactionClient(
            "transactor", VERSION_1, stage.routing("transactor"), stage.world.random("transactor")
        )
        self._producer = Producer(-1, -1)

    async def begin(self) -> None:
        client, until = self._client, self._cluster.until
        self._producer = await until(
            lambda: client.initialise(60_000, None, is_held=False), "there is no coordinator"
        )
        await until(lambda: client.add_partitions(self._producer, [PLACE]), "no transaction begins")
        await until(self._write, "the record is not taken")

    async def _write(self) -> None:
        leader, _ = await self._client.routing.leader(*PLACE)
        batch = build_batch(
            [NewRecord(None, b"open", self._cluster.stage.now_ms())],
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        await self._client.produce(leader, PLACE, bytes(batch)).result()

    async def commit(self) -> None:
        await self._cluster.until(lambda: self._client.end(self._producer, commit=True), "no end")


@contextmanager
def held_writes(member: BrokerHost, is_held: Callable[[Operation], bool]) -> Iterator[asyncio.Event]:
    """Keep the next write of a broker with such an operation from the store, until the event is set."""
    store = member._store._store  # type: ignore[attr-defined]
    assert isinstance(store, MemoryStore)
    write, gate = store.multi, asyncio.Event()
    held: list[Sequence[Operation]] = []

    async def multi(operations: Sequence[Operation]) -> list[str | Node | None]:
        if not held and any(map(is_held, operations)):
            held.append(operations)
            await gate.wait()
        return await write(operations)

    store.multi = multi  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        store.multi = write  # type: ignore[method-assign]
        gate.set()


def seals(operation: Operation) -> bool:
    if not isinstance(operation, Set) or operation.path != znodes.partition_path(*PLACE):
        return False
    return znodes.decode(operation.data, znodes.PartitionNode).phase == PartitionPhase.SEALED


def removes(operation: Operation) -> bool:
    return isinstance(operation, Delete) and operation.path == znodes.partition_path(*PLACE)


class Group:
    """A group that has committed an offset of the partition that goes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._routing = cluster.stage.routing(GROUP)
        self.topic_id = cluster.stage.history.topic_ids[TOPIC]

    @property
    def coordinator(self) -> BrokerHost:
        state = self._cluster.stage.partition(OFFSETS_TOPIC, 0)
        assert state is not None
        return self._cluster.stage.member(state.leader)

    async def commit(self) -> None:
        await self._cluster.until(self._commit, "the offset is not committed")

    async def _commit(self) -> None:
        commit = Commit(TOPIC, self.topic_id, INDEX, 1, "")
        [code] = await (await self._client()).commit(Identity(GROUP), [commit])
        check_error(code)

    async def check_forgotten(self) -> None:
        shown = await self._cluster.until(self._fetch, "the offset is not told")
        if shown is not None:
            raise InvariantViolated("removed offsets", f"{GROUP} is at {shown} of a removed partition")

    async def _fetch(self) -> ShownOffset | None:
        return await (await self._client()).fetch_offset(GROUP, TOPIC, self.topic_id, INDEX)

    async def _client(self) -> GroupClient:
        self._routing.mistrust_coordinator(GROUP)
        return GroupClient((await self._routing.coordinator(GROUP))[1])
