"""Topics too large for one write: no partial state is visible, and leftovers of a crash are cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest
from node import ClusterNode

from penstock.cluster import topic_writes, znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.coordination import Node, Operation
from penstock.cluster.image import ClusterImage, ImageChange, TopicImage
from penstock.cluster.loading import load_image
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.cluster.topics import CreatableTopic, NewPartitions
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId

LARGE = 11

Change = Callable[[ClusterNode], Awaitable[Sequence[object]]]
CHANGES: dict[str, Change] = {
    "create": lambda node: node.administration.create_topics([CreatableTopic("new", LARGE)]),
    "grow": lambda node: node.administration.create_partitions([NewPartitions("small", 1 + LARGE)]),
    "delete": lambda node: node.administration.delete_topics(["large"]),
    "create several": lambda node: node.administration.create_topics(
        [CreatableTopic("a", 2), CreatableTopic("b", LARGE), CreatableTopic("c", 3), CreatableTopic("d", 1)]
    ),
}


class Crash(Exception):
    pass


class CrashingStore(MemoryStore):
    """Store whose process dies after `writes` writes."""

    writes: int | None = None

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        if self.writes is None:
            return await super().multi(operations)
        if self.writes == 0:
            raise Crash
        self.writes -= 1
        return await super().multi(operations)


@pytest.fixture(autouse=True)
def small_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_writes, "MAX_PARTITIONS_PER_MULTI", 4)


async def started(store: MemoryStore, seed: int = 1) -> ClusterNode:
    await store.start()
    return await ClusterNode(store, seed=seed).start()


async def prepared(ensemble: MemoryEnsemble) -> tuple[ClusterNode, CrashingStore]:
    store = CrashingStore(ensemble)
    node = await started(store)
    await node.administration.create_topics([CreatableTopic("small", 1), CreatableTopic("large", LARGE)])
    return node, store


def shape(image: ClusterImage) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in image.topics.items()}


def nodes_in_store(ensemble: MemoryEnsemble) -> dict[str, int]:
    tree = ensemble.tree
    return {name: tree.child_count(znodes.topic_path(name)) for name in tree.children(znodes.TOPICS)}


@pytest.mark.parametrize("name", CHANGES)
def test_large_change_is_atomic_wherever_it_stops(name: str) -> None:
    async def crash_after(writes: int) -> bool:
        """Whether the change completed before the crash."""
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        before = shape(node.metadata.image)
        store.writes = writes
        try:
            await CHANGES[name](node)
            finished = True
        except Crash:
            finished = False
        await store.close()

        seen = shape(await load_image(await opened(ensemble)))
        allowed = [before, *await steps_of(name)]
        assert seen in allowed
        successor = await started(ensemble.client(), seed=2)
        assert shape(successor.metadata.image) == seen, "tidying changes nothing that is seen"
        assert nodes_in_store(ensemble) == seen, "and leaves nothing behind"
        await CHANGES[name](successor)
        assert shape(successor.metadata.image) == allowed[-1]
        assert nodes_in_store(ensemble) == allowed[-1]
        assert successor.metadata.image == await load_image(await opened(ensemble))
        return finished

    async def body() -> None:
        writes = 0
        while not await crash_after(writes):
            writes += 1
        assert writes >= 4

    asyncio.run(body())


async def steps_of(name: str) -> list[dict[str, int]]:
    """States that the change shows to others, in order."""
    node, _ = await prepared(MemoryEnsemble())
    heard: list[ImageChange] = []
    node.metadata.subscribe(heard.append)
    await CHANGES[name](node)
    return [shape(change.after) for change in heard if shape(change.after) != shape(change.before)]


async def opened(ensemble: MemoryEnsemble) -> MemoryStore:
    store = ensemble.client()
    await store.start()
    return store


def test_large_topic_appears_and_disappears_at_once() -> None:
    async def body() -> None:
        assert await steps_of("create") == [{"small": 1, "large": LARGE, "new": LARGE}]
        assert await steps_of("grow") == [{"small": 1 + LARGE, "large": LARGE}]
        assert await steps_of("delete") == [{"small": 1}]

    asyncio.run(body())


def test_items_of_a_request_share_writes() -> None:
    async def body() -> None:
        node, _ = await prepared(MemoryEnsemble())
        heard: list[ImageChange] = []
        node.metadata.subscribe(heard.append)
        await CHANGES["create several"](node)
        await node.administration.delete_topics(["a", "b", "c", "d"])
        assert [sorted(change.topics) for change in heard] == [["a"], ["b"], ["c", "d"]] * 2

    asyncio.run(body())


def test_versions_after_large_changes_are_right() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        await node.administration.create_partitions(
            [NewPartitions("large", 2 * LARGE), NewPartitions("small", 2)]
        )
        reads: list[int] = []
        node.metadata.subscribe(lambda _: reads.append(1))
        change = ConfigChange(ConfigResourceType.TOPIC, "large", [ConfigAlteration("segment.ms", "9")])
        assert await node.administration.alter_configs([change]) == [None]
        await node.membership.take_leadership()
        assert node.metadata.image == await load_image(store)
        assert isinstance((await node.administration.delete_topics(["large"]))[0], TopicImage)
        assert nodes_in_store(ensemble) == {"small": 2}

    asyncio.run(body())


@pytest.mark.parametrize("seed", range(20))
def test_unknown_outcomes_of_large_topics_are_resolved(seed: int) -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        store.faults = Faults(Random(seed), unknown_not_applied=0.05, unknown_applied=0.05)
        for name in ("create", "grow", "delete"):
            [result] = await CHANGES[name](node)
            assert isinstance(result, TopicImage)
        assert shape(node.metadata.image) == {"small": 1 + LARGE, "new": LARGE}
        assert node.metadata.image == await load_image(store)
        await store.close()
        await started(ensemble.client(), seed=2)
        assert nodes_in_store(ensemble) == {"small": 1 + LARGE, "new": LARGE}

    asyncio.run(body())


@pytest.mark.parametrize("seed", range(20))
def test_unfinished_partition_addition_is_cleaned_up_first(seed: int) -> None:
    """A config change would overwrite the record of the unfinished change, and the topic could never grow
    again.
    """

    async def body() -> None:
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        store.writes = 2
        with pytest.raises(Crash):
            await CHANGES["grow"](node)
        await store.close()
        unreliable = ensemble.client(Faults(Random(seed), unknown_not_applied=0.2, unknown_applied=0.2))
        successor = await started(unreliable, seed=2)
        change = ConfigChange(ConfigResourceType.TOPIC, "small", [ConfigAlteration("segment.ms", "9")])
        assert await successor.administration.alter_configs([change]) == [None]
        assert nodes_in_store(ensemble) == {"small": 1, "large": LARGE}
        unreliable.faults = None
        await CHANGES["grow"](successor)
        assert successor.metadata.image.topics["small"].configs == {"segment.ms": "9"}
        assert nodes_in_store(ensemble) == {"small": 1 + LARGE, "large": LARGE}

    asyncio.run(body())


def test_change_in_progress_of_alive_broker_is_not_cleaned_up() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        store.writes = 3
        with pytest.raises(Crash):
            await CHANGES["create"](node)
        other = await ClusterNode(await opened(ensemble), BrokerId(2), seed=2).start()
        left = nodes_in_store(ensemble)
        assert left["new"] > 0
        with pytest.raises(BrokerError) as refusal:
            await CHANGES["create"](other)
        assert refusal.value.code is ErrorCode.request_timed_out
        assert nodes_in_store(ensemble) == left
        store.writes = None
        await CHANGES["create"](node)
        assert nodes_in_store(ensemble) == {"small": 1, "large": LARGE, "new": LARGE}
        await store.close()

    asyncio.run(body())


def test_batches_before_a_store_failure_are_reported_as_done() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        node, store = await prepared(ensemble)
        node.metadata.subscribe(lambda _: store.expire())
        results = await node.administration.create_topics(
            [CreatableTopic("a", 3), CreatableTopic("b", 3), CreatableTopic("c", 3)]
        )
        assert isinstance(results[0], TopicImage)
        assert [result.code for result in results[1:] if isinstance(result, BrokerError)] == [
            ErrorCode.not_controller
        ] * 2
        assert nodes_in_store(ensemble) == {"small": 1, "large": LARGE, "a": 3}

    asyncio.run(body())
