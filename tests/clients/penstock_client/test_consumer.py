"""The consumer against a real broker: with and without a group, and which messages count as processed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import pytest

from penstock import (
    Admin,
    BrokerUnreachable,
    ClientError,
    Consumer,
    GroupUnknown,
    InvalidSetting,
    Producer,
    TopicPartition,
)
from penstock.testing import Broker
from support.broker_process import MakeTopic
from support.eventually import eventually

PATIENCE_S = 20.0
PROTOCOLS = pytest.mark.parametrize("group_protocol", ["classic", "consumer"])


@pytest.fixture
def numbers(bootstrap: str, make_topic: MakeTopic) -> str:
    """A topic with one partition that contains 0 to 9."""
    topic = make_topic()
    send(bootstrap, topic, range(10))
    return topic


def send(bootstrap: str, topic: str, values: Any, partition: int | None = None) -> None:
    with Producer(bootstrap, value_serializer="json") as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def open_consumer(bootstrap: str, topic: str, group: str | None = None, **options: Any) -> Consumer:
    chosen: dict[str, Any] = {"value_deserializer": "json", "idle_timeout_s": PATIENCE_S} | options
    return Consumer(topic, group=group, bootstrap=bootstrap, **chosen)


def fail_at_three(consumer: Consumer) -> None:
    for message in consumer:
        _ = 1 / (3 - message.value)


def values(consumer: Consumer, count: int) -> list[Any]:
    return [next(consumer).value for _ in range(count)]


def test_without_a_group_everything_is_read_and_nothing_committed(
    bootstrap: str, numbers: str, admin: Admin
) -> None:
    for _ in range(2):
        with open_consumer(bootstrap, numbers) as consumer:
            assert values(consumer, 10) == list(range(10))
            assert consumer.committed(TopicPartition(numbers, 0)) is None
    assert numbers not in [group.name for group in admin.groups.list()]


def test_without_a_group_it_can_begin_at_the_end(bootstrap: str, numbers: str) -> None:
    with open_consumer(bootstrap, numbers, start="latest") as consumer:
        assert consumer.poll(0.5) is None
        send(bootstrap, numbers, [10])
        assert values(consumer, 1) == [10]


def test_iteration_ends_when_nothing_comes(bootstrap: str, numbers: str) -> None:
    with open_consumer(bootstrap, numbers, idle_timeout_s=1) as consumer:
        assert [message.value for message in consumer] == list(range(10))


@PROTOCOLS
@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_group_resumes_at_its_committed_offsets(
    bootstrap: str, numbers: str, delivery: str, group_protocol: str
) -> None:
    options = {"delivery": delivery, "group_protocol": group_protocol}
    with open_consumer(bootstrap, numbers, "g-" + numbers, **options) as consumer:
        for message in consumer:
            if message.value == 3:
                break
    with open_consumer(bootstrap, numbers, "g-" + numbers, **options) as consumer:
        assert values(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_at_least_once_redelivers_a_message_after_an_exception(bootstrap: str, numbers: str) -> None:
    with pytest.raises(ZeroDivisionError), open_consumer(bootstrap, numbers, numbers) as consumer:
        fail_at_three(consumer)
    with open_consumer(bootstrap, numbers, numbers) as consumer:
        assert values(consumer, 2) == [3, 4]


def test_at_most_once_skips_a_message_that_raised(bootstrap: str, numbers: str) -> None:
    options = {"delivery": "at-most-once"}
    with pytest.raises(ZeroDivisionError), open_consumer(bootstrap, numbers, numbers, **options) as consumer:
        fail_at_three(consumer)
    with open_consumer(bootstrap, numbers, numbers, **options) as consumer:
        assert values(consumer, 2) == [4, 5]


def test_at_least_once_a_loop_begun_anew_gets_the_unfinished_message_again(
    bootstrap: str, numbers: str
) -> None:
    with open_consumer(bootstrap, numbers, numbers) as consumer:
        with pytest.raises(ZeroDivisionError):
            fail_at_three(consumer)
        assert [message.value for message in islice(consumer, 2)] == [3, 4]


def test_commit_says_that_all_is_done(bootstrap: str, numbers: str) -> None:
    partition = TopicPartition(numbers, 0)
    consumer = open_consumer(bootstrap, numbers, numbers)
    assert values(consumer, 4) == [0, 1, 2, 3]
    assert consumer.committed(partition) is None
    consumer.commit()
    assert consumer.committed(partition) == 4
    assert [message.value for message in islice(consumer, 1)] == [4]
    consumer.close()
    with open_consumer(bootstrap, numbers, numbers) as consumer:
        assert values(consumer, 1) == [4]


def test_processed_messages_are_committed_while_reading(bootstrap: str, numbers: str) -> None:
    partition = TopicPartition(numbers, 0)
    with open_consumer(bootstrap, numbers, numbers, commit_interval_ms=50) as consumer:
        assert values(consumer, 4) == [0, 1, 2, 3]
        eventually(lambda: consumer.committed(partition) == 3)


def test_batch_is_processed_when_the_next_is_requested(bootstrap: str, numbers: str) -> None:
    consumer = open_consumer(bootstrap, numbers, numbers)
    assert [message.value for message in consumer.batch(3, PATIENCE_S)] == [0, 1, 2]
    assert [message.value for message in consumer.batch(3, PATIENCE_S)] == [3, 4, 5]
    consumer.close()
    with open_consumer(bootstrap, numbers, numbers) as consumer:
        assert values(consumer, 1) == [3]


@PROTOCOLS
@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_a_joining_member_takes_over_unprocessed_messages(
    bootstrap: str, make_topic: MakeTopic, delivery: str, group_protocol: str
) -> None:
    topic = make_topic(partitions=2)
    events: list[tuple[str, int]] = []
    options = {
        "delivery": delivery,
        "group_protocol": group_protocol,
        "config": {"heartbeat.interval.ms": 100} if group_protocol == "classic" else {},
    }
    for number in range(2):
        send(bootstrap, topic, range(number * 100, number * 100 + 50), partition=number)
    seen: list[int] = []
    with open_consumer(
        bootstrap,
        topic,
        topic,
        on_assigned=lambda found: events.append(("assigned", len(found))),
        on_revoked=lambda found: events.append(("revoked", len(found))),
        **options,
    ) as first:
        seen += values(first, 10)
        assert events[0] == ("assigned", 2)
        with open_consumer(bootstrap, topic, topic, **options) as second:
            deadline = time.monotonic() + 2 * PATIENCE_S
            while len(seen) < 100:
                assert time.monotonic() < deadline, f"{len(seen)} came, {events}"
                for each in (first, second):
                    # Read slowly, so that the group rebalances long before the end.
                    message = each.poll(0.1)
                    if message is not None:
                        seen.append(message.value)
            assert second.assignment()
    assert sorted(seen) == [*range(50), *range(100, 150)]
    assert ("revoked", 1) in events


def test_paused_partition_returns_no_messages_until_resumed(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    for number in range(2):
        send(bootstrap, topic, [number] * 5, partition=number)
    with open_consumer(bootstrap, topic) as consumer:
        first = next(consumer).value
        consumer.pause(TopicPartition(topic, first))
        assert values(consumer, 5) == [1 - first] * 5
        assert consumer.poll(0.3) is None
        consumer.resume()
        assert values(consumer, 4) == [first] * 4


@pytest.mark.parametrize("group", [None, "seekers"])
def test_seek_continues_at_the_given_offset(bootstrap: str, numbers: str, group: str | None) -> None:
    partition = TopicPartition(numbers, 0)
    with open_consumer(bootstrap, numbers, group and group + numbers) as consumer:
        assert values(consumer, 2) == [0, 1]
        assert consumer.position(partition) == 2
        consumer.seek(partition, 7)
        assert values(consumer, 2) == [7, 8]
        consumer.seek_to_start()
        assert values(consumer, 1) == [0]
        consumer.seek_to_end(partition)
        assert consumer.poll(0.3) is None
        with pytest.raises(InvalidSetting, match="not assigned"):
            consumer.seek(TopicPartition(numbers, 5), 0)
        with pytest.raises(InvalidSetting, match="not assigned"):
            consumer.pause(TopicPartition(numbers, 5))


def test_seek_works_before_the_first_message_and_in_on_assigned(bootstrap: str, numbers: str) -> None:
    partition = TopicPartition(numbers, 0)
    with open_consumer(bootstrap, numbers) as consumer:
        consumer.seek(partition, 8)
        assert values(consumer, 2) == [8, 9]
    member: Consumer
    with open_consumer(
        bootstrap, numbers, numbers, on_assigned=lambda found: member.seek(found[0], 6)
    ) as member:
        assert values(member, 2) == [6, 7]


def test_seek_to_a_time(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with Producer(bootstrap, value_serializer="json") as producer:
        for hour in range(5):
            producer.send(topic, hour, timestamp=noon + timedelta(hours=hour))
    with open_consumer(bootstrap, topic) as consumer:
        consumer.seek_to_time(noon + timedelta(hours=2, minutes=30))
        assert values(consumer, 2) == [3, 4]
        consumer.seek_to_time(round(noon.timestamp() * 1000) + 1)
        assert values(consumer, 1) == [1]
        consumer.seek_to_time(noon + timedelta(days=9))
        assert consumer.poll(0.3) is None


def test_bytes_that_do_not_fit_can_be_skipped(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap) as producer:
        for value in ("1", "{", "2"):
            producer.send(topic, value)
    found: list[Any] = []
    with open_consumer(bootstrap, topic) as consumer:
        for message in islice(consumer, 3):
            try:
                found.append(message.value)
            except ClientError:
                found.append(message.raw)
    assert found == [1, b"{", 2]


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_waits_for_its_topic_and_says_so_once(
    bootstrap: str, topic_name: str, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with open_consumer(bootstrap, topic_name, group) as consumer:
        assert consumer.poll(2.5) is None
        with Admin(bootstrap) as admin:
            admin.topics.create(topic_name, partitions=2)
        with Producer(bootstrap) as producer:
            producer.send(topic_name, "late")
        message = consumer.poll(20)
    assert message is not None
    assert message.raw == b"late"
    said = [record.getMessage() for record in caplog.records if "does not exist" in record.getMessage()]
    assert len(said) == 1
    assert topic_name in said[0]


def test_consumers_that_close_together_leave_no_member_behind(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic(partitions=4)

    def read_and_close(group: str, stop: threading.Event) -> None:
        with open_consumer(bootstrap, topic, group) as consumer:
            while not stop.is_set():
                consumer.poll(0.02)

    for number in range(3):
        group, stop = f"{topic}-{number}", threading.Event()
        threads = [threading.Thread(target=read_and_close, args=(group, stop)) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(partial(members, admin, group))
        stop.set()  # while the group still rebalances
        for thread in threads:
            thread.join()
        assert eventually(partial(is_empty, admin, group), within_s=20)


def is_empty(admin: Admin, group: str) -> bool:
    return not members(admin, group)


def members(admin: Admin, group: str) -> Sequence[object]:
    try:
        return admin.groups.describe(group).members
    except GroupUnknown:
        return ()


def test_reading_continues_when_the_broker_is_back(penstock_broker: Broker) -> None:
    bootstrap = penstock_broker.bootstrap
    send(bootstrap, "t", [0])
    with open_consumer(bootstrap, "t", "g") as consumer:
        assert values(consumer, 1) == [0]
        penstock_broker.kill()
        assert consumer.poll(0.2) is None
        penstock_broker.start()
        send(bootstrap, "t", [1])
        assert values(consumer, 1) == [1]


def test_unreachable_broker_is_reported_at_once() -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        Consumer("t", bootstrap="127.0.0.1:1", connect_timeout_s=0.05)


def test_a_closed_consumer_says_so(bootstrap: str, numbers: str) -> None:
    consumer = open_consumer(bootstrap, numbers)
    consumer.close()
    consumer.close()
    with pytest.raises(ClientError, match="closed"):
        consumer.poll(0)
