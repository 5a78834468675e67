"""A clean stop loses nothing, also under load, and the next start finds everything unchanged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from writers import Writer, read_all

from support.broker_process import BrokerProcess
from support.eventually import eventually

StartBroker = Callable[..., BrokerProcess]
PATIENCE_S = 30.0


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)


def reader_settings(broker: BrokerProcess) -> dict[str, str | bool]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}


def restart(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()


def test_clean_stop_under_load_loses_and_duplicates_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders", partitions=2)
    writers = [Writer(number, broker.bootstrap, "orders", 2) for number in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(3):
        wait_for_more(writers, 300)
        restart(broker)
    wait_for_more(writers, 300)
    for writer in writers:
        writer.stop()
    stored = list(read_all(broker.bootstrap, "orders", 2))
    for number, writer in enumerate(writers):
        mine = [message for message in stored if message.sent.producer == number]
        assert [*writer.history.refused, *writer.history.violations(mine)] == []


def has_acknowledged(writer: Writer, count: int) -> bool:
    return len(writer.history.acknowledged) >= count


def wait_for_more(writers: list[Writer], count: int) -> None:
    """Wait until every writer has this many more acknowledgements."""
    wanted = [len(writer.history.acknowledged) + count for writer in writers]
    for writer, goal in zip(writers, wanted, strict=True):
        eventually(
            partial(has_acknowledged, writer, goal),
            "writes are acknowledged",
            within_s=PATIENCE_S,
        )


def test_topics_settings_and_truncation_survive(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "kept", partitions=3, retention_ms="7200000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(50):
        producer.produce("kept", str(number), partition=1)
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    (deleted,) = admin.delete_records([TopicPartition("kept", 1, 20)]).values()
    deleted.result(PATIENCE_S)
    restart(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    assert sorted(admin.list_topics(timeout=30).topics["kept"].partitions) == [0, 1, 2]
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "kept")]).values()
    assert described.result(PATIENCE_S)["retention.ms"].value == "7200000"
    consumer = Consumer(reader_settings(broker))
    assert consumer.get_watermark_offsets(TopicPartition("kept", 1), timeout=30) == (20, 50)
    consumer.assign([TopicPartition("kept", 1, 20)])
    assert [int(message.value()) for message in consumer.consume(30, PATIENCE_S)] == list(range(20, 50))
    consumer.close()


def test_a_deleted_topic_stays_deleted(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "gone")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics(["gone"])["gone"].result(PATIENCE_S)
    restart(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    assert "gone" not in admin.list_topics(timeout=30).topics


def test_idempotent_producer_continues_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker, "orders")
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings | {"reconnect.backoff.max.ms": 100})
    for life in range(3):
        for number in range(100):
            producer.produce("orders", f"{life * 100 + number}", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        broker.kill()
        broker.start()
    consumer = Consumer(reader_settings(broker))
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [int(message.value()) for message in consumer.consume(300, PATIENCE_S)] == list(range(300))
    consumer.close()
