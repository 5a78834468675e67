"""Unmodified confluent-kafka (librdkafka): create, change and delete topics, partitions and configs."""

from __future__ import annotations

import pytest
from confluent import alter, create, described, read, send
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from samples import PATIENCE_S, make_samples

from support.broker_process import Address, MakeTopic
from support.cluster_processes import BROKERS
from support.eventually import eventually


def test_creating_a_topic_twice_is_refused(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, BROKERS)])[topic].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no spaces", 1, BROKERS), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("none", 0, BROKERS), KafkaError.INVALID_PARTITIONS),
        (NewTopic("copies", 1, BROKERS + 1), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("setting", 1, BROKERS, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("value", 1, BROKERS, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic if isinstance(value, NewTopic) else str(value),
)
def test_a_topic_that_cannot_be_is_refused(admin: AdminClient, topic: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
    assert refused.value.args[0].code() == code
    assert topic.topic not in admin.list_topics(timeout=30).topics


def test_validate_only_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 3, BROKERS)], validate_only=True)[topic_name].result(PATIENCE_S)
    assert topic_name not in admin.list_topics(timeout=30).topics


def test_partitions_are_added_and_take_messages(
    broker: Address, admin: AdminClient, make_topic: MakeTopic, consumer: Consumer
) -> None:
    topic = make_topic()
    samples = make_samples(10)
    send(broker, topic, samples)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    eventually(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"there", partition=2)
    assert producer.flush(PATIENCE_S) == 0
    assert consumer.get_watermark_offsets(TopicPartition(topic, 2), timeout=30) == (0, 1)
    assert read(consumer, topic, 10) == samples


def test_fewer_partitions_are_refused(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_a_deleted_topic_is_gone_and_comes_back_empty(
    broker: Address, admin: AdminClient, make_topic: MakeTopic, consumer: Consumer
) -> None:
    topic = make_topic()
    send(broker, topic, make_samples(20))
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    create(admin, NewTopic(topic, 1, BROKERS))
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 0)
    samples = make_samples(5)
    send(broker, topic, samples)
    assert read(consumer, topic, 5) == samples


def test_deleting_a_topic_that_is_not_there_is_refused(admin: AdminClient, topic_name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic_name])[topic_name].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_deleted_records_are_gone_and_the_rest_stays(
    broker: Address, admin: AdminClient, make_topic: MakeTopic, consumer: Consumer
) -> None:
    topic = make_topic()
    samples = make_samples(100)
    send(broker, topic, samples, batch_num_messages=10)
    place = TopicPartition(topic, 0, 37)
    (done,) = admin.delete_records([place]).values()
    assert done.result(PATIENCE_S).low_watermark == 37
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (37, 100)
    assert read(consumer, topic, 63) == samples[37:]
    consumer.assign([TopicPartition(topic, 0, 36)])
    assert consumer.consume(1, PATIENCE_S)[0].error().code() == KafkaError._AUTO_OFFSET_RESET


def test_deleting_beyond_the_end_is_refused(
    broker: Address, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(broker, topic, make_samples(3))
    (done,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    with pytest.raises(KafkaException) as refused:
        done.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_lists_first_last_and_newest_offsets(
    broker: Address, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    samples = make_samples(50)
    shuffled = [*samples[:20], samples[49], *samples[20:49]]
    send(broker, topic, shuffled)
    place = TopicPartition(topic, 0)

    def offset_of(spec: OffsetSpec) -> int:
        (found,) = admin.list_offsets({place: spec}).values()
        return int(found.result(PATIENCE_S).offset)

    assert offset_of(OffsetSpec.earliest()) == 0
    assert offset_of(OffsetSpec.latest()) == 50
    assert offset_of(OffsetSpec.max_timestamp()) == 20
    assert offset_of(OffsetSpec.for_timestamp(samples[5].timestamp_ms)) == 5


def test_describes_and_alters_topic_configs(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert described(admin, resource)["retention.ms"].value == "3600000"
    assert not described(admin, resource)["retention.ms"].is_default
    assert described(admin, resource)["cleanup.policy"].value == "delete"
    assert described(admin, resource)["cleanup.policy"].is_default
    changes = {"retention.ms": "7200000", "cleanup.policy": "compact"}
    alter(admin, resource, AlterConfigOpType.SET, changes)
    eventually(lambda: described(admin, resource)["retention.ms"].value == "7200000")
    assert described(admin, resource)["cleanup.policy"].value == "compact"
    alter(admin, resource, AlterConfigOpType.DELETE, {"cleanup.policy": ""})
    eventually(lambda: described(admin, resource)["cleanup.policy"].value == "delete")
    assert described(admin, resource)["retention.ms"].value == "7200000"


def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    resource = ConfigResource(ResourceType.TOPIC, make_topic())
    before = described(admin, resource)["segment.bytes"].value
    with pytest.raises(KafkaException) as refused:
        alter(admin, resource, AlterConfigOpType.SET, {"segment.bytes": "-5", "retention.ms": "1"})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert described(admin, resource)["segment.bytes"].value == before
    assert described(admin, resource)["retention.ms"].is_default


def test_describes_the_brokers_configs(admin: AdminClient) -> None:
    broker_id, *others = admin.list_topics(timeout=30).brokers
    assert len(others) == BROKERS - 1
    configs = described(admin, ConfigResource(ResourceType.BROKER, str(broker_id)))
    assert configs["num.partitions"].value == "1"
    assert configs["auto.create.topics.enable"].value == "true"


def test_metadata_of_an_unknown_topic_names_the_error(broker: Address, topic_name: str) -> None:
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "allow.auto.create.topics": False}
    )
    metadata = reader.list_topics(topic_name, timeout=30).topics[topic_name]
    assert metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic_name not in reader.list_topics(timeout=30).topics
    reader.close()


def test_a_producer_creates_its_topic(broker: Address, topic_name: str, consumer: Consumer) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic_name, b"first")
    assert producer.flush(PATIENCE_S) == 0
    assert [sample.value for sample in read(consumer, topic_name, 1)] == [b"first"]


def test_describes_cluster_and_topic(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert cluster.cluster_id
    nodes = {node.id for node in cluster.nodes}
    assert len(nodes) == BROKERS
    assert cluster.controller.id in nodes
    metadata = admin.list_topics(topic, timeout=30).topics[topic]
    assert sorted(metadata.partitions) == [0, 1]
    assert all(set(partition.isrs) == nodes for partition in metadata.partitions.values())
