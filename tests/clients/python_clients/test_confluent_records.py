"""Unmodified confluent-kafka (librdkafka): produce in every format, read by offset and by time."""

from __future__ import annotations

import time

import pytest
from confluent import as_sample, read, send
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from samples import CODECS, HOUR_MS, PATIENCE_S, STEP_MS, make_large_samples, make_samples

from support.broker_process import Address, MakeTopic


@pytest.mark.parametrize("codec", CODECS)
def test_reads_back_what_was_produced_with_each_codec(
    broker: Address, make_topic: MakeTopic, consumer: Consumer, codec: str
) -> None:
    topic = make_topic()
    samples = make_samples(500)
    reports = send(broker, topic, samples, compression_type=codec)
    assert [report.offset() for report in reports] == [sample.offset for sample in samples]
    assert read(consumer, topic, len(samples)) == samples


def test_reads_from_any_offset(broker: Address, make_topic: MakeTopic, consumer: Consumer) -> None:
    topic = make_topic()
    samples = make_samples(300)
    send(broker, topic, samples, batch_num_messages=20)
    for offset in (0, 1, 19, 20, 150, 299):
        assert read(consumer, topic, 300 - offset, offset) == samples[offset:]


def test_a_reader_at_the_end_gets_only_what_comes_after(broker: Address, make_topic: MakeTopic) -> None:
    topic = make_topic()
    samples = make_samples(40)
    send(broker, topic, samples[:30])
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    reader = Consumer(settings | {"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, OFFSET_END)])
    (end,) = reader.consume(1, PATIENCE_S)
    assert end.error().code() == KafkaError._PARTITION_EOF
    send(broker, topic, samples[30:])
    assert [as_sample(message) for message in reader.consume(10, PATIENCE_S)] == samples[30:]
    reader.close()


def test_finds_offsets_by_time(broker: Address, make_topic: MakeTopic, consumer: Consumer) -> None:
    topic = make_topic()
    samples = make_samples(200)
    send(broker, topic, samples, batch_num_messages=25)

    def offset_at(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=PATIENCE_S)
        return int(found.offset)

    assert offset_at(samples[0].timestamp_ms - HOUR_MS) == 0
    for sample in samples[::23]:
        assert offset_at(sample.timestamp_ms) == sample.offset
        assert offset_at(sample.timestamp_ms - STEP_MS // 2) == sample.offset
    assert offset_at(samples[-1].timestamp_ms + 1) == OFFSET_END


@pytest.mark.parametrize("size", [10_000, 100_000, 900_000])
def test_large_messages_come_back_whole(
    broker: Address, make_topic: MakeTopic, consumer: Consumer, size: int
) -> None:
    topic = make_topic()
    large = make_large_samples(3, size)
    send(broker, topic, large)
    assert read(consumer, topic, 3) == large


def test_a_message_above_the_topics_limit_is_refused(broker: Address, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="20000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[KafkaError | None] = []
    producer.produce(topic, bytes(30_000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in errors if error] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_an_idempotent_producer_keeps_order_over_many_small_batches(
    broker: Address, make_topic: MakeTopic, consumer: Consumer
) -> None:
    topic = make_topic()
    samples = make_samples(2_000)
    send(broker, topic, samples, enable_idempotence=True, batch_num_messages=10, linger_ms=0)
    assert read(consumer, topic, len(samples)) == samples


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_form_of_acknowledgement_stores(
    broker: Address, make_topic: MakeTopic, consumer: Consumer, acks: int | str
) -> None:
    topic = make_topic()
    samples = make_samples(100)
    send(broker, topic, samples, acks=acks)
    assert read(consumer, topic, len(samples)) == samples


def test_keys_choose_the_partition_and_each_partition_keeps_order(
    broker: Address, make_topic: MakeTopic, consumer: Consumer
) -> None:
    topic = make_topic(partitions=4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(400):
        producer.produce(topic, str(number), key=f"key {number % 20}")
    assert producer.flush(PATIENCE_S) == 0
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(4)])
    messages: list[Message] = []
    while len(messages) < 400:
        messages += consumer.consume(400 - len(messages), PATIENCE_S)
    places: dict[bytes, set[int]] = {}
    for message in messages:
        places.setdefault(message.key(), set()).add(message.partition())
    assert len(places) == 20
    assert all(len(partitions) == 1 for partitions in places.values())
    for partition in range(4):
        numbers = [int(message.value()) for message in messages if message.partition() == partition]
        assert numbers == sorted(numbers)


def test_log_append_time_is_the_brokers(broker: Address, make_topic: MakeTopic, consumer: Consumer) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1_000)
    (report,) = send(broker, topic, make_samples(1))
    (message,) = read(consumer, topic, 1)
    assert before_ms - 1 <= message.timestamp_ms <= time.time() * 1_000 + 1
    assert report.timestamp()[1] == message.timestamp_ms


def test_a_timestamp_far_in_the_future_is_refused(broker: Address, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_after_max_ms="1000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[KafkaError | None] = []
    future_ms = int(time.time() * 1_000) + HOUR_MS
    producer.produce(topic, b"late", timestamp=future_ms, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in errors if error] == [KafkaError.INVALID_TIMESTAMP]
