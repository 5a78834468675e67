"""Producer, ordered Consumer and Queue while a topic gets fewer partitions."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock import Consumer, Producer, Queue
from penstock.client import topic_watch
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection
from support.broker_process import MakeTopic
from support.eventually import eventually

MESSAGES = 200


SetCount = Callable[..., None]


@pytest.fixture
def set_count(bootstrap: str, topic_name: str) -> SetCount:
    calls = InternalCalls(InternalConnection(bootstrap), 10.0, {})

    def set_count(count: int, change: str = "set") -> None:
        calls.run(lambda client: client.topics.reduce_partitions(topic_name, count, change))

    return set_count


def test_running_producer_writes_to_active_partitions_only(
    bootstrap: str, make_topic: MakeTopic, set_count: SetCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "QUIET_START_S", 0.0)
    monkeypatch.setattr(topic_watch, "LOOK_S", 0.05)
    topic = make_topic(partitions=8, partition_drain_quiet_ms="500", retention_ms="-1")

    def partitions(producer: Producer) -> set[int]:
        sends = [producer.send(topic, "x", key=str(n) if n % 2 else None) for n in range(MESSAGES)]
        producer.flush()
        return {each.result().partition for each in sends}

    with Producer(bootstrap) as producer:
        assert len(partitions(producer)) > 4
        set_count(2)
        eventually(lambda: partitions(producer) <= {0, 1})
        for _ in range(15):  # longer than the quiet time: nothing is refused
            assert partitions(producer) == {0, 1}
            time.sleep(0.1)
        set_count(8)
        eventually(lambda: len(partitions(producer)) > 4)


@pytest.mark.parametrize("group", [None, "ordered"])
def test_ordered_consumer_reads_partitions_that_go_first(
    bootstrap: str, make_topic: MakeTopic, set_count: SetCount, group: str | None, topic_name: str
) -> None:
    topic = make_topic(partitions=4, partition_drain_quiet_ms="600000")
    name = f"{group}-{topic_name}" if group else None
    with Producer(bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(topic, f"old {number}", partition=3)
        producer.flush()
        set_count(2)
        for number in range(MESSAGES):
            producer.send(topic, f"new {number}", partition=0)
        producer.flush()
        with Consumer(topic, bootstrap=bootstrap, group=name, ordered=True, idle_timeout_s=20.0) as consumer:
            messages = iter(consumer)
            seen = [(next(messages).raw or b"").decode() for _ in range(2 * MESSAGES)]
            assert seen[:MESSAGES] == [f"old {number}" for number in range(MESSAGES)]
            for number in range(5):
                producer.send_and_wait(topic, f"{number} late", partition=2)
                producer.send_and_wait(topic, f"{number} later", partition=1)
            seen = [(next(messages).raw or b"").decode() for _ in range(10)]
            for number in range(5):
                assert seen.index(f"{number} late") < seen.index(f"{number} later")


def test_queue_sends_to_active_partitions_only(bootstrap: str, topic_name: str, set_count: SetCount) -> None:
    with Queue.create(topic_name, bootstrap=bootstrap, partitions=4) as queue:
        set_count(1, "seal-now")
        for number in range(6):
            assert queue.send(number, key=str(number))[0] == 0
