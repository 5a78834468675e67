from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from node import NODE, ClusterNode

from penstock.cluster import change_list, controller, topic_writes, znodes
from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.coordination import CoordinationStore, Node, Operation
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.image import ImageChange, TopicImage
from penstock.cluster.loading import load_image
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.cluster.topics import CreatableTopic, NewPartitions
from penstock.config import NUM_PARTITIONS, BrokerConfig
from penstock.config.resources import ConfigOperation, ConfigResourceType
from penstock.errors import BrokerError, ErrorCode, StorageError, UnknownOutcome
from penstock.model import BrokerId
from penstock.threads import ThreadPools

TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP


async def started(store: CoordinationStore, seed: int = 1, config: BrokerConfig | None = None) -> ClusterNode:
    return await ClusterNode(store, seed=seed, config=config).start()


def run(scenario: Callable[[ClusterNode, CoordinationStore], Awaitable[None]], **settings: int) -> None:
    async def body() -> None:
        store = MemoryEnsemble().client()
        await store.start()
        config = BrokerConfig({name.replace("_", "."): str(value) for name, value in settings.items()})
        made = await started(store, config=config)
        await scenario(made, store)
        assert made.metadata.image == await load_image(store), "the image is what the store says"

    asyncio.run(body())


def codes(results: list[TopicImage | BrokerError] | list[BrokerError | None]) -> list[ErrorCode | None]:
    return [result.code if isinstance(result, BrokerError) else None for result in results]


def test_topics_are_created_found_and_deleted() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        results = await node.administration.create_topics(
            [
                CreatableTopic("a", partitions=3, configs={"retention.ms": "5"}),
                CreatableTopic("b/"),
                CreatableTopic("c"),
            ]
        )
        assert codes(results) == [None, ErrorCode.invalid_topic_exception, None]
        topic = node.metadata.image.topic("a")
        assert topic == results[0]
        assert topic is not None
        assert node.metadata.image.topic_by_id(topic.id) is topic
        assert topic.configs == {"retention.ms": "5"}
        assert [partition.leader for partition in topic.partitions] == [NODE] * 3
        assert codes(await node.administration.delete_topics(["a", "x"])) == [
            None,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert node.metadata.image.topic("a") is None
        assert node.metadata.image.topic_by_id(topic.id) is None
        again = await node.administration.create_topics([CreatableTopic("a")])
        assert isinstance(again[0], TopicImage)
        assert again[0].id != topic.id

    run(scenario)


def test_metadata_survives_restart(tmp_path: Path) -> None:
    async def body() -> None:
        threads = ThreadPools()
        path = str(tmp_path / "metadata.sqlite")
        store = EmbeddedStore(path, threads)
        await store.start()
        first = await started(store)
        await first.administration.create_topics([CreatableTopic("a", partitions=2), CreatableTopic("b")])
        await first.administration.create_partitions([NewPartitions("b", 2)])
        await first.administration.alter_configs(
            [ConfigChange(BROKER, "", [ConfigAlteration("num.partitions", "7")])]
        )
        before = first.metadata.image
        await first.stop()
        await store.close()

        store = EmbeddedStore(path, threads)
        await store.start()
        second = await started(store, seed=2)
        after = second.metadata.image
        assert after.cluster_id == before.cluster_id
        assert after.brokers[NODE].epoch == before.brokers[NODE].epoch + 1
        assert second.metadata.config[NUM_PARTITIONS] == 7
        assert set(after.topics) == {"a", "b"}
        for name, topic in after.topics.items():
            assert topic.id == before.topics[name].id
            assert [p.leader_epoch for p in topic.partitions] == [1, 1]
        await second.stop()
        await store.close()
        threads.close()

    asyncio.run(body())


def test_repeated_name_is_refused_everywhere() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        twice = ErrorCode.invalid_request
        assert codes(
            await node.administration.create_topics(
                [CreatableTopic("a"), CreatableTopic("b"), CreatableTopic("a")]
            )
        ) == [
            twice,
            None,
            twice,
        ]
        assert codes(await node.administration.delete_topics(["b", "b"])) == [twice, twice]
        grow = NewPartitions("b", 5)
        assert codes(await node.administration.create_partitions([grow, grow])) == [twice, twice]
        change = ConfigChange(TOPIC, "b", [])
        assert codes(await node.administration.alter_configs([change, change])) == [twice, twice]
        assert len(node.metadata.image.topics["b"].partitions) == 1

    run(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(node: ClusterNode, store: CoordinationStore) -> None:
        await node.administration.create_topics([CreatableTopic("a")])
        before, changes = node.metadata.image, await store.children(znodes.CHANGES)
        results = await node.administration.create_topics(
            [CreatableTopic("b"), CreatableTopic("a")], validate_only=True
        )
        assert codes(results) == [None, ErrorCode.topic_already_exists]
        assert codes(
            await node.administration.create_partitions([NewPartitions("a", 3)], validate_only=True)
        ) == [None]
        change = ConfigChange(TOPIC, "a", [ConfigAlteration("retention.ms", "5")])
        assert codes(await node.administration.alter_configs([change], validate_only=True)) == [None]
        assert node.metadata.image is before
        assert await store.children(znodes.CHANGES) == changes

    run(scenario)


def test_requests_with_too_many_items_are_refused_as_a_whole() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        for call in (
            node.administration.create_topics([CreatableTopic(f"t{n}") for n in range(4)]),
            node.administration.delete_topics(["a", "b", "c", "d"]),
            node.administration.create_partitions([NewPartitions(f"t{n}", 2) for n in range(4)]),
        ):
            with pytest.raises(BrokerError) as refusal:
                await call
            assert refusal.value.code is ErrorCode.policy_violation

    run(scenario, max_topics_per_request=3)


def test_subscribers_see_changes_in_order_before_the_response() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        heard: list[ImageChange] = []
        node.metadata.subscribe(heard.append)
        await asyncio.gather(*(node.administration.create_topics([CreatableTopic(name)]) for name in "abc"))
        await node.administration.delete_topics(["b"])
        await node.administration.delete_topics(["unknown"])
        assert [sorted(change.topics) for change in heard] == [["a"], ["b"], ["c"], ["b"]]
        assert heard[-1].before.topic("b") is not None
        assert heard[-1].after is node.metadata.image
        assert all(one.after is two.before for one, two in itertools.pairwise(heard))

    run(scenario)


def test_update_shares_unchanged_parts() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        await node.administration.create_topics([CreatableTopic("a", partitions=5), CreatableTopic("b")])
        kept = node.metadata.image.topic("a")
        await node.administration.alter_configs(
            [ConfigChange(TOPIC, "b", [ConfigAlteration("segment.ms", "9")])]
        )
        assert node.metadata.image.topic("a") is kept

    run(scenario)


def test_leadership_is_taken_in_large_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_writes, "MAX_PARTITIONS_PER_MULTI", 4)

    async def scenario(node: ClusterNode, store: CoordinationStore) -> None:
        await node.administration.create_topics(
            [CreatableTopic("a", partitions=7), CreatableTopic("b", partitions=3)]
        )
        heard: list[ImageChange] = []
        node.metadata.subscribe(heard.append)
        await node.membership.take_leadership()
        assert len(heard) == 3
        for topic in node.metadata.image.topics.values():
            assert [partition.leader_epoch for partition in topic.partitions] == [1] * len(topic.partitions)

    run(scenario)


def test_incremental_changes_set_delete_append_and_subtract() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        await node.administration.create_topics(
            [CreatableTopic("a", configs={"retention.ms": "5", "segment.ms": "6"})]
        )

        async def alter(name: str, operation: ConfigOperation, value: str | None) -> ErrorCode | None:
            change = ConfigChange(TOPIC, "a", [ConfigAlteration(name, value, operation)])
            return codes(await node.administration.alter_configs([change]))[0]

        assert await alter("retention.ms", ConfigOperation.SET, "7") is None
        assert await alter("segment.ms", ConfigOperation.DELETE, None) is None
        assert node.metadata.image.topics["a"].configs == {"retention.ms": "7"}
        assert await alter("cleanup.policy", ConfigOperation.APPEND, "compact") is None
        assert node.metadata.image.topics["a"].configs["cleanup.policy"] == "delete,compact"
        assert await alter("cleanup.policy", ConfigOperation.APPEND, "compact") is None
        assert await alter("cleanup.policy", ConfigOperation.SUBTRACT, "delete") is None
        assert node.metadata.image.topics["a"].configs["cleanup.policy"] == "compact"
        before = node.metadata.image.topics["a"].configs
        assert await alter("retention.ms", ConfigOperation.APPEND, "1") is ErrorCode.invalid_config
        assert await alter("retention.ms", ConfigOperation.SET, "x") is ErrorCode.invalid_config
        assert await alter("retention.ms", ConfigOperation.SET, None) is ErrorCode.invalid_request
        assert await alter("no.such", ConfigOperation.SET, "x") is ErrorCode.invalid_config
        assert node.metadata.image.topics["a"].configs == before
        double = [ConfigAlteration("segment.ms", "1"), ConfigAlteration("segment.ms", "2")]
        assert codes(await node.administration.alter_configs([ConfigChange(TOPIC, "a", double)])) == [
            ErrorCode.invalid_request
        ]

    run(scenario)


def test_alter_configs_replaces_all_configs() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        await node.administration.create_topics(
            [CreatableTopic("a", configs={"retention.ms": "5", "segment.ms": "6"})]
        )
        change = ConfigChange(TOPIC, "a", [ConfigAlteration("segment.ms", "7")], replaces=True)
        assert codes(await node.administration.alter_configs([change])) == [None]
        assert node.metadata.image.topics["a"].configs == {"segment.ms": "7"}

    run(scenario)


def test_broker_settings_change_for_all_and_for_one() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        def change(broker: str, name: str, value: str) -> ConfigChange:
            return ConfigChange(BROKER, broker, [ConfigAlteration(name, value)])

        assert codes(await node.administration.alter_configs([change("", "num.partitions", "4")])) == [None]
        assert node.metadata.config[NUM_PARTITIONS] == 4
        assert codes(await node.administration.alter_configs([change("1", "num.partitions", "6")])) == [None]
        assert node.metadata.config[NUM_PARTITIONS] == 6
        kept = node.metadata.config
        refused = [
            change("2", "num.partitions", "4"),
            change("one", "num.partitions", "4"),
            change("", "node.id", "4"),
            change("", "retention.ms", "4"),
        ]
        assert codes(await node.administration.alter_configs(refused)) == [ErrorCode.invalid_request] * 4
        assert node.metadata.config is kept
        made = await node.administration.create_topics([CreatableTopic("t")])
        assert isinstance(made[0], TopicImage)
        assert len(made[0].partitions) == 6

    run(scenario)


def test_cluster_wide_and_broker_configs_must_be_consistent() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        low = ConfigAlteration("log.cleaner.max.compaction.lag.ms", "50")
        high = ConfigAlteration("log.cleaner.min.compaction.lag.ms", "60")
        assert codes(await node.administration.alter_configs([ConfigChange(BROKER, "", [low])])) == [None]
        changed = await node.administration.alter_configs([ConfigChange(BROKER, "1", [high])])
        assert codes(changed) == [ErrorCode.invalid_request]

    run(scenario)


def test_producer_ids_are_never_given_twice() -> None:
    async def scenario(node: ClusterNode, _: CoordinationStore) -> None:
        blocks = await asyncio.gather(*(node.administration.allocate_producer_ids() for _ in range(5)))
        ids = [producer_id for block in blocks for producer_id in block]
        assert len(set(ids)) == 5_000
        assert all(len(block) == 1_000 for block in blocks)

    run(scenario)


def test_the_change_list_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_list, "MAX_CHANGES", 5)
    monkeypatch.setattr(change_list, "TRIMMED_AT_ONCE", 3)
    monkeypatch.setattr(controller, "TRIMMED_AT_ONCE", 3)

    async def scenario(node: ClusterNode, store: CoordinationStore) -> None:
        for number in range(20):
            await node.administration.create_topics([CreatableTopic(f"t{number}")])
        names = await store.children(znodes.CHANGES)
        assert 5 <= len(names) < 8
        last = znodes.decode((await store.get(f"{znodes.CHANGES}/{names[-1]}")).data, znodes.ChangeNode)
        assert last.topics == ("t19",)

    run(scenario)


def test_a_broker_without_a_session_changes_nothing() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client()
        await store.start()
        made = await started(store)
        store.expire()
        with pytest.raises(BrokerError) as refusal:
            await made.administration.create_topics([CreatableTopic("a")])
        assert refusal.value.code is ErrorCode.not_controller
        assert ensemble.tree.children(znodes.TOPICS) == []

    asyncio.run(body())


def test_conflicting_change_is_decided_again() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        stores = [ensemble.client(), ensemble.client()]
        nodes = []
        for number, store in enumerate(stores, 1):
            await store.start()
            nodes.append(await ClusterNode(store, BrokerId(number), seed=number).start())
        await nodes[0].administration.create_topics([CreatableTopic("a", assignment=[(0, [1])])])

        def change(name: str) -> ConfigChange:
            return ConfigChange(TOPIC, "a", [ConfigAlteration(name, "5")])

        await nodes[1].metadata.catch_up()
        results = await asyncio.gather(
            *(
                node.administration.alter_configs([change(name)])
                for node in nodes
                for name in ("segment.ms", "retention.ms", "retention.bytes")
            )
        )
        assert results == [[None]] * 6
        for node in nodes:
            await node.metadata.catch_up()
            assert node.metadata.image.topics["a"].configs == dict.fromkeys(
                ("segment.ms", "retention.ms", "retention.bytes"), "5"
            )
            assert node.metadata.image == await load_image(stores[0])

    asyncio.run(body())


def test_change_without_entry_is_found() -> None:
    async def scenario(node: ClusterNode, store: CoordinationStore) -> None:
        await node.administration.create_topics([CreatableTopic("a")])
        topic = znodes.TopicNode(node.metadata.image.topics["a"].id, 1, {"retention.ms": "5"})
        await store.set(znodes.topic_path("a"), znodes.encode(topic))
        change = ConfigChange(TOPIC, "a", [ConfigAlteration("segment.ms", "6")])
        assert codes(await node.administration.alter_configs([change])) == [None]
        assert node.metadata.image.topics["a"].configs == {"retention.ms": "5", "segment.ms": "6"}

    run(scenario)


@pytest.mark.parametrize("seed", range(25))
def test_unknown_outcomes_are_resolved(seed: int) -> None:
    """Responses match the store, nothing is done twice, and epochs only increase."""

    async def body() -> None:
        random = Random(seed)
        ensemble = MemoryEnsemble()
        store = ensemble.client(Faults(random, unknown_not_applied=0.2, unknown_applied=0.2))
        await store.start()
        made = await started(store, seed)
        given: list[int] = []
        expected: dict[str, int] = {}
        for number in range(20):
            name = f"t{number}"
            assert codes(await made.administration.create_topics([CreatableTopic(name, partitions=1)])) == [
                None
            ]
            expected[name] = 1
            if random.random() < 0.5:
                assert codes(await made.administration.create_partitions([NewPartitions(name, 3)])) == [None]
                expected[name] = 3
            if random.random() < 0.3:
                assert codes(await made.administration.delete_topics([name])) == [None]
                del expected[name]
            given += await made.administration.allocate_producer_ids()
            assert made.metadata.image == await load_image(store)
        assert {name: len(topic.partitions) for name, topic in made.metadata.image.topics.items()} == expected
        assert len(set(given)) == len(given)
        epochs = {
            name: [p.leader_epoch for p in topic.partitions]
            for name, topic in made.metadata.image.topics.items()
        }
        await made.membership.take_leadership()
        for name, topic in made.metadata.image.topics.items():
            assert [p.leader_epoch for p in topic.partitions] == [epoch + 1 for epoch in epochs[name]]
        assert made.metadata.image == await load_image(store)

    asyncio.run(body())


def test_change_fails_when_outcome_stays_unknown() -> None:
    async def body() -> None:
        store = MemoryEnsemble().client()
        await store.start()
        made = await started(store)
        store.faults = Faults(Random(1), unknown_not_applied=1.0)
        for call in (
            made.administration.create_topics([CreatableTopic("a")]),
            made.administration.allocate_producer_ids(),
        ):
            with pytest.raises(BrokerError) as refusal:
                await call
            assert refusal.value.code is ErrorCode.request_timed_out

    asyncio.run(body())


@pytest.mark.parametrize("error", [StorageError("full"), UnknownOutcome("broken")])
def test_disk_error_is_a_storage_error_for_the_client(error: Exception, tmp_path: Path) -> None:
    async def body() -> None:
        threads = ThreadPools()
        store = EmbeddedStore(str(tmp_path / "metadata.sqlite"), threads)
        await store.start()
        made = await started(store)

        def refuse(_: object) -> None:
            raise error

        assert store._file is not None
        store._file.write = refuse  # type: ignore[assignment, method-assign]
        for call in (
            made.administration.create_topics([CreatableTopic("a")]),
            made.administration.allocate_producer_ids(),
        ):
            with pytest.raises(BrokerError) as refusal:
                await call
            assert refusal.value.code is ErrorCode.kafka_storage_error
        assert made.metadata.image.topic("a") is None
        store._file.close()
        threads.close()

    asyncio.run(body())


def test_topic_with_missing_partition_node_is_an_error() -> None:
    async def body() -> None:
        store = MemoryEnsemble().client()
        await store.start()
        made = await started(store)
        await made.administration.create_topics([CreatableTopic("a", partitions=2)])
        await store.delete(znodes.partition_path("a", 1))
        with pytest.raises(StorageError, match="partition 1 of topic a"):
            await load_image(store)

    asyncio.run(body())


def test_stopping_broker_finishes_its_change_and_refuses_more() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client()
        await store.start()
        made = await started(store)
        creation = asyncio.ensure_future(made.administration.create_topics([CreatableTopic("a")]))
        await asyncio.sleep(0)
        await made.stop()
        assert creation.done()
        assert made.metadata.image == await load_image(store)
        with pytest.raises(BrokerError) as refusal:
            await made.administration.create_topics([CreatableTopic("b")])
        assert refusal.value.code is ErrorCode.not_controller

    asyncio.run(body())


def test_config_changes_respect_zookeepers_request_limit() -> None:
    """ZooKeeper closes a connection that sends more than a megabyte."""
    sizes: list[int] = []

    class MeasuringStore(MemoryStore):
        async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
            sizes.append(sum(len(each.path) + len(getattr(each, "data", b"")) for each in operations))
            return await super().multi(operations)

    async def body() -> None:
        store = MeasuringStore(MemoryEnsemble())
        await store.start()
        node = await started(store)
        names = [f"{number:04}" + "\N{GRINNING FACE}" * 2_000 for number in range(100)]
        alteration = ConfigAlteration("consumer.session.timeout.ms", "50000")
        changes = [ConfigChange(GROUP, name, [alteration]) for name in names]
        assert await node.administration.alter_configs(changes) == [None] * 100
        assert set(node.metadata.image.group_configs) == set(names)
        assert max(sizes) < 1_000_000
        await node.stop()

    asyncio.run(body())


def test_a_stopped_broker_without_replicas_is_unregistered() -> None:
    async def body() -> None:
        ensemble = MemoryEnsemble()
        nodes = []
        for number in (1, 2):
            store = ensemble.client()
            await store.start()
            nodes.append(await ClusterNode(store, BrokerId(number), seed=number).start())
        first, second = nodes
        other = BrokerId(2)
        with pytest.raises(BrokerError, match="is running"):
            await first.administration.unregister_broker(other)
        [topic] = await first.administration.create_topics([CreatableTopic("a", assignment=[(0, (other,))])])
        assert isinstance(topic, TopicImage)
        await second.stop()
        await second.store.close()
        await first.metadata.until(lambda image: other not in image.brokers)
        with pytest.raises(BrokerError, match="holds replicas of 1 partitions"):
            await first.administration.unregister_broker(other)
        await first.administration.delete_topics(["a"])
        await first.administration.unregister_broker(other)
        assert await first.store.get_many([znodes.directory_path(other)]) == [None]
        with pytest.raises(BrokerError) as refusal:
            await first.administration.unregister_broker(other)
        assert refusal.value.code is ErrorCode.broker_id_not_registered

    asyncio.run(body())
