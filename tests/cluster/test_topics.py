from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.cluster.image import ClusterImage, RegisteredBroker, TopicImage
from penstock.cluster.topics import CreatableTopic, NewPartitions, TopicPlanner, check_topic_name, draw_uuid
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, BrokerId


def image_of(brokers: int) -> ClusterImage:
    members = [
        RegisteredBroker(BrokerId(number), "h", 9092, BrokerEpoch(1), f"machine-{number}")
        for number in range(1, brokers + 1)
    ]
    return ClusterImage("cluster").with_members(members, BrokerId(1))


def planner(brokers: int = 1, *topics: TopicImage, **settings: int) -> TopicPlanner:
    config = BrokerConfig({name.replace("_", "."): str(value) for name, value in settings.items()})
    return TopicPlanner(image_of(brokers).with_topics(topics), config, Random(1))


def refusal(planner: TopicPlanner, new: CreatableTopic | NewPartitions) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        planner.plan_topic(new) if isinstance(new, CreatableTopic) else planner.plan_partitions(new)
    return caught.value.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__internal", "-"])
def test_topic_names_of_kafka_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "a/b",
        "../../etc",
        "a b",
        "a\n",
        "a\x00",
        "tö",
        "ａ",
        "a\\b",
        "a:b",
        "٣",
        "x" * 70_000,
    ],
)
def test_invalid_topic_names_are_refused(name: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.invalid_topic_exception
    assert len(str(caught.value)) < 500


def test_a_topic_takes_the_brokers_defaults() -> None:
    topic = planner(3, num_partitions=4, default_replication_factor=2).plan_topic(CreatableTopic("t"))
    assert len(topic.partitions) == 4
    for partition in topic.partitions:
        assert len(partition.replicas) == 2
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert partition.leader_epoch == 0


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (CreatableTopic("t", partitions=0), ErrorCode.invalid_partitions),
        (CreatableTopic("t", partitions=-2), ErrorCode.invalid_partitions),
        (CreatableTopic("t", partitions=2**31 - 1), ErrorCode.invalid_partitions),
        (CreatableTopic("t", replication_factor=0), ErrorCode.invalid_replication_factor),
        (CreatableTopic("t", replication_factor=-2), ErrorCode.invalid_replication_factor),
        (CreatableTopic("t", replication_factor=3), ErrorCode.invalid_replication_factor),
        (CreatableTopic("t", replication_factor=32767), ErrorCode.invalid_replication_factor),
        (CreatableTopic("t", configs={"retention.ms": "soon"}), ErrorCode.invalid_config),
        (CreatableTopic("t", configs={"retention.ms": None}), ErrorCode.invalid_config),
        (CreatableTopic("t", configs={"no.such": "1"}), ErrorCode.invalid_config),
        (CreatableTopic("t", partitions=1, assignment=[(0, [1])]), ErrorCode.invalid_request),
        (CreatableTopic("t", replication_factor=1, assignment=[(0, [1])]), ErrorCode.invalid_request),
        (CreatableTopic("t", assignment=[(1, [1])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [1]), (0, [2])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [1]), (2, [1])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(-1, [1])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [1, 1])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [9])]), ErrorCode.invalid_replica_assignment),
        (CreatableTopic("t", assignment=[(0, [1]), (1, [1, 2])]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_invalid_topics_get_the_error_code_of_kafka(new: CreatableTopic, code: ErrorCode) -> None:
    assert refusal(planner(2), new) is code


def test_topics_can_be_created_while_a_broker_is_offline() -> None:
    everywhere = planner(3).plan_topic(CreatableTopic("old", 2, 3))
    image = image_of(2).with_topics([everywhere])
    planned = TopicPlanner(image, BrokerConfig({}), Random(1))
    made = planned.plan_topic(CreatableTopic("new", 4, 3))
    for partition in made.partitions:
        assert set(partition.replicas) == {1, 2, 3}
        assert set(partition.isr) == {1, 2}
        assert partition.leader == partition.replicas[0] != 3
    more = planned.plan_partitions(NewPartitions("old", 3)).partitions[2]
    assert (set(more.replicas), set(more.isr)) == ({1, 2, 3}, {1, 2})
    chosen = planned.plan_topic(CreatableTopic("chosen", assignment=[(0, (3, 2))])).partitions[0]
    assert (chosen.leader, chosen.replicas, chosen.isr) == (2, (3, 2), (2,))
    assert (
        refusal(planned, CreatableTopic("nobody", assignment=[(0, (3,))]))
        is ErrorCode.invalid_replica_assignment
    )
    assert refusal(planned, CreatableTopic("four", 1, 4)) is ErrorCode.invalid_replication_factor


def test_registered_brokers_are_preferred_to_offline_ones() -> None:
    everywhere = planner(3).plan_topic(CreatableTopic("old", 2, 3))
    planned = TopicPlanner(image_of(2).with_topics([everywhere]), BrokerConfig({}), Random(1))
    assert {
        replica
        for each in planned.plan_topic(CreatableTopic("new", 6, 2)).partitions
        for replica in each.replicas
    } == {1, 2}


def test_an_assignment_is_taken_as_given() -> None:
    topic = planner(3).plan_topic(CreatableTopic("t", assignment=[(1, [3, 1]), (0, [2, 3])]))
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]


def test_duplicate_names_are_refused_also_within_a_request() -> None:
    made = planner().plan_topic(CreatableTopic("a"))
    both = planner(1, made)
    assert refusal(both, CreatableTopic("a")) is ErrorCode.topic_already_exists
    both.plan_topic(CreatableTopic("b"))
    assert refusal(both, CreatableTopic("b")) is ErrorCode.topic_already_exists


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._b", "a_.b")])
def test_names_that_collide_in_metrics_are_refused(first: str, second: str) -> None:
    planned = planner()
    planned.plan_topic(CreatableTopic(first))
    assert refusal(planned, CreatableTopic(second)) is ErrorCode.invalid_topic_exception
    assert refusal(planner(1, planner().plan_topic(CreatableTopic(first))), CreatableTopic(second)) is (
        ErrorCode.invalid_topic_exception
    )
    planned.plan_topic(CreatableTopic("a-b"))


def test_partition_limit_of_a_broker_is_enforced() -> None:
    full = planner(1, planner().plan_topic(CreatableTopic("a", partitions=3)), max_partitions_per_broker=5)
    assert refusal(full, CreatableTopic("b", partitions=3)) is ErrorCode.policy_violation
    full.plan_topic(CreatableTopic("c", partitions=2))
    assert refusal(full, CreatableTopic("d", partitions=1)) is ErrorCode.policy_violation
    assert refusal(full, NewPartitions("a", 4)) is ErrorCode.policy_violation


def test_partitions_are_added_after_the_existing_ones() -> None:
    topic = planner(2).plan_topic(CreatableTopic("t", partitions=2, replication_factor=2))
    grown = planner(2, topic).plan_partitions(NewPartitions("t", 5))
    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 5
    assert all(len(partition.replicas) == 2 for partition in grown.partitions)
    assert grown.id == topic.id
    assigned = planner(2, topic).plan_partitions(NewPartitions("t", 3, [[2, 1]]))
    assert assigned.partitions[2].replicas == (2, 1)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewPartitions("unknown", 5), ErrorCode.unknown_topic_or_partition),
        (NewPartitions("t", 2), ErrorCode.invalid_partitions),
        (NewPartitions("t", 1), ErrorCode.invalid_partitions),
        (NewPartitions("t", -1), ErrorCode.invalid_partitions),
        (NewPartitions("t", 2**31 - 1), ErrorCode.invalid_partitions),
        (NewPartitions("t", 4, [[1]]), ErrorCode.invalid_replica_assignment),
        (NewPartitions("t", 3, []), ErrorCode.invalid_replica_assignment),
        (NewPartitions("t", 3, [[9]]), ErrorCode.invalid_replica_assignment),
        (NewPartitions("t", 3, [[1, 2]]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_a_wrong_increase_is_refused_with_kafkas_code(new: NewPartitions, code: ErrorCode) -> None:
    topic = planner(2).plan_topic(CreatableTopic("t", partitions=2))
    assert refusal(planner(2, topic), new) is code


def test_ids_are_version_4_and_never_begin_with_a_dash() -> None:
    random = Random(3)
    ids = {draw_uuid(random) for _ in range(500)}
    assert len(ids) == 500
    assert all(uuid.version == 4 and uuid.bytes[0] >> 2 != 62 for uuid in ids)

    class Dash(Random):
        answers = iter([62 << 122, 5 << 122])

        def getrandbits(self, k: int) -> int:
            return next(self.answers)

    assert draw_uuid(Dash()).bytes[0] >> 2 == 5


def siblings_image(groups: list[tuple[int, ...]], cordoned: frozenset[int] = frozenset()) -> ClusterImage:
    """Image of machines with several broker processes each."""
    image = image_of(sum(map(len, groups)))
    siblings = {each: tuple(map(BrokerId, group)) for group in groups for each in group}
    brokers = [
        replace(broker, siblings=siblings[node_id], is_cordoned=node_id in cordoned)
        for node_id, broker in image.brokers.items()
    ]
    return image.with_members(brokers, image.controller_id)


@pytest.mark.parametrize(
    ("groups", "factor"), [([(1, 2, 3, 4)], 1), ([(1, 2), (3, 4)], 1), ([(1, 2), (3, 4), (5, 6)], 3)]
)
def test_default_replication_factor_counts_machines(groups: list[tuple[int, ...]], factor: int) -> None:
    planned = TopicPlanner(siblings_image(groups), BrokerConfig({}), Random(1))
    made = planned.plan_topic(CreatableTopic("t", 12))
    assert {len(partition.replicas) for partition in made.partitions} == {factor}
    assert {partition.leader for partition in made.partitions} == {each for group in groups for each in group}


def test_offline_siblings_count_as_one_machine() -> None:
    image = siblings_image([(1, 2, 3, 4)])
    spread = TopicPlanner(image, BrokerConfig({}), Random(1)).plan_topic(CreatableTopic("old", 4))
    alone = image.with_topics([spread]).with_members([image.brokers[BrokerId(1)]], BrokerId(1))
    made = TopicPlanner(alone, BrokerConfig({}), Random(1)).plan_topic(CreatableTopic("t", 2))
    assert {partition.replicas for partition in made.partitions} == {(1,)}


def test_cordoned_brokers_get_no_new_replicas() -> None:
    image = siblings_image([(1, 2, 3)], frozenset({2, 3}))
    planned = TopicPlanner(image, BrokerConfig({}), Random(1))
    assert {each.replicas for each in planned.plan_topic(CreatableTopic("t", 6)).partitions} == {(1,)}
    assert refusal(planned, CreatableTopic("two", 1, 2)) is ErrorCode.invalid_replication_factor
