"""The producer against a real broker: stored records, and errors that reach the caller."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain

import pytest
from crc32c import crc32c

from penstock import (
    BrokerUnreachable,
    ClientError,
    Consumer,
    MessageTooLarge,
    NotDelivered,
    NotSerializable,
    Producer,
    TimedOut,
    TopicUnknown,
)
from penstock.client.message import Message
from penstock.client.pending import Stored
from penstock.testing import Broker
from support.broker_process import MakeTopic

NOBODY = "127.0.0.1:1"
NO_NEW_TOPICS = {"topic.metadata.propagation.max.ms": 200, "allow.auto.create.topics": False}


def read(bootstrap: str, topic: str, count: int) -> list[Message]:
    with Consumer(topic, bootstrap=bootstrap) as consumer:
        found: list[Message] = []
        while len(found) < count:
            found += consumer.batch(count - len(found), timeout_s=20) or pytest.fail("no message came")
        return found


def test_a_message_comes_back_as_it_was_sent(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    with Producer(bootstrap) as producer:
        stored = producer.send_and_wait(
            topic, "grüße", key=b"\x00\xff", headers=[("a", "1"), ("a", b"2"), ("b", None)], timestamp=when
        )
    assert stored == Stored(topic, 0, 0)
    (message,) = read(bootstrap, topic, 1)
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert (message.key, message.value, message.raw) == (b"\x00\xff", "grüße".encode(), "grüße".encode())
    assert message.headers == (("a", b"1"), ("a", b"2"), ("b", None))
    assert message.header("a") == b"2"
    assert message.timestamp == when
    assert message.size == 2 + len("grüße".encode()) + len("a1a2b")
    assert message.crc == crc32c(b"\x00\xff" + "grüße".encode())


def test_messages_of_a_key_keep_their_order(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with Producer(bootstrap, value_serializer="json") as producer:
        for number in range(3000):
            producer.send(topic, number, key=str(number % 7))
    by_key: dict[bytes, list[int]] = {}
    for message in read(bootstrap, topic, 3000):
        by_key.setdefault(message.key, []).append(int(message.raw or b""))
    assert sorted(chain(*by_key.values())) == list(range(3000))
    assert all(values == sorted(values) for values in by_key.values())


def test_a_key_goes_where_the_java_client_sends_it(bootstrap: str, make_topic: MakeTopic) -> None:
    from confluent_kafka.cimpl import murmur2

    topic = make_topic(partitions=5)
    with Producer(bootstrap) as producer:
        for key in ("a", "b", "order-17", "π"):
            assert producer.send_and_wait(topic, key=key).partition == murmur2(key.encode(), 5)


def test_a_partition_can_be_named(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with Producer(bootstrap) as producer:
        assert producer.send_and_wait(topic, "x", partition=2) == Stored(topic, 2, 0)


def test_at_most_once_sends_without_waiting_for_an_answer(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, delivery="at-most-once") as producer:
        assert producer.send_and_wait(topic, "x").offset is None
    assert [message.raw for message in read(bootstrap, topic, 1)] == [b"x"]


def test_a_topic_that_is_not_there_is_named(bootstrap: str, topic_name: str) -> None:
    producer = Producer(bootstrap, config=NO_NEW_TOPICS)
    with pytest.raises(TopicUnknown, match=f"{topic_name}.*penstock topic create"):
        producer.send_and_wait(topic_name, "x")
    producer.close()


def test_unawaited_failure_is_raised_by_the_next_call(bootstrap: str, topic_name: str) -> None:
    producer = Producer(bootstrap, config=NO_NEW_TOPICS)
    producer.send(topic_name, "lost", key="k", headers={"h": "1"})
    with pytest.raises(NotDelivered, match="a message was not delivered") as caught:
        producer.flush()
    (lost,) = caught.value.failed
    assert (lost.topic, lost.key, lost.value, lost.headers) == (topic_name, b"k", b"lost", (("h", b"1"),))
    assert isinstance(lost.error, TopicUnknown)
    producer.close()


def test_leaving_the_block_raises_for_undelivered_messages(bootstrap: str, topic_name: str) -> None:
    def send_five() -> None:
        with Producer(bootstrap, config=NO_NEW_TOPICS) as producer:
            for _ in range(5):
                producer.send(topic_name, "x")

    with pytest.raises(NotDelivered) as caught:
        send_five()
    assert caught.value.count == 5


def test_an_exception_in_the_block_is_not_hidden(bootstrap: str, topic_name: str) -> None:
    def send_and_fail() -> None:
        with Producer(bootstrap, config=NO_NEW_TOPICS) as producer:
            producer.send(topic_name, "x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        send_and_fail()
    assert any("not delivered" in note for note in caught.value.__notes__)


def test_a_message_that_is_too_large_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="1000")
    with Producer(bootstrap) as producer:
        with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
            producer.send_and_wait(topic, b"x" * 2000)
        with pytest.raises(MessageTooLarge):
            producer.send(topic, b"x" * 2_000_000)


def test_serialization_error_names_a_serializer(bootstrap: str) -> None:
    with Producer(bootstrap) as producer, pytest.raises(NotSerializable, match="value_serializer='json'"):
        producer.send("t", {"id": 1})


def test_unreachable_broker_is_reported_at_once() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 \(Connection refused\).*PENSTOCK_BOOTSTRAP"):
        Producer(NOBODY, connect_timeout_s=0.05)


def test_a_broker_that_went_away_makes_messages_undelivered(penstock_broker: Broker) -> None:
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send_and_wait("t", "x")
    producer = Producer(penstock_broker.bootstrap, delivery_timeout_s=1, linger_ms=0)
    penstock_broker.kill()
    handle = producer.send("t", "lost")
    with pytest.raises(TimedOut):
        handle.result(timeout_s=0.01)
    with pytest.raises(BrokerUnreachable, match="delivery_timeout_s"):
        handle.result()
    producer.close()


def test_a_broker_that_comes_back_gets_everything_once_and_in_order(penstock_broker: Broker) -> None:
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send_and_wait("t", "0")
        penstock_broker.kill()
        for number in range(1, 200):
            producer.send("t", str(number))
        penstock_broker.start()
    assert [int(each.raw or b"") for each in read(penstock_broker.bootstrap, "t", 200)] == list(range(200))


def test_a_full_queue_makes_send_wait(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
        handles = [producer.send(topic, str(number)) for number in range(500)]
    assert [handle.result().offset for handle in handles] == list(range(500))


def test_a_closed_producer_says_so(bootstrap: str) -> None:
    producer = Producer(bootstrap)
    producer.close()
    producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send("t", "x")


def test_bootstrap_comes_from_the_environment(
    bootstrap: str, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)
    with Producer() as producer:
        assert producer.send_and_wait(topic, "x").offset == 0
