"""Unmodified kafka-python: idempotent by default, with the newest versions of many requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import kafka.codec
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from samples import CODECS, HOUR_MS, PATIENCE_S, STEP_MS, Sample, make_large_samples, make_samples

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from support.broker_process import Address
from support.cluster_processes import BROKERS


@pytest.fixture
def admin(broker: Address) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def consumer(broker: Address) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="none", fetch_max_wait_ms=50
    )
    yield consumer
    consumer.close()


@pytest.fixture
def topic(admin: KafkaAdminClient, topic_name: str) -> str:
    create(admin, NewTopic(topic_name, 1, BROKERS))
    return topic_name


def create(admin: KafkaAdminClient, topic: NewTopic) -> None:
    admin.create_topics([topic], wait_for_metadata=True)


def send(broker: Address, topic: str, samples: list[Sample], **config: Any) -> list[int]:
    """Produce to partition 0 and return the offsets of the responses."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **config)
    try:
        waiting = [
            producer.send(
                topic,
                sample.value,
                sample.key,
                partition=0,
                timestamp_ms=sample.timestamp_ms,
                headers=list(sample.headers),
            )
            for sample in samples
        ]
        return [int(each.get(PATIENCE_S).offset) for each in waiting]
    finally:
        producer.close()


def read(consumer: KafkaConsumer, topic: str, count: int, offset: int = 0) -> list[Sample]:
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, offset)
    found: list[Sample] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came"
        records = consumer.poll(timeout_ms=500, max_records=count - len(found))
        found += [as_sample(record) for record in records.get(place, [])]
    return found


def as_sample(record: Any) -> Sample:
    return Sample(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_back_what_it_produced_with_each_codec(
    broker: Address, topic: str, consumer: KafkaConsumer, codec: str
) -> None:
    if codec != "none" and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python has no {codec} library here")
    samples = make_samples(300)
    offsets = send(broker, topic, samples, compression_type=None if codec == "none" else codec)
    assert offsets == [sample.offset for sample in samples]
    assert read(consumer, topic, 300) == samples
    assert read(consumer, topic, 100, offset=200) == samples[200:]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_stores_with_every_form_of_acknowledgement(
    broker: Address, topic: str, consumer: KafkaConsumer, acks: int | str
) -> None:
    samples = make_samples(50)
    send(broker, topic, samples, acks=acks, enable_idempotence=False)
    assert read(consumer, topic, 50) == samples


def test_kafka_python_idempotent_producer_keeps_order(
    broker: Address, topic: str, consumer: KafkaConsumer
) -> None:
    samples = make_samples(500)
    send(broker, topic, samples, enable_idempotence=True, batch_size=6_000)
    assert read(consumer, topic, 500) == samples


def test_kafka_python_finds_offsets_by_time_and_the_ends(
    broker: Address, topic: str, consumer: KafkaConsumer
) -> None:
    samples = make_samples(100)
    send(broker, topic, samples, batch_size=6_000)
    place = TopicPartition(topic, 0)
    for sample in samples[::13]:
        found = consumer.offsets_for_times({place: sample.timestamp_ms - STEP_MS // 2})[place]
        assert (found.offset, found.timestamp) == (sample.offset, sample.timestamp_ms)
    assert consumer.offsets_for_times({place: samples[-1].timestamp_ms + HOUR_MS})[place] is None
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 100}


def test_kafka_python_large_messages_come_back_whole(
    broker: Address, topic: str, consumer: KafkaConsumer
) -> None:
    large = make_large_samples(3)
    send(broker, topic, large)
    assert read(consumer, topic, 3) == large


def test_kafka_python_message_above_the_topics_limit_is_refused(
    broker: Address, admin: KafkaAdminClient, topic_name: str
) -> None:
    create(admin, NewTopic(topic_name, 1, BROKERS, topic_configs={"max.message.bytes": "20000"}))
    with pytest.raises(MessageSizeTooLargeError):
        send(broker, topic_name, [Sample(0, make_samples(1)[0].timestamp_ms, None, bytes(30_000), ())])


def test_kafka_python_deletes_records(
    broker: Address, admin: KafkaAdminClient, topic: str, consumer: KafkaConsumer
) -> None:
    samples = make_samples(60)
    send(broker, topic, samples, batch_size=6_000)
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 25})[place]["low_watermark"] == 25
    assert consumer.beginning_offsets([place]) == {place: 25}
    assert read(consumer, topic, 35, offset=25) == samples[25:]
    with pytest.raises(OffsetOutOfRangeError):
        read(consumer, topic, 1, offset=24)


def test_kafka_python_lists_offsets(broker: Address, admin: KafkaAdminClient, topic: str) -> None:
    samples = make_samples(30)
    send(broker, topic, [*samples[:10], samples[29], *samples[10:29]])
    place = TopicPartition(topic, 0)

    def offset_of(spec: OffsetSpec) -> int:
        return int(admin.list_partition_offsets({place: spec})[place].offset)

    assert offset_of(OffsetSpec.EARLIEST) == 0
    assert offset_of(OffsetSpec.LATEST) == 30
    assert offset_of(OffsetSpec.MAX_TIMESTAMP) == 10


def test_kafka_python_describes_and_alters_configs(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})]
    )
    deadline = time.monotonic() + PATIENCE_S
    while "7200000" not in str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])):
        assert time.monotonic() < deadline, "the change does not appear"
        time.sleep(0.02)


def test_kafka_python_adds_partitions_and_deletes_topics(
    admin: KafkaAdminClient, consumer: KafkaConsumer, topic: str
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, BROKERS)])
    admin.create_partitions({topic: NewPartitions(3)})
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    assert topic not in consumer.topics()


def test_kafka_python_describes_the_cluster_and_its_log_dirs(
    broker: Address, admin: KafkaAdminClient, topic: str
) -> None:
    send(broker, topic, make_samples(20))
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert len(cluster["brokers"]) == BROKERS
    assert topic in str(admin.describe_log_dirs())


def test_kafka_python_producer_creates_its_topic(
    broker: Address, topic_name: str, consumer: KafkaConsumer
) -> None:
    sample = make_samples(2)[1]
    assert send(broker, topic_name, [sample]) == [0]
    assert [found.value for found in read(consumer, topic_name, 1)] == [sample.value]
