"""Delays and lifetimes of messages that `Producer` sends, and `Consumer` reads."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import AsyncProducer, Consumer, Producer
from penstock.client.errors import InvalidSetting, NotDelivered
from support.broker_process import MakeTopic

PATIENCE_S = 30.0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with Consumer(topic, bootstrap=bootstrap, idle_timeout_s=PATIENCE_S) as consumer:
        return [next(consumer).value for _ in range(count)]


def test_messages_come_in_the_order_of_their_due_times(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, delivery_delay="true")
    now = datetime.now(UTC)
    with Producer(bootstrap=bootstrap) as producer:
        producer.send(topic, "never", delay_s=86_400)
        producer.send(topic, "last", deliver_at=now + timedelta(seconds=1.5))
        producer.send(topic, "first", delay_s=0.2)
        producer.send(topic, "past", deliver_at=int(time.time() * 1000) - 5_000)
        producer.send(topic, "over", delay_s=0.1, headers={"penstock-ttl-ms": "0"})
    assert read(bootstrap, topic, 3) == [b"past", b"first", b"last"]
    assert datetime.now(UTC) >= now + timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delay_s": 1, "deliver_at": 5}, "not both"),
        ({"delay_s": -1}, "delay_s"),
        ({"delay_s": float("nan")}, "delay_s"),
        ({"delay_s": "5"}, "delay_s='5': give a number"),
        ({"deliver_at": datetime(2030, 1, 1)}, "time zone"),
        ({"deliver_at": "2030-01-01T00:00:00Z"}, "epoch milliseconds"),
        ({"deliver_at": 1.5}, "epoch milliseconds"),
        ({"deliver_at": True}, "epoch milliseconds"),
        ({"delay_s": 1, "headers": {"penstock-deliver-at": "5"}}, "penstock-deliver-at excludes"),
        ({"deliver_at": 5, "headers": [("penstock-cancel", b"0")]}, "penstock-cancel excludes"),
        ({"delay_s": 400 * 86_400}, "delivery.delay.max.ms"),
        ({"deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}, "delivery.delay.max.ms"),
    ],
)
async def test_wrong_delays_are_refused(
    bootstrap: str, make_topic: MakeTopic, options: dict[str, Any], problem: str
) -> None:
    topic = make_topic(1, delivery_delay="true")
    with Producer(bootstrap=bootstrap) as producer, pytest.raises(InvalidSetting, match=problem):
        producer.send(topic, "x", **options)
    async with AsyncProducer(bootstrap=bootstrap) as producer:
        with pytest.raises(InvalidSetting, match=problem):
            await producer.send(topic, "x", **options)


def test_malformed_header_is_refused_with_advice(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, delivery_delay="true")
    with Producer(bootstrap=bootstrap) as producer:
        producer.send(topic, "x", headers={"penstock-delay-ms": "soon"})
        with pytest.raises(NotDelivered, match="at most one of the headers penstock-delay-ms"):
            producer.flush()


def test_time_before_1970_is_due_at_once(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, delivery_delay="true")
    with Producer(bootstrap=bootstrap) as producer:
        producer.send(topic, "number", deliver_at=-5)
        producer.send(topic, "time", deliver_at=datetime(1960, 1, 1, tzinfo=UTC))
    assert read(bootstrap, topic, 2) == [b"number", b"time"]


async def test_send_with_delay_fails_on_topic_without_delay(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with (
        Producer(bootstrap=bootstrap) as producer,
        pytest.raises(InvalidSetting, match=r"delivery\.delay"),
    ):
        producer.send(topic, "x", delay_s=1)
    async with AsyncProducer(bootstrap=bootstrap) as producer:
        with pytest.raises(InvalidSetting, match=r"delivery\.delay"):
            await producer.send(topic, "x", delay_s=1)


def test_a_longer_maximum_is_noticed(bootstrap: str, make_topic: MakeTopic) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    topic = make_topic(1, delivery_delay="true", delivery_delay_max_ms="1000")
    with Producer(bootstrap=bootstrap) as producer:
        producer.send(topic, "x", delay_s=1)
        with pytest.raises(InvalidSetting, match="1000 ms"):
            producer.send(topic, "x", delay_s=2)
        entry = ConfigEntry("delivery.delay.max.ms", "5000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        producer.send(topic, "x", delay_s=2)
