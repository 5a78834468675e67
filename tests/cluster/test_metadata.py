"""Image of a broker: follows the change list in order and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from node import ClusterNode

from penstock.cluster import change_list, controller, metadata, znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.coordination import Create, Delete, Node, Set
from penstock.cluster.image import ImageChange
from penstock.cluster.loading import load_image, read_topics
from penstock.cluster.memory import MemoryEnsemble, MemoryStore
from penstock.cluster.topics import CreatableTopic, NewPartitions
from penstock.config import NUM_PARTITIONS
from penstock.config.resources import ConfigResourceType
from penstock.errors import StorageError
from penstock.model import BrokerId
from support.eventually import eventually_async


def run(scenario: Callable[[ClusterNode, ClusterNode, MemoryEnsemble], Awaitable[None]]) -> None:
    """Two brokers, the first of which is the controller."""

    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = []
        for number in (1, 2):
            store = ensemble.client()
            await store.start()
            nodes.append(await ClusterNode(store, BrokerId(number), seed=number).start())
        first, second = nodes
        await scenario(first, second, ensemble)
        for node in nodes:
            await node.stop()

    asyncio.run(body())


def test_brokers_see_registrations_of_others() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await eventually_async(lambda: set(first.metadata.image.brokers) == {1, 2})
        assert first.metadata.image.controller_id == second.metadata.image.controller_id == 1
        await second.stop()
        await second.store.close()
        await eventually_async(lambda: set(first.metadata.image.brokers) == {1})

    run(scenario)


def test_changes_reach_other_brokers_by_watch() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        heard: list[ImageChange] = []
        second.metadata.subscribe(heard.append)
        await first.administration.create_topics([CreatableTopic("a", 3, 1), CreatableTopic("b", 1, 1)])
        await first.administration.create_partitions([NewPartitions("a", 5)])
        everywhere = ConfigChange(ConfigResourceType.BROKER, "", [ConfigAlteration("num.partitions", "7")])
        group = ConfigChange(
            ConfigResourceType.GROUP, "g", [ConfigAlteration("consumer.session.timeout.ms", "50000")]
        )
        assert await first.administration.alter_configs([everywhere, group]) == [None, None]
        await first.administration.delete_topics(["b"])
        await eventually_async(lambda: second.metadata.image == first.metadata.image)
        assert second.metadata.config[NUM_PARTITIONS] == 7
        assert set(second.metadata.image.topics) == {"a"}
        assert all(one.after is two.before for one, two in pairwise(heard))

    run(scenario)


def test_broker_behind_the_trimmed_list_reloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "MAX_CHANGES", 3)
    monkeypatch.setattr(change_list, "TRIMMED_AT_ONCE", 1)
    monkeypatch.setattr(controller, "TRIMMED_AT_ONCE", 1)

    async def scenario(first: ClusterNode, second: ClusterNode, ensemble: MemoryEnsemble) -> None:
        await first.administration.create_topics([CreatableTopic("gone", 1, 1)])
        await second.metadata.catch_up()
        await second.metadata.close()
        await first.administration.delete_topics(["gone"])
        for number in range(10):
            await first.administration.create_topics([CreatableTopic(f"t{number}", 1, 1)])
        await eventually_async(lambda: len(ensemble.tree.children(znodes.CHANGES)) <= 4)
        heard: list[ImageChange] = []
        second.metadata.subscribe(heard.append)
        await second.metadata.catch_up()
        assert second.metadata.image == await load_image(first.store)
        assert heard[0].topics == {"gone", *(f"t{number}" for number in range(10))}
        await first.administration.create_topics([CreatableTopic("next", 1, 1)])
        await second.metadata.catch_up()
        assert "next" in second.metadata.image.topics

    run(scenario)


def test_topic_created_again_is_another_topic() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([CreatableTopic("a", 2, 1)])
        await second.metadata.catch_up()
        await second.metadata.close()
        await first.administration.delete_topics(["a"])
        [new] = await first.administration.create_topics([CreatableTopic("a", 1, 1)])
        await second.metadata.catch_up()
        image = second.metadata.image
        assert image.topics["a"] == new
        assert list(image.topic_names) == [image.topics["a"].id]

    run(scenario)


class InterferingStore(MemoryStore):
    """Store that runs an action between two rounds of reads."""

    before_reading_partitions: Callable[[], Awaitable[object]] | None = None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        happens = self.before_reading_partitions
        if happens is not None and any(path.count("/") == 3 for path in paths):
            self.before_reading_partitions = None
            await happens()
        return await super().get_many(paths)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_topic_deleted_during_read_is_not_mixed_with_its_successor(is_made_again: bool) -> None:
    async def scenario(first: ClusterNode, _: ClusterNode, ensemble: MemoryEnsemble) -> None:
        await first.administration.create_topics([CreatableTopic("a", 3, 1), CreatableTopic("b", 1, 1)])
        store = InterferingStore(ensemble)
        await store.start()

        async def change() -> None:
            await first.administration.delete_topics(["a"])
            if is_made_again:
                await first.administration.create_topics([CreatableTopic("a", 2, 1)])

        store.before_reading_partitions = change
        assert await read_topics(store, ["a", "b"]) == first.metadata.image.topics
        assert ("a" in first.metadata.image.topics) == is_made_again

    run(scenario)


def test_missing_partition_node_is_damage_not_deletion() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([CreatableTopic("a", 3, 1)])
        await eventually_async(lambda: "a" in second.metadata.image.topics)
        await first.store.multi([Delete(znodes.partition_path("a", 1))])
        with pytest.raises(StorageError, match="partition 1 of topic a"):
            await second.metadata.reload()
        assert len(second.metadata.image.topics["a"].partitions) == 3

    run(scenario)


def test_foreign_nodes_beside_brokers_are_ignored() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.store.multi([Create(f"{znodes.BROKER_IDS}/a note")])
        await first.administration.create_topics([CreatableTopic("a", 1, 1)])
        await eventually_async(lambda: "a" in second.metadata.image.topics)
        await first.stop()
        await first.store.close()
        await eventually_async(lambda: set(second.metadata.image.brokers) == {2})

    run(scenario)


def test_broker_recovers_when_damaged_node_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "RETRY_SECONDS", 0.01)

    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([CreatableTopic("a", 1, 1)])
        await eventually_async(lambda: "a" in second.metadata.image.topics)
        path = znodes.topic_path("a")
        whole = await first.store.get(path)
        told = znodes.encode(znodes.ChangeNode("by hand", topics=("a",)))
        entry = Create(znodes.CHANGE_PREFIX, told, sequential=True)
        await first.store.multi([Set(path, b"{", whole.version), entry])
        with pytest.raises(StorageError, match="TopicNode"):
            await second.metadata.catch_up()
        await first.store.set(path, whole.data, whole.version + 1)
        await eventually_async(lambda: second.metadata.image.topics["a"].version == whole.version + 2)

    run(scenario)
