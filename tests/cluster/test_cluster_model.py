"""Several brokers in one process on one store, with crashes, expired sessions and unknown outcomes.

Every write of a partition's state is checked as it happens: a leader is from the recorded in-sync set, epochs
only increase, and no two brokers lead in the same epoch. At the end all images equal the store, and every
partition that can have a leader has one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from node import ClusterNode

from penstock.cluster import topic_writes, znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState
from penstock.cluster.loading import load_image
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.cluster.partition_admin import ReassignmentRequest
from penstock.cluster.topics import CreatableTopic, NewPartitions
from penstock.cluster.tree import PreparedWrite
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, BrokerId, TopicPartition
from support.eventually import eventually_async

BROKERS = (1, 2, 3)
STEPS = 40
EXPECTED = {
    ErrorCode.not_controller,
    ErrorCode.request_timed_out,
    ErrorCode.topic_already_exists,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_replica_assignment,
    ErrorCode.invalid_partitions,
    ErrorCode.no_reassignment_in_progress,
}


class CheckingEnsemble(MemoryEnsemble):
    def commit(self, transaction: PreparedWrite) -> None:
        for path, entry in transaction.changes.items():
            before = self.tree.entries.get(path)
            if entry is None or before is None or path.count("/") != 3 or not path.startswith(znodes.TOPICS):
                continue
            if entry.version != before.version:  # otherwise it was deleted and created again
                _check(
                    znodes.decode(before.data, znodes.PartitionNode),
                    znodes.decode(entry.data, znodes.PartitionNode),
                )
        super().commit(transaction)


def _check(before: znodes.PartitionNode, after: znodes.PartitionNode) -> None:
    given_up = set(before.replicas) - set(after.replicas)
    if given_up - set(before.adding):
        assert set(before.adding) <= set(before.isr), (
            "nobody is given up before all that are added are in sync"
        )
        assert after.replicas == before.target
    if given_up:
        assert after.leader_epoch > before.leader_epoch, "who is given up is fenced"
    assert set(after.isr) <= set(after.replicas)
    assert after.isr or not before.isr
    if after.leader_epoch == before.leader_epoch:
        assert after.leader == before.leader, "one leader in an epoch"
    else:
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.leader == NO_LEADER or after.leader in before.isr, "a leader was in sync"
    assert after.leader == NO_LEADER or after.leader in after.isr


def _shrink(node: BrokerId, random: Random) -> partial[PartitionState | None]:
    return partial(_resize, node=node, random=random)


def _resize(
    _: ClusterImage, name: TopicPartition, partition: PartitionState, node: BrokerId, random: Random
) -> PartitionState | None:
    """Shrink or extend the in-sync set, as a leader does."""
    others = [broker for broker in partition.replicas if broker != node]
    if partition.leader != node or not others:
        return None
    other = random.choice(others)
    isr = set(partition.isr) ^ {other}
    return replace(partition, isr=tuple(broker for broker in partition.replicas if broker in isr))


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ensemble = CheckingEnsemble()
        self.nodes: dict[int, ClusterNode] = {}
        self.clean: dict[int, BrokerEpoch] = {}
        self.faults = Faults(self.random, unknown_applied=0.05, unknown_not_applied=0.05, max_delay_s=0.001)
        self.stores: dict[int, MemoryStore] = {}

    async def start(self, number: int) -> None:
        store = self.stores[number] = self.ensemble.client(self.faults)
        await store.start()
        node = ClusterNode(store, BrokerId(number), seed=self.random.randrange(1 << 30))
        self.nodes[number] = node
        try:
            await node.load()
            await node.register(clean_epoch=self.clean.pop(number, None))
            await node.membership.take_leadership()
            await node.controller.start()
        except BrokerError as error:
            self.expect(error)
            await self.end(number)

    async def end(self, number: int, *, is_clean: bool = False) -> None:
        node = self.nodes.pop(number)
        if is_clean and node.node_id in node.metadata.image.brokers:
            await self.leave(node)
            self.clean[number] = node.metadata.image.brokers[node.node_id].epoch
        await node.stop()
        self.stores[number].expire()

    async def leave(self, node: ClusterNode) -> None:
        try:
            async with asyncio.timeout(0.1):
                await node.membership.leave()
        except TimeoutError:
            pass  # there is no controller now
        except BrokerError as error:
            self.expect(error)

    async def step(self) -> None:
        number = self.random.choice(BROKERS)
        if number not in self.nodes:
            await self.start(number)
            return
        deed = self.random.random()
        if deed < 0.1:
            await self.end(number)
        elif deed < 0.15:
            await self.end(number, is_clean=True)
        elif deed < 0.2:
            self.stores[number].expire()
            await self.end(number)
        elif deed < 0.25:
            await self.depose()
        else:
            await self.administer(self.nodes[number])

    async def depose(self) -> None:
        """Remove the controller, which is alive, as if it were dead. Another one may be elected."""
        store = self.ensemble.client()
        await store.start()
        if await store.get_many([znodes.CONTROLLER]) != [None]:
            await store.delete(znodes.CONTROLLER)
        await store.close()

    async def administer(self, node: ClusterNode) -> None:
        admin, random = node.administration, self.random
        name = f"t{random.randrange(4)}"
        try:
            match random.randrange(10):
                case 0 | 1:
                    members = sorted(node.metadata.image.brokers)
                    replicas = random.sample(members, random.randint(1, len(members)))
                    count = random.randint(1, 6)
                    await admin.create_topics(
                        [CreatableTopic(name, assignment=[(n, replicas) for n in range(count)])]
                    )
                case 2:
                    await admin.delete_topics([name])
                case 3:
                    await admin.create_partitions([NewPartitions(name, random.randint(2, 9))])
                case 4:
                    await self.move(node, name)
                case 5:
                    change = ConfigAlteration("segment.ms", str(random.randint(1, 9)))
                    await admin.alter_configs([ConfigChange(ConfigResourceType.TOPIC, name, [change])])
                case _:
                    await node.changes.rule(_shrink(node.node_id, random), [name])
        except BrokerError as error:
            self.expect(error)

    async def move(self, node: ClusterNode, name: str) -> None:
        topic, random = node.metadata.image.topic(name), self.random
        if topic is not None:
            index = TopicPartition(name, random.randrange(len(topic.partitions)))
            target = tuple(map(BrokerId, random.sample(BROKERS, random.randint(1, len(BROKERS)))))
            wanted = ReassignmentRequest(index, None if random.random() < 0.2 else target)
            [refusal] = await node.partition_admin.reassign([wanted])
            if refusal is not None:
                self.expect(refusal)

    def expect(self, error: BrokerError) -> None:
        if error.code not in EXPECTED:
            raise error

    def is_settled(self) -> bool:
        images = [node.metadata.image for node in self.nodes.values()]
        alive = set(images[0].brokers)
        return (
            all(image == images[0] for image in images)
            and images[0].controller_id in alive == set(self.nodes)
            and all(
                partition.leader in alive
                if alive.intersection(partition.isr)
                else partition.leader == NO_LEADER
                for topic in images[0].topics.values()
                for partition in topic.partitions
            )
            and not any(
                len(partition.target_replicas) > 1
                and set(partition.target_replicas) <= set(partition.isr) <= alive
                for topic in images[0].topics.values()
                for partition in topic.partitions
            )
        )

    async def is_quiet(self) -> bool:
        first = self.nodes[1]
        return self.is_settled() and first.metadata.image == await load_image(first.store)

    async def run(self) -> bool:
        """Return whether all brokers have the image of the store in the end."""
        for _ in range(STEPS):
            await self.step()
            if self.random.random() < 0.5:
                await asyncio.sleep(0.002)
        self.faults.unknown_applied = self.faults.unknown_not_applied = 0
        for number in BROKERS:
            if number not in self.nodes:
                await self.start(number)
        agree = bool(await eventually_async(self.is_quiet, poll_s=0))
        for node in self.nodes.values():
            await node.stop()
        return agree


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
def test_brokers_agree_after_crashes_and_expired_sessions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_writes, "MAX_PARTITIONS_PER_MULTI", 4)
    monkeypatch.setattr("penstock.cluster.controller.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("penstock.cluster.metadata.RETRY_SECONDS", 0.01)
    assert asyncio.run(Life(seed).run())
