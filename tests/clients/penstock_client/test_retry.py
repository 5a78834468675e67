"""`Consumer.retry` against a real broker: failed messages come back, and become dead letters after the last attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Admin, AsyncConsumer, ClientError, Consumer, InvalidSetting, Message, Producer
from penstock.client.retries import RetriesExhausted
from penstock.delay.retry_policy import RetryPolicy
from support.broker_process import MakeTopic

PATIENCE_S = 30.0


def set_policy(admin: Admin, group: str, **choices: Any) -> RetryPolicy:
    policy = RetryPolicy(group, **{"back_off": "", "dead_letter": f"{group}.dead", **choices})
    admin.topics.create(policy.topic, partitions=2, config=policy.topic_configs)
    if policy.dead_letter:
        admin.topics.create(policy.dead_letter, partitions=1)
    return policy


def send(bootstrap: str, topic: str, *values: str, **options: Any) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value, **options)


def opened(bootstrap: str, topic: str, group: str, **options: Any) -> Consumer:
    return Consumer(topic, group=group, bootstrap=bootstrap, **{"idle_timeout_s": PATIENCE_S, **options})


def all_of(bootstrap: str, topic: str, count: int) -> list[Message]:
    with Consumer(topic, bootstrap=bootstrap, idle_timeout_s=PATIENCE_S) as consumer:
        return [next(consumer) for _ in range(count)]


def test_a_failed_message_comes_back_and_then_becomes_a_dead_letter(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    policy = set_policy(admin, topic, max_attempts=3)
    send(bootstrap, topic, "bad", key="k", headers={"own": "1"})
    with opened(bootstrap, topic, topic) as consumer:
        for attempt in (1, 2, 3):
            message = next(consumer)
            assert (message.attempt, message.value, message.key) == (attempt, b"bad", b"k")
            consumer.retry(message, f"failure {attempt}")
        consumer.commit()
    [letter] = all_of(bootstrap, policy.dead_letter, 1)
    headers = {name: value for name, value in letter.headers if value is not None}
    assert (letter.value, letter.key, headers["own"]) == (b"bad", b"k", b"1")
    assert headers["penstock-dead-reason"] == b"attempts"
    assert headers["penstock-dead-attempts"] == b"3"
    assert headers["__dlq.errors.message"] == b"failure 3"
    assert headers["__dlq.errors.topic"] == topic.encode()
    assert headers["__dlq.errors.offset"] == b"0"
    assert not any(name.startswith(("penstock-retry-", "penstock-origin-")) for name in headers)


def test_the_offset_is_committed_with_the_retry(bootstrap: str, make_topic: MakeTopic, admin: Admin) -> None:
    topic = make_topic()
    set_policy(admin, topic, back_off="1h")
    send(bootstrap, topic, "good", "bad", "next")
    with opened(bootstrap, topic, topic) as consumer:
        assert next(consumer).value == b"good"
        message = next(consumer)
        consumer.retry(message, "not now")
        assert consumer.committed(message.topic_partition) == 2
        consumer.close()  # as after a crash: nothing else is committed
    with opened(bootstrap, topic, topic) as consumer:
        assert next(consumer).value == b"next"


def test_headers_say_where_the_message_was_and_why_it_failed(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    policy = set_policy(admin, topic)
    send(bootstrap, topic, "bad")
    with opened(bootstrap, topic, topic) as consumer:
        consumer.retry(next(consumer), "no stock", delay_s=0.2)
        message = next(consumer)
        assert message.topic == policy.topic
        assert message.header("penstock-retry-reason") == b"no stock"
        assert message.header("penstock-retry-topic") == topic.encode()
        assert message.header("penstock-retry-partition") == b"0"
        assert message.header("penstock-retry-offset") == b"0"
        first, due = message.header("penstock-origin-timestamp"), message.timestamp_ms
        assert due - int(first or b"0") == 200


def test_a_consumer_that_begins_at_the_end_reads_all_retries(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    policy = set_policy(admin, topic)
    send(bootstrap, policy.topic, "failed elsewhere")
    with opened(bootstrap, topic, topic, start="latest") as consumer:
        assert next(consumer).value == b"failed elsewhere"


def test_a_group_without_a_policy_gets_the_default_one(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    send(bootstrap, topic, "bad")
    with opened(bootstrap, topic, topic) as consumer:
        consumer.retry(next(consumer), "once")
        assert next(consumer).attempt == 2
    assert admin.topics.configs(f"{topic}.retry")["retry.dead.letter.topic"] == f"{topic}.dead"


def test_messages_of_a_batch_are_retried_in_any_order(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    set_policy(admin, topic, back_off="1h")
    send(bootstrap, topic, "a", "b", "c")
    with opened(bootstrap, topic, topic) as consumer:
        batch: list[Message] = []
        while len(batch) < 3:
            batch = consumer.batch(3, PATIENCE_S)
            if len(batch) < 3:
                consumer.seek_to_start()
        consumer.retry(batch[2])
        consumer.retry(batch[0])
        assert consumer.committed(batch[0].topic_partition) == 3


def test_without_a_dead_letter_topic_the_last_attempt_raises(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    set_policy(admin, topic, max_attempts=2, dead_letter="")
    send(bootstrap, topic, "bad")
    with opened(bootstrap, topic, topic) as consumer:
        consumer.retry(next(consumer))
        with pytest.raises(RetriesExhausted, match="failed 2 times"):
            consumer.retry(next(consumer))


def test_a_policy_that_changes_meanwhile_is_read_again(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    policy = set_policy(admin, topic, max_attempts=5)
    send(bootstrap, topic, "bad")
    with opened(bootstrap, topic, topic) as consumer:
        consumer.retry(next(consumer))
        admin.topics.alter(policy.topic, set={"retry.max.attempts": "2"})
        consumer.retry(next(consumer), "too often")
    [letter] = all_of(bootstrap, policy.dead_letter, 1)
    assert letter.header("penstock-dead-attempts") == b"2"


def test_a_retry_needs_a_group_and_a_message_in_work(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    set_policy(admin, topic)
    send(bootstrap, topic, "a", "b")
    with (
        Consumer(topic, bootstrap=bootstrap, idle_timeout_s=PATIENCE_S) as plain,
        pytest.raises(InvalidSetting, match="group"),
    ):
        plain.retry(next(plain))
    with opened(bootstrap, topic, topic) as consumer:
        done = next(consumer)
        next(consumer)
        with pytest.raises(ClientError, match="not in work"):
            consumer.retry(done)
        with pytest.raises(InvalidSetting, match="delay_s"):
            consumer.retry(done, delay_s=-1)


def test_a_lifetime_continues_during_retries(bootstrap: str, make_topic: MakeTopic, admin: Admin) -> None:
    topic = make_topic()
    set_policy(admin, topic)
    send(bootstrap, topic, "bad", headers={"penstock-ttl-ms": "600000"})
    with opened(bootstrap, topic, topic) as consumer:
        first = next(consumer)
        consumer.retry(first)
        again = next(consumer)
        assert again.header("penstock-expires-at") == str(first.timestamp_ms + 600_000).encode()
        assert again.header("penstock-ttl-ms") is None


def test_the_async_consumer_retries_too(bootstrap: str, make_topic: MakeTopic, admin: Admin) -> None:
    topic = make_topic()
    set_policy(admin, topic)
    send(bootstrap, topic, "bad")

    async def work() -> int:
        async with AsyncConsumer(topic, group=topic, bootstrap=bootstrap) as consumer:
            message = await consumer.poll(PATIENCE_S)
            assert message is not None
            await consumer.retry(message, "once")
            again = await consumer.poll(PATIENCE_S)
            assert again is not None
            return again.attempt

    assert asyncio.run(work()) == 2
