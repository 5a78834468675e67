"""The Penstock client on a link with slow responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from links import Links

from penstock import Consumer, Producer, TopicPartition
from penstock.testing import Broker

DELAY_S = 0.1
LOOKED_UP_AGAIN_S = 1.5
"""Interval after which librdkafka requests the start of a partition again, in seconds, with a margin."""


@pytest.fixture
def bootstrap(starts_processes: None) -> Iterator[str]:
    """Address of a broker with a topic that contains 0 to 9."""
    broker = Broker()
    with closing(Links()) as links:
        port = links.listen("broker", broker.port, lambda _: "client")
        broker.settings = (*broker.settings, f"advertised.listeners=127.0.0.1:{port}")
        with broker:
            with Producer(f"127.0.0.1:{port}", value_serializer="json") as producer:
                for number in range(10):
                    producer.send("numbers", number)
                    producer.flush()
            links.slow("client", "broker", DELAY_S)
            yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("group", [None, "seekers"])
def test_a_seek_holds_that_comes_before_the_start_is_known(bootstrap: str, group: str | None) -> None:
    place = TopicPartition("numbers", 0)
    with Consumer(
        "numbers", group=group, bootstrap=bootstrap, value_deserializer="json", idle_timeout_s=20
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(0.01)
        consumer.seek(place, 7)
        assert [next(consumer).value for _ in range(3)] == [7, 8, 9]
        assert consumer.poll(LOOKED_UP_AGAIN_S) is None
        assert consumer.position(place) == 10


def test_a_seek_holds_that_follows_a_seek_to_the_end(bootstrap: str) -> None:
    one_by_one = {"max.partition.fetch.bytes": 1, "queued.min.messages": 1}
    with Consumer(
        "numbers", bootstrap=bootstrap, value_deserializer="json", idle_timeout_s=20, config=one_by_one
    ) as consumer:
        assert next(consumer).value == 0
        consumer.seek_to_end()
        consumer.seek(TopicPartition("numbers", 0), 1)
        assert [next(consumer).value for _ in range(9)] == list(range(1, 10))
