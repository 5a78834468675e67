"""The image of a broker: it changes by what the store says, in the order of the change list, and misses nothing."""

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
from penstock.cluster.topics import NewPartitions, NewTopic
from penstock.config import NUM_PARTITIONS
from penstock.config.resources import ConfigResourceType
from penstock.errors import StorageError
from penstock.model import BrokerId
from support.eventually import eventually_async


def run(scenario: Callable[[ClusterNode, ClusterNode, MemoryEnsemble], Awaitable[None]]) -> None:
    """With two brokers, of which the first is controller."""

    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = []
        for number in (1, 2):
            store = ensemble.client()
            await store.start()
            nodes.append(await ClusterNode(store, BrokerId(number), seed=number).start())
        await scenario(*nodes, ensemble)
        for node in nodes:
            await node.stop()

    asyncio.run(body())


def test_brokers_see_each_other_come_and_go() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await eventually_async(lambda: set(first.metadata.image.brokers) == {1, 2})
        assert first.metadata.image.controller_id == second.metadata.image.controller_id == 1
        await second.stop()
        await second.store.close()
        await eventually_async(lambda: set(first.metadata.image.brokers) == {1})

    run(scenario)


def test_what_one_changes_the_other_sees_without_asking() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        heard: list[ImageChange] = []
        second.metadata.subscribe(heard.append)
        await first.administration.create_topics([NewTopic("a", 3, 1), NewTopic("b", 1, 1)])
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


def test_one_that_fell_behind_the_list_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "MAX_CHANGES", 3)
    monkeypatch.setattr(change_list, "TRIMMED_AT_ONCE", 1)
    monkeypatch.setattr(controller, "TRIMMED_AT_ONCE", 1)

    async def scenario(first: ClusterNode, second: ClusterNode, ensemble: MemoryEnsemble) -> None:
        await first.administration.create_topics([NewTopic("gone", 1, 1)])
        await second.metadata.catch_up()
        await second.metadata.close()
        await first.administration.delete_topics(["gone"])
        for number in range(10):
            await first.administration.create_topics([NewTopic(f"t{number}", 1, 1)])
        await eventually_async(lambda: len(ensemble.tree.children(znodes.CHANGES)) <= 4)
        heard: list[ImageChange] = []
        second.metadata.subscribe(heard.append)
        await second.metadata.catch_up()
        assert second.metadata.image == await load_image(first.store)
        assert heard[0].topics == {"gone", *(f"t{number}" for number in range(10))}
        await first.administration.create_topics([NewTopic("next", 1, 1)])
        await second.metadata.catch_up()
        assert "next" in second.metadata.image.topics

    run(scenario)


def test_a_topic_made_again_is_another_one() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([NewTopic("a", 2, 1)])
        await second.metadata.catch_up()
        await second.metadata.close()
        await first.administration.delete_topics(["a"])
        [new] = await first.administration.create_topics([NewTopic("a", 1, 1)])
        await second.metadata.catch_up()
        image = second.metadata.image
        assert image.topics["a"] == new
        assert list(image.topic_names) == [image.topics["a"].id]

    run(scenario)


class InterferingStore(MemoryStore):
    """Lets something happen between two rounds of reading."""

    before_reading_partitions: Callable[[], Awaitable[object]] | None = None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        happens = self.before_reading_partitions
        if happens is not None and any(path.count("/") == 3 for path in paths):
            self.before_reading_partitions = None
            await happens()
        return await super().get_many(paths)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_goes_while_it_is_read_is_not_put_together_from_two(is_made_again: bool) -> None:
    async def scenario(first: ClusterNode, _: ClusterNode, ensemble: MemoryEnsemble) -> None:
        await first.administration.create_topics([NewTopic("a", 3, 1), NewTopic("b", 1, 1)])
        store = InterferingStore(ensemble)
        await store.start()

        async def change() -> None:
            await first.administration.delete_topics(["a"])
            if is_made_again:
                await first.administration.create_topics([NewTopic("a", 2, 1)])

        store.before_reading_partitions = change
        assert await read_topics(store, ["a", "b"]) == first.metadata.image.topics
        assert ("a" in first.metadata.image.topics) == is_made_again

    run(scenario)


def test_a_partition_that_is_missing_is_damage_and_never_looks_like_a_deletion() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([NewTopic("a", 3, 1)])
        await eventually_async(lambda: "a" in second.metadata.image.topics)
        await first.store.multi([Delete(znodes.partition_path("a", 1))])
        with pytest.raises(StorageError, match="partition 1 of topic a"):
            await second.metadata.reload()
        assert len(second.metadata.image.topics["a"].partitions) == 3

    run(scenario)


def test_what_strangers_put_beside_brokers_is_not_looked_at() -> None:
    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.store.multi([Create(f"{znodes.BROKER_IDS}/a note")])
        await first.administration.create_topics([NewTopic("a", 1, 1)])
        await eventually_async(lambda: "a" in second.metadata.image.topics)
        await first.stop()
        await first.store.close()
        await eventually_async(lambda: set(second.metadata.image.brokers) == {2})

    run(scenario)


def test_a_damaged_node_stops_nobody_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "RETRY_SECONDS", 0.01)

    async def scenario(first: ClusterNode, second: ClusterNode, _: MemoryEnsemble) -> None:
        await first.administration.create_topics([NewTopic("a", 1, 1)])
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
