"""Consumers with a filter: the broker sends matching messages only, from a view that such consumers share."""

from __future__ import annotations

from itertools import islice

import pytest

from penstock import Admin, AsyncConsumer, ClientError, Consumer, InvalidSetting, Producer
from penstock.filters.shared_names import shared_view_name
from support.broker_process import MakeTopic

FILTER = "json.total > 50"
PATIENCE_S = 20.0


@pytest.fixture
def totals(bootstrap: str, make_topic: MakeTopic) -> str:
    """A topic with one partition and the totals 0, 10, ..., 90."""
    topic = make_topic()
    send(bootstrap, topic, range(0, 100, 10))
    return topic


def send(bootstrap: str, topic: str, values: range) -> None:
    with Producer(bootstrap, value_serializer="json") as producer:
        for total in values:
            producer.send(topic, {"total": total})


def open_consumer(bootstrap: str, topic: str, group: str | None = None, text: str = FILTER) -> Consumer:
    return Consumer(
        topic,
        group=group,
        bootstrap=bootstrap,
        filter=text,
        value_deserializer="json",
        idle_timeout_s=PATIENCE_S,
    )


def take(consumer: Consumer, count: int) -> list[int]:
    return [message.value["total"] for message in islice(consumer, count)]


def test_consumers_with_the_same_filter_share_a_view(bootstrap: str, totals: str) -> None:
    view = shared_view_name(totals, FILTER)
    with (
        open_consumer(bootstrap, totals) as first,
        open_consumer(bootstrap, totals, text=f" {FILTER} ") as second,
    ):
        assert take(first, 4) == take(second, 4) == [60, 70, 80, 90]
        send(bootstrap, totals, range(40, 60, 15))
        message = next(first)
        assert (message.topic, message.offset, message.value) == (view, 11, {"total": 55})
    described = Admin(bootstrap).topics.describe(view)
    assert described.config["view.of"] == totals
    assert described.config["view.shared"] == "true"


def test_a_group_continues_where_it_has_committed(bootstrap: str, totals: str) -> None:
    with open_consumer(bootstrap, totals, "billing") as consumer:
        assert take(consumer, 2) == [60, 70]
        consumer.commit()
    with open_consumer(bootstrap, totals, "billing") as consumer:
        assert take(consumer, 2) == [80, 90]


async def test_an_async_consumer_has_filters_too(bootstrap: str, totals: str) -> None:
    consumer = AsyncConsumer(totals, bootstrap=bootstrap, filter=FILTER, value_deserializer="json")
    async with consumer:
        assert [(await consumer.poll(PATIENCE_S)).value["total"] for _ in range(4)] == [60, 70, 80, 90]  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ['size == "large"', "unknown > 1", "json.total >"])
def test_a_wrong_filter_is_refused_with_its_position(bootstrap: str, totals: str, text: str) -> None:
    with pytest.raises(ClientError, match="column"):
        open_consumer(bootstrap, totals, text=text)
    assert shared_view_name(totals, text) not in Admin(bootstrap).topics.list()


def test_a_filter_needs_names_of_topics(bootstrap: str) -> None:
    with pytest.raises(InvalidSetting, match="patterns"):
        open_consumer(bootstrap, "^orders.*")
