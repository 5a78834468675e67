"""The async client: same behaviour as the plain client, and the event loop is never blocked."""

from __future__ import annotations

import asyncio

import pytest

from penstock import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    BrokerUnreachable,
    ClientError,
    NotDelivered,
    TopicPartition,
    TopicUnknown,
)
from support.broker_process import MakeTopic
from support.stopwatch import Stopwatch

NO_NEW_TOPICS = {"topic.metadata.propagation.max.ms": 200, "allow.auto.create.topics": False}
PATIENCE_S = 20.0


async def test_sent_messages_are_read(bootstrap: str, topic_name: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        await admin.topics.create(topic_name, partitions=2)
        assert topic_name in await admin.topics.list()
    async with AsyncProducer(bootstrap, value_serializer="json") as producer:
        handles = [await producer.send(topic_name, number, partition=0) for number in range(500)]
        assert [(await handle).offset for handle in handles] == list(range(500))
        assert (await producer.send_and_wait(topic_name, 500, partition=0, headers={"a": "b"})).offset == 500
    async with AsyncConsumer(topic_name, bootstrap=bootstrap, value_deserializer="json") as consumer:
        found = []
        async for message in consumer:
            found.append(message.value)
            if len(found) == 501:
                break
        assert found == list(range(501))
        assert await consumer.position(TopicPartition(topic_name, 0)) == 501
        await consumer.seek(TopicPartition(topic_name, 0), 499)
        assert [message.value for message in await consumer.batch(9, PATIENCE_S)] == [499, 500]


async def test_group_resumes_at_its_committed_offsets(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with AsyncProducer(bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, str(number))

    async def fail_at_three() -> None:
        async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap, value_deserializer=int) as consumer:
            async for message in consumer:
                _ = 1 / (3 - message.value)

    with pytest.raises(ZeroDivisionError):
        await fail_at_three()
    async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap, value_deserializer=int) as consumer:
        async for message in consumer:
            assert message.value == 3
            break
    async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap, value_deserializer=int) as consumer:
        message_after = await consumer.poll(PATIENCE_S)
        assert message_after is not None
        assert message_after.value == 4
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) == 5


async def test_a_reader_that_is_cancelled_loses_nothing(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with (
        AsyncProducer(bootstrap) as producer,
        AsyncConsumer(topic, group=topic, bootstrap=bootstrap, idle_timeout_s=PATIENCE_S) as consumer,
    ):
        found: list[bytes | None] = []
        for number in range(30):
            waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0)
            await producer.send_and_wait(topic, str(number))
            waiting.cancel()
            try:
                message = await waiting
            except asyncio.CancelledError:
                continue
            assert message is not None
            found.append(message.raw)
        while len(found) < 30:
            message = await consumer.poll(PATIENCE_S)
            assert message is not None, f"only {found}"
            found.append(message.raw)
    assert found == [str(number).encode() for number in range(30)]


async def test_a_loop_begun_anew_gets_the_unfinished_message_again(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    async with AsyncProducer(bootstrap) as producer:
        for number in range(3):
            await producer.send(topic, str(number))
    found: list[bytes | None] = []
    async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap) as consumer:
        for stop in (b"1", b"2"):
            async for message in consumer:
                found.append(message.raw)
                if message.raw == stop:
                    break
    assert found == [b"0", b"1", b"1", b"2"]


async def test_event_loop_is_not_blocked_while_a_consumer_waits(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            stopwatch = Stopwatch()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, stopwatch.seconds)

    async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap) as consumer:
        watching = asyncio.create_task(watch())
        assert await consumer.poll(1.0) is None
        watching.cancel()
    assert longest_s < 0.5


async def test_unawaited_failure_is_raised_at_the_end_of_the_block(bootstrap: str, topic_name: str) -> None:
    with pytest.raises(NotDelivered):
        async with AsyncProducer(bootstrap, config=NO_NEW_TOPICS) as producer:
            await producer.send(topic_name, "x")


async def test_a_failure_is_raised_where_it_is_awaited_and_only_there(
    bootstrap: str, topic_name: str
) -> None:
    async with AsyncProducer(bootstrap, config=NO_NEW_TOPICS) as producer:
        with pytest.raises(TopicUnknown):
            await producer.send_and_wait(topic_name, "x")


async def test_admin_reports_a_missing_topic(bootstrap: str, topic_name: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        with pytest.raises(TopicUnknown, match=topic_name):
            await admin.topics.describe(topic_name)
        assert topic_name not in [group.name for group in await admin.groups.list()]


async def test_unreachable_broker_is_reported_at_once() -> None:
    for client in (
        AsyncProducer("127.0.0.1:1", connect_timeout_s=0.05),
        AsyncConsumer("t", bootstrap="127.0.0.1:1", connect_timeout_s=0.05),
        AsyncAdmin("127.0.0.1:1", connect_timeout_s=0.05),
    ):
        with pytest.raises(BrokerUnreachable):
            await client.__aenter__()


async def test_used_without_async_with_it_says_so() -> None:
    with pytest.raises(ClientError, match="async with"):
        await AsyncProducer("127.0.0.1:1").send("t", "x")
    with pytest.raises(ClientError, match="async with"):
        await AsyncConsumer("t", bootstrap="127.0.0.1:1").poll()
