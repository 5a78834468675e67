"""Group administration with unmodified clients: the admin clients of confluent-kafka, kafka-python and
aiokafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.admin import MemberToRemove
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError
from kafka.structs import OffsetAndMetadata

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from support.broker_process import Address, MakeTopic
from support.eventually import eventually

WAIT_S = 20
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(2)


@pytest.fixture
def group(topic_name: str) -> str:
    return f"group-of-{topic_name}"


@pytest.fixture
def old_admin(broker: Address) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@contextmanager
def member(broker: Address, group: str, topic: str, **config: str) -> Iterator[Consumer]:
    """A consumer that owns both partitions and has committed offset 0 for each."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    place = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "somebody"}
    consumer = Consumer(place | settings)
    try:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2)
        consumer.commit(offsets=[TopicPartition(topic, n, 0) for n in range(2)], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def commit(broker: Address, group: str, topic: str, *offsets: int) -> None:
    """Commit as a client outside of the group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def listed(admin: AdminClient, **filters: object) -> dict[str, tuple[ConsumerGroupState, ConsumerGroupType]]:
    found = admin.list_consumer_groups(**filters).result(WAIT_S)
    assert not found.errors
    return {each.group_id: (each.state, each.type) for each in found.valid}


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {place.partition: place.offset for place in asked.result(WAIT_S).topic_partitions}


@PROTOCOLS
def test_confluent_lists_groups_by_state_and_type(
    broker: Address, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    kind = ConsumerGroupType[protocol.upper()]
    with member(broker, group, topic, group_protocol=protocol):
        assert listed(admin)[group] == (ConsumerGroupState.STABLE, kind)
        assert group in listed(admin, states={ConsumerGroupState.STABLE})
        assert group not in listed(admin, states={ConsumerGroupState.EMPTY})
        assert group in listed(admin, types={kind})
        assert group not in listed(
            admin, types={ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER} - {kind}
        )
    eventually(lambda: listed(admin)[group] == (ConsumerGroupState.EMPTY, kind))


@PROTOCOLS
def test_confluent_describes_members_and_what_they_own(
    broker: Address, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    with member(broker, group, topic, group_protocol=protocol, group_instance_id="one"):
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    (only,) = described.members
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == ConsumerGroupType[protocol.upper()]
    assert described.partition_assignor == {"classic": "range", "consumer": "uniform"}[protocol]
    assert (only.client_id, only.group_instance_id) == ("somebody", "one")
    assert only.host.strip("/") == "127.0.0.1"
    assert {place.partition for place in only.assignment.topic_partitions} == {0, 1}


def test_confluent_gets_an_error_for_an_unknown_group(admin: AdminClient, group: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@PROTOCOLS
def test_confluent_deletes_only_empty_groups(
    broker: Address, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    with member(broker, group, topic, group_protocol=protocol):
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group])[group].result(WAIT_S)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    eventually(lambda: listed(admin)[group][0] == ConsumerGroupState.EMPTY)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert group not in listed(admin)


def test_confluent_lists_and_alters_offsets(
    broker: Address, admin: AdminClient, topic: str, group: str
) -> None:
    commit(broker, group, topic, 3, 4)
    assert offsets_of(admin, group) == {0: 3, 1: 4}
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
    (altered,) = admin.alter_consumer_group_offsets(wanted).values()
    assert all(place.error is None for place in altered.result(WAIT_S).topic_partitions)
    assert offsets_of(admin, group) == {0: 1, 1: 4}


@PROTOCOLS
def test_confluent_cannot_alter_offsets_under_a_members_feet(
    broker: Address, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    with member(broker, group, topic, group_protocol=protocol):
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
        (altered,) = admin.alter_consumer_group_offsets(wanted).values()
        (refused,) = altered.result(WAIT_S).topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
        assert offsets_of(admin, group) == {0: 0, 1: 0}


def test_confluent_gives_a_group_settings_of_its_own(admin: AdminClient, group: str) -> None:
    change = ConfigEntry("consumer.session.timeout.ms", "46000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[change])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(WAIT_S)

    def value() -> str:
        (asked,) = admin.describe_configs([ConfigResource(ConfigResource.Type.GROUP, group)]).values()
        return str(asked.result(WAIT_S)["consumer.session.timeout.ms"].value)

    assert eventually(lambda: value() == "46000")


def test_kafka_python_lists_and_describes_groups(
    broker: Address, old_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    with member(broker, group, topic):
        (found,) = [each for each in old_admin.list_groups() if each["group_id"] == group]
        assert found["protocol_type"] == "consumer"
        assert found["group_state"] == "Stable"
        described = old_admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert described["protocol_data"] == "range"
        assert topic in str(described["members"])


def test_kafka_python_alters_resets_and_deletes_offsets(
    broker: Address, old_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    first, second = (KafkaPythonPartition(topic, number) for number in range(2))
    wanted = {first: OffsetAndMetadata(5, "note", -1), second: OffsetAndMetadata(6, "", -1)}
    assert set(old_admin.alter_group_offsets(group, wanted).values()) == {NoError}
    found = old_admin.list_group_offsets([group])[group]
    assert {place.partition: (kept.offset, kept.metadata) for place, kept in found.items()} == {
        0: (5, "note"),
        1: (6, ""),
    }
    assert old_admin.delete_group_offsets(group, [first]) == {first: NoError}
    assert list(old_admin.list_group_offsets([group])[group]) == [second]
    with member(broker, group, topic):
        assert old_admin.delete_group_offsets(group, [second]) == {second: GroupSubscribedToTopicError}


def test_kafka_python_asks_for_the_offsets_of_several_groups(
    broker: Address, old_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    names = [f"{group}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        commit(broker, name, topic, number)
    found = old_admin.list_group_offsets(names)
    assert [found[name][KafkaPythonPartition(topic, 0)].offset for name in names] == [0, 1, 2]


def test_kafka_python_removes_a_static_member(
    broker: Address, admin: AdminClient, old_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    with member(broker, group, topic, group_instance_id="one"):
        pass
    assert listed(admin)[group][0] == ConsumerGroupState.STABLE
    old_admin.remove_group_members(group, [MemberToRemove(group_instance_id="one")])
    eventually(lambda: listed(admin)[group][0] == ConsumerGroupState.EMPTY)


def test_kafka_python_deletes_groups(
    broker: Address, old_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    commit(broker, group, topic, 1)
    answers = old_admin.delete_groups([group, f"{group}-not-there"])
    assert "GroupIdNotFound" in str(answers)
    assert group not in {each["group_id"] for each in old_admin.list_groups()}
    with pytest.raises(GroupIdNotFoundError):
        old_admin.delete_group_offsets(group, [KafkaPythonPartition(topic, 0)])


async def test_aiokafka_lists_groups_and_their_offsets(broker: Address, topic: str, group: str) -> None:
    commit(broker, group, topic, 8, 9)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        assert group in {name for name, _ in await admin.list_consumer_groups()}
        found = await admin.list_consumer_group_offsets(group)
        assert {place.partition: kept.offset for place, kept in found.items()} == {0: 8, 1: 9}
    finally:
        await admin.close()
