"""Priorities and order by key with `Queue` and with confluent-kafka's `ShareConsumer`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from penstock import Queue
from penstock.client.errors import InvalidSetting
from penstock.client.queue import QueueEmpty
from support.eventually import eventually


@contextmanager
def queue_of(bootstrap: str, name: str, **settings: Any) -> Iterator[Queue]:
    with Queue.create(name, partitions=1, bootstrap=bootstrap, **settings) as queue:
        yield queue


def test_messages_of_a_higher_priority_come_first(bootstrap: str, topic_name: str) -> None:
    with queue_of(bootstrap, topic_name, priorities=True) as queue:
        for value, priority in (("low", None), ("five", 5), ("nine", 9), ("zero", 0)):
            queue.send(value, priority=priority)
        found = []
        for _ in range(4):
            with queue.receive(wait_s=30) as message:
                found.append(message.value)
        assert found == ["nine", "five", "low", "zero"]
        for value, priority in (("low", 0), ("nine", 9)):
            queue.send(value, priority=priority)
        assert [each.value for each in queue.receive_many(10, wait_s=30)] == ["nine", "low"]


def test_failed_message_holds_back_its_key(bootstrap: str, topic_name: str) -> None:
    with queue_of(bootstrap, topic_name, order="key") as queue:
        for value, key in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            queue.send(value, key=key)
        with pytest.raises(RuntimeError), queue.receive(wait_s=30):
            raise RuntimeError("the work failed")
        held = queue.receive_many(10, wait_s=30)
        assert sorted((each.value, each.attempt) for each in held) == [("a1", 2), ("b1", 1)]
        with pytest.raises(QueueEmpty):
            queue.receive()
        for each in held:
            each.accept()
        assert queue.receive(wait_s=30).value == "a2"


@pytest.mark.parametrize("priority", [10, -1, "high", 1.5, True])
def test_wrong_priority_is_refused(bootstrap: str, topic_name: str, priority: Any) -> None:
    with queue_of(bootstrap, topic_name) as queue:
        with pytest.raises(InvalidSetting, match="from 0 to 9"):
            queue.send("x", priority=priority)
        with pytest.raises(QueueEmpty):
            queue.receive()


def test_wrong_order_is_refused(bootstrap: str, topic_name: str) -> None:
    with pytest.raises(InvalidSetting, match="order"):
        Queue.create(topic_name, order="fifo", bootstrap=bootstrap)
    with pytest.raises(InvalidSetting, match="priority_share"):
        Queue.create(topic_name, priority_share=0.9, bootstrap=bootstrap)


@contextmanager
def share_consumer(bootstrap: str, group: str) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([group])
    try:
        yield consumer
    finally:
        consumer.close()


def test_share_consumer_gets_the_highest_level_first(bootstrap: str, topic_name: str) -> None:
    with queue_of(bootstrap, topic_name, priorities=True) as queue:
        for place in range(30):
            queue.send(place, priority=(0, 5, 9)[place % 3])
        found: list[int] = []
        with share_consumer(bootstrap, topic_name) as consumer:

            def poll() -> bool:
                for message in consumer.poll(timeout=0.5):
                    found.append(int(message.value()))
                    consumer.acknowledge(message)
                return len(found) >= 30

            eventually(poll, "all messages are received")
    assert found == [*range(2, 30, 3), *range(1, 30, 3), *range(0, 30, 3)]


def test_share_consumer_gets_one_message_of_a_key(bootstrap: str, topic_name: str) -> None:
    with queue_of(bootstrap, topic_name, order="key") as queue:
        for place in range(12):
            queue.send(place, key=f"k{place % 4}")
        found: list[list[int]] = []
        with share_consumer(bootstrap, topic_name) as consumer:

            def poll() -> bool:
                messages = consumer.poll(timeout=0.5)
                if messages:
                    found.append([int(each.value()) for each in messages])
                for message in messages:
                    consumer.acknowledge(message)
                return sum(map(len, found)) >= 12

            eventually(poll, "all messages are received")
    assert all(len({each % 4 for each in batch}) == len(batch) for batch in found)
    received = [each for batch in found for each in batch]
    assert [[each for each in received if each % 4 == key] for key in range(4)] == [
        [key, key + 4, key + 8] for key in range(4)
    ]


@pytest.mark.parametrize("settings", [{"priorities": True}, {"order": "key"}])
def test_queue_with_an_order_has_delayed_messages(
    bootstrap: str, topic_name: str, settings: dict[str, Any]
) -> None:
    with queue_of(bootstrap, topic_name, **settings) as queue:
        queue.send({"id": 7}, key="alice", delay_s=0.5, ttl_s=3600, priority=5)
        queue.send("now", key="alice", priority=1)
        held = queue.receive(wait_s=30)
        assert held.value == "now"
        if "order" in settings:
            with pytest.raises(QueueEmpty):
                queue.receive(wait_s=1)  # the key is held back
            held.accept()
        with queue.receive(wait_s=30) as message:
            assert message.value == {"id": 7}
