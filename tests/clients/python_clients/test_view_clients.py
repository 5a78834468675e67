"""Views with unmodified clients: sparse, dense and empty ranges, tiny fetches, both isolation levels, groups."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time

import pytest
from aiokafka import AIOKafkaConsumer
from confluent import create
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from samples import CODECS, PATIENCE_S

import kafka
from support.broker_process import Address, MakeTopic
from support.cluster_processes import BROKERS
from support.eventually import eventually

RECORDS = 2_100
BATCH = 7
KCAT = shutil.which("kcat") or shutil.which("kafkacat")


def is_wanted(number: int) -> bool:
    """Dense at first, then sparse, then a long empty stretch, one match, and nothing at the end."""
    return (number < 200 and number % 2 == 0) or (200 <= number < 700 and number % 90 == 0) or number == 1_500


WANTED = [number for number in range(RECORDS) if is_wanted(number)]


@pytest.fixture
def source(broker: Address, make_topic: MakeTopic) -> str:
    name = make_topic(1)
    produce(broker, name, "none")
    return name


@pytest.fixture
def view(admin: AdminClient, source: str) -> str:
    return make_view(admin, source, 'headers.region == "eu"')


def make_view(admin: AdminClient, source: str, text: str) -> str:
    name = f"{source}.view"
    create(admin, NewTopic(name, 1, BROKERS, config={"view.of": source, "view.filter": text}))
    return name


def produce(broker: Address, topic: str, codec: str, transactional: bool = False) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "compression.type": codec,
        "batch.num.messages": BATCH,
        "linger.ms": 20,
        "log_level": 3,
    }
    if transactional:
        settings |= {"transactional.id": topic}
    producer = Producer(settings)
    if transactional:
        producer.init_transactions()
    for number in range(RECORDS):
        if transactional and number % 100 == 0:
            producer.begin_transaction()
        region = b"eu" if is_wanted(number) else b"us"
        producer.produce(
            topic, b"%d" % number, key=b"k%d" % number, partition=0, headers=[("region", region)]
        )
        if transactional and number % 100 == 99:
            if number % 200 == 99:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    producer.flush(PATIENCE_S)


def read_by_confluent(broker: Address, topic: str, **settings: object) -> tuple[list[int], int]:
    """Values up to the end, and the position then."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values, deadline = [], time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        values.append(int(message.value()))
    [position] = consumer.position([TopicPartition(topic, 0)])
    consumer.close()
    return values, position.offset


@pytest.mark.parametrize("fetch_bytes", [100, 2_000, 1_048_576])
def test_confluent_reads_a_view_to_its_end(broker: Address, view: str, fetch_bytes: int) -> None:
    values, position = read_by_confluent(broker, view, fetch_message_max_bytes=fetch_bytes)
    assert values == WANTED
    assert position == RECORDS


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_confluent_reads_a_view_of_compressed_records(
    broker: Address, admin: AdminClient, make_topic: MakeTopic, codec: str
) -> None:
    source = make_topic(1)
    produce(broker, source, codec)
    assert read_by_confluent(broker, make_view(admin, source, 'headers.region == "eu"')) == (WANTED, RECORDS)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_confluent_reads_transactions_through_a_view(
    broker: Address, admin: AdminClient, make_topic: MakeTopic, isolation: str
) -> None:
    source = make_topic(1)
    produce(broker, source, "none", transactional=True)
    view = make_view(admin, source, 'headers.region == "eu"')
    expected, _ = read_by_confluent(broker, source, isolation_level=isolation)
    values, _ = read_by_confluent(broker, view, isolation_level=isolation)
    assert values == [number for number in expected if is_wanted(number)]


def test_kafka_python_reads_a_view_to_its_end(broker: Address, view: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2_000,
        fetch_max_wait_ms=50,
    )
    partition = kafka.TopicPartition(view, 0)
    consumer.assign([partition])
    values, deadline = [], time.monotonic() + PATIENCE_S
    while consumer.position(partition) < RECORDS and time.monotonic() < deadline:
        for polled in consumer.poll(200).values():
            values += [int(record.value) for record in polled]
    assert values == WANTED
    assert consumer.position(partition) == RECORDS
    consumer.close()


async def test_aiokafka_reads_a_view_to_its_end(broker: Address, view: str) -> None:
    import aiokafka

    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2_000,
        fetch_max_wait_ms=50,
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(view, 0)
        consumer.assign([partition])
        values = []
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(partition) < RECORDS:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [int(record.value) for record in records]
        assert values == WANTED
    finally:
        await consumer.stop()


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_reads_a_view_to_its_end(broker: Address, view: str) -> None:
    command = [
        str(KCAT),
        "-q",
        "-b",
        broker.bootstrap,
        "-C",
        "-t",
        view,
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-J",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["offset"], int(each["payload"])) for each in found] == [(each, each) for each in WANTED]


def test_committed_offsets_move_over_ranges_without_matches(broker: Address, view: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{view}-group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([view])
    values: list[int] = []
    eventually(lambda: _reads_to_end(consumer, values))
    consumer.commit(asynchronous=False)
    [committed] = consumer.committed([TopicPartition(view, 0)])
    consumer.close()
    assert values == WANTED
    assert committed.offset == RECORDS, "the lag of the group is zero"


def _reads_to_end(consumer: Consumer, values: list[int]) -> bool:
    message = consumer.poll(1)
    if message is None:
        return False
    if message.error() is not None:
        return bool(message.error().code() == KafkaError._PARTITION_EOF)
    values.append(int(message.value()))
    return False


def test_long_poll_waits_for_a_match(broker: Address, source: str, view: str) -> None:
    """Records that do not match wake no reader; a match reaches it at once."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20_000,
        }
    )
    consumer.assign([TopicPartition(view, 0, RECORDS)])
    assert consumer.poll(0.5) is None
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for _ in range(3):
        producer.produce(source, b"no", partition=0, headers=[("region", b"us")])
        producer.flush()
    assert consumer.poll(0.5) is None
    producer.produce(source, b"yes", partition=0, headers=[("region", b"eu")])
    producer.flush()
    message = consumer.poll(10)
    assert message is not None
    assert (message.value(), message.offset()) == (b"yes", RECORDS + 3)
    consumer.close()


def test_times_find_offsets_of_the_source(broker: Address, view: str, consumer: Consumer) -> None:
    [found] = consumer.offsets_for_times([TopicPartition(view, 0, 0)])
    assert found.offset == 0
    assert consumer.get_watermark_offsets(TopicPartition(view, 0)) == (0, RECORDS)


def test_writes_to_a_view_are_refused(broker: Address, view: str, admin: AdminClient) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(view, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in errors if error is not None] == [KafkaError.TOPIC_EXCEPTION]
    with pytest.raises(KafkaException):
        admin.delete_records([TopicPartition(view, 0, 5)])[TopicPartition(view, 0)].result()


def test_changed_filter_applies_to_all_offsets(
    broker: Address, view: str, source: str, admin: AdminClient
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    assert read_by_confluent(broker, view)[0] == WANTED
    entry = ConfigEntry("view.filter", "offset == 3", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, view, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result()
    assert read_by_confluent(broker, view) == ([3], RECORDS)


def test_added_partitions_appear_in_the_view(
    broker: Address, view: str, source: str, admin: AdminClient
) -> None:
    from confluent_kafka.admin import NewPartitions

    [done] = admin.create_partitions([NewPartitions(source, 3)]).values()
    done.result()
    assert eventually(lambda: len(admin.list_topics(view).topics[view].partitions) == 3)
