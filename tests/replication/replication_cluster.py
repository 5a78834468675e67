"""Replicas of several brokers in one process: real logs, real Fetch handlers over TCP, and a stand-in for the
controller.

The stand-in is the store: it records partitions with their versions, and shows every image to every broker
that it can reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from penstock.clock import SystemClock
from penstock.cluster.eligible import with_members
from penstock.cluster.image import ClusterImage, ImageChange, PartitionState, RegisteredBroker, TopicImage
from penstock.config import Address, BrokerConfig, Listener, SecurityProtocol
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.network import TcpNetwork
from penstock.observability.alarms import Alarms
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.replication.context import ReplicationContext
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync_writer import InSyncOutcome, InSyncWrite, InSyncWriter, WriteResult
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.acceptor import Acceptor
from penstock.server.connection_numbers import ConnectionNumbers
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Dispatcher
from penstock.server.door import Door
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.handlers import all_apis
from penstock.server.long_polls import LongPolls
from penstock.server.share_sessions import ShareSessions
from penstock.storage.disk import RealDisk
from penstock.storage.log_manager import LogManager
from penstock.threads import ThreadPools
from penstock.wire.apis import api_name
from support.eventually import eventually_async

TOPIC = "orders"
TOPIC_ID = TopicId(UUID(int=77))
LAG_MS = 400
WAIT_SECONDS = 20.0


class WallClock(SystemClock):
    """Clock of all brokers, whose wall time a test may set."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class Metadata:
    image: ClusterImage


class Node:
    """Replication part of one broker."""

    def __init__(self, cluster: Cluster, node_id: int, directory: Path) -> None:
        self.id = BrokerId(node_id)
        self.cluster = cluster
        self.directory = directory
        self.is_reachable = True

    async def start(self) -> None:
        clock, random = self.cluster.clock, Random(self.id)
        self.config = self.cluster.config_of(self.id)
        self.threads = ThreadPools()
        self.disk = RealDisk(str(self.directory))
        self.logs = LogManager(self.disk, self.id)
        self.logs.open(clock.now_ms(), UUID(int=self.id))
        self.log = Logger(
            clock, self.cluster.lines.append, lambda now, level, text, fields: f"{self.id} {text} {fields}"
        )
        self.flusher = Flusher(self.disk, self.threads, clock, lambda seconds: None)
        network = TcpNetwork()
        apis = all_apis()
        metrics = BrokerMetrics({api.key: api_name(api.key) for api in apis}, 10)
        self.alarms = Alarms(clock, self.log, metrics)
        replication = ReplicationContext(
            self.id, self.logs, self.flusher, self.threads, clock, network, random, self.log, self.alarms
        )
        self.replicas = ReplicaManager(replication, self.config)
        self.metadata = Metadata(self.cluster.image)
        context = BrokerContext(
            node_id=self.id,
            config=self.config,
            clock=clock,
            threads=self.threads,
            disk=self.disk,
            metadata=cast(Any, self.metadata),
            administration=cast(Any, None),
            partition_admin=cast(Any, None),
            logs=self.logs,
            replicas=self.replicas,
            groups=cast(Any, None),
            transactions=cast(Any, None),
            share=cast(Any, SimpleNamespace(sessions=ShareSessions(cast(Any, None)))),
            objects=cast(Any, None),
            verifier=cast(Any, None),
            marker_writer=cast(Any, None),
            hanging_transactions=cast(Any, None),
            connection_numbers=ConnectionNumbers(),
            producer_ids=cast(Any, None),
            fetch_sessions=FetchSessions(10, 1000, 0, random),
            long_polls=LongPolls(random),
            acl_admin=cast(Any, None),
            authorization=cast(Any, SimpleNamespace(audit=None)),
            metrics=metrics,
            alarms=self.alarms,
            random=random,
        )
        self.acceptor = Acceptor(context, Dispatcher(context, apis), self.log)
        listener = Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, Address("127.0.0.1", 0))
        self.port = await self.acceptor.listen(network, Door(listener, context, self.log, HandshakeTurns()))
        self.acceptor.open()
        self.writer = InSyncWriter(self.replicas, self.cluster, clock, self.log)

    async def join(self) -> None:
        self.metadata.image = self.cluster.image
        await self.replicas.load(self.cluster.image)
        self.writer.start()

    def see(self, change: ImageChange) -> None:
        self.metadata.image = change.after
        self.replicas.follow(change, self.config)

    async def stop(self) -> None:
        await self.writer.stop()
        self.acceptor.close()
        await self.replicas.stop()
        await self.flusher.drain()
        self.logs.close(BrokerEpoch(0))
        self.threads.close()

    def replica(self, index: int = 0) -> Replica:
        return self.replicas._replicas[TOPIC, index]

    def content(self, index: int, below: int) -> bytes:
        """Bytes of the log, up to the last batch with a base offset below `end`."""
        log, offset, found = self.replica(index).log, Offset(0), bytearray()
        while offset < min(below, log.log_end_offset):
            part = log.read(offset, 1 << 20, below=Offset(below), at_least_one=True, wait=True).read()
            position = 0
            while position < len(part):
                header = read_header(part, position)
                position, offset = position + header.size, header.next_offset
            found += part
        return bytes(found)


@dataclass
class Cluster:
    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    machines: dict[int, str] = field(default_factory=dict)
    topic_settings: dict[str, str] = field(default_factory=dict)
    nodes: dict[BrokerId, Node] = field(default_factory=dict)
    image: ClusterImage = field(default_factory=lambda: ClusterImage("cluster"))
    lines: list[str] = field(default_factory=list)
    clock: WallClock = field(default_factory=WallClock)
    loses_answers: bool = False
    epoch: int = 0

    def config_of(self, node_id: BrokerId) -> BrokerConfig:
        return BrokerConfig(
            {
                "node.id": str(node_id),
                "cluster.secret": "between us",
                "replica.lag.time.max.ms": str(LAG_MS),
                "replica.fetch.wait.max.ms": "50",
                "log.dir": str(self.directory / str(node_id)),
                **self.settings,
            }
        )

    # --- brokers

    async def start(self, count: int = 3, partitions: int = 1) -> None:
        for node_id in range(1, count + 1):
            await self.add(node_id)
        replicas = tuple(self.nodes)
        states = tuple(
            PartitionState(replicas[index % count], LeaderEpoch(1), replicas, replicas, 0)
            for index in range(partitions)
        )
        topic = TopicImage(TOPIC, TOPIC_ID, states, self.topic_settings, 0)
        self.show(self.image.with_topics([topic]), TOPIC)
        await self.settled()

    async def add(self, node_id: int) -> Node:
        """Register a broker, again or for the first time."""
        node = Node(self, node_id, self.directory / str(node_id))
        await node.start()
        self.epoch += 1
        machine = self.machines.get(node_id, f"machine-{node_id}")
        broker = RegisteredBroker(node.id, "127.0.0.1", node.port, BrokerEpoch(self.epoch), machine)
        self.show(replace(self.image, brokers={**self.image.brokers, node.id: broker}))
        self.nodes[node.id] = node
        await node.join()
        return node

    async def remove(self, node_id: int) -> None:
        """Stop a broker and show the others an image without it."""
        node = self.nodes.pop(BrokerId(node_id))
        await node.stop()
        brokers = {key: broker for key, broker in self.image.brokers.items() if key != node_id}
        self.show(replace(self.image, brokers=brokers))

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()
        problems = [line for line in self.lines if "Traceback" in line]
        assert not problems, problems[0]

    # --- the image

    def show(self, image: ClusterImage, *topics: str) -> None:
        change = ImageChange(self.image, image, frozenset(topics))
        self.image = image
        for node in self.nodes.values():
            if node.is_reachable:
                node.see(ImageChange(node.metadata.image, image, change.topics))

    async def settled(self) -> None:
        for node in self.nodes.values():
            await node.replicas.settled()

    def state(self, index: int = 0) -> PartitionState:
        return self.image.topics[TOPIC].partitions[index]

    def record(self, index: int, **changes: Any) -> None:
        topic = self.image.topics[TOPIC]
        state = topic.partitions[index]
        states = list(topic.partitions)
        states[index] = replace(state, partition_epoch=state.partition_epoch + 1, **changes)
        self.show(self.image.with_topics([replace(topic, partitions=tuple(states))]), TOPIC)

    async def elect(self, leader: int, index: int = 0, isr: Sequence[int] | None = None) -> None:
        state = self.state(index)
        members = state.isr if isr is None else tuple(map(BrokerId, isr))
        assert leader in members
        self.record(
            index, leader=BrokerId(leader), leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=members
        )
        await self.settled()

    async def write_in_sync(self, writes: Sequence[InSyncWrite]) -> Sequence[InSyncOutcome]:
        outcomes = []
        for write in writes:
            state = self.state(write.name.partition)
            if state.partition_epoch != write.change.partition_epoch:
                outcomes.append(InSyncOutcome(WriteResult.REFUSED))
                continue
            members = tuple(sorted(write.change.members))
            changed = with_members(
                state,
                members,
                keeps_eligible=write.change.keeps_eligible,
                committed=write.change.committed,
                log_end=write.change.log_end,
            )
            self.record(
                write.name.partition,
                isr=changed.isr,
                eligible=changed.eligible,
                committed=changed.committed,
                sole_end=changed.sole_end,
                last_resort=changed.last_resort,
            )
            epoch = self.state(write.name.partition).partition_epoch
            result = WriteResult.UNKNOWN if self.loses_answers else WriteResult.RECORDED
            outcomes.append(InSyncOutcome(result, epoch))
        return outcomes

    # --- clients

    def leader(self, index: int = 0) -> Replica:
        return self.nodes[self.state(index).leader].replicas.get(TOPIC, index)

    def append(
        self, *values: bytes, index: int = 0, replica: Replica | None = None
    ) -> asyncio.Future[Exception | None]:
        """Append a batch; the future ends when it is committed or refused."""
        replica = replica or self.leader(index)
        batch = memoryview(build_batch([NewRecord(None, value, 1_700_000_000_000) for value in values]))
        info = replica.append_as_leader(batch, read_header(batch), SystemClock().now_ms())
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        if replica.when_committed(info, done.set_result):
            done.set_result(None)
        return done

    async def produce(self, *values: bytes, index: int = 0) -> None:
        outcome = await asyncio.wait_for(self.append(*values, index=index), WAIT_SECONDS)
        assert outcome is None, outcome

    async def same(self, index: int = 0) -> None:
        """Wait until all running replicas have the same bytes and the same high watermark."""
        replicas = [node.replica(index) for node in self.nodes.values()]
        leader = self.leader(index)
        await eventually_async(
            lambda: all(
                each.log.log_end_offset == leader.log.log_end_offset
                and each.log.high_watermark == leader.log.log_end_offset
                for each in replicas
            ),
            "equal logs",
        )
        end = leader.log.log_end_offset
        assert len({node.content(index, end) for node in self.nodes.values()}) == 1
