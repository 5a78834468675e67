"""`Queue` and `AsyncQueue` against a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from penstock import (
    AsyncQueue,
    ClientError,
    InvalidSetting,
    NotSerializable,
    Queue,
    QueueEmpty,
    QueueUnknown,
    ReceiptExpired,
)
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.dead_letters import Selection
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.records import EARLIEST
from penstock.internal_client.topics import NewTopic
from support.eventually import eventually

WAIT_S = 20.0


@pytest.fixture
def queue_name(bootstrap: str, topic_name: str) -> str:
    create(bootstrap, NewQueue(topic_name, partitions=1, settings={"lock_ms": "30000", "max_attempts": "5"}))
    return topic_name


def create(bootstrap: str, queue: NewQueue) -> None:
    run(InternalClient.to(bootstrap, "test", 20.0), lambda client: client.queues.create(queue))


def describe(bootstrap: str, name: str) -> Any:
    return run(InternalClient.to(bootstrap, "test", 20.0), lambda client: client.queues.describe(name))


def test_value_is_received_as_it_was_sent(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        sent: list[Any] = [{"id": 7}, "text", b"\xff\x00", [1, None], 3.5, True, None]
        for value in sent:
            queue.send(value, key="alice", ttl_s=3600, priority=5, headers={"a": "b"})
        received = []
        for _ in sent:
            with queue.receive(wait_s=WAIT_S) as message:
                received.append(message.value)
                assert message.attempt == 1
                assert message.key == b"alice"
                assert message.headers["a"] == b"b"
        assert received == sent
        with pytest.raises(QueueEmpty):
            queue.receive()
    assert describe(bootstrap, queue_name).depth == 0


def test_exception_releases_the_message(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        queue.send("a")
        with pytest.raises(ZeroDivisionError), queue.receive(wait_s=WAIT_S):
            raise ZeroDivisionError
        with queue.receive(wait_s=WAIT_S) as message:
            assert message.attempt == 2
            message.release(delay_s=3600)
        with pytest.raises(QueueEmpty):
            queue.receive(wait_s=0.2)
        with pytest.raises(ReceiptExpired):
            message.accept()


def test_lock_is_extended_while_a_message_is_processed(bootstrap: str, queue_name: str) -> None:
    with (
        Queue(queue_name, bootstrap=bootstrap, lock_s=1.0) as queue,
        Queue(queue_name, bootstrap=bootstrap, lock_s=1.0, max_lock_s=0.1) as careless,
    ):
        queue.send("long")
        with queue.receive(wait_s=WAIT_S), pytest.raises(QueueEmpty):
            careless.receive(wait_s=3)
        queue.send("lost")
        lost = careless.receive(wait_s=WAIT_S)
        with queue.receive(wait_s=WAIT_S) as again:
            assert again.attempt == 2
        with pytest.raises(ReceiptExpired):
            lost.accept()


def test_workers_process_each_message_once(bootstrap: str, queue_name: str) -> None:
    seen: list[int] = []
    failed: set[int] = set()
    with Queue(queue_name, bootstrap=bootstrap, workers=8) as queue:

        def work(message: Any) -> None:
            if message.value % 10 == 0 and message.value not in failed:
                failed.add(message.value)
                raise ValueError(message.value)
            seen.append(message.value)

        for number in range(100):
            queue.send(number)
        running = threading.Thread(target=queue.run, args=(work,))
        running.start()
        eventually(lambda: len(seen) == 100)
        queue.stop()
        running.join(WAIT_S)
        assert not running.is_alive()
    assert sorted(seen) == list(range(100))
    eventually(lambda: describe(bootstrap, queue_name).depth == 0)


def test_loop_accepts_and_break_returns_the_message(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        for number in range(3):
            queue.send(number)
        for message in queue:
            if message.value == 1:
                break
        with queue.receive(wait_s=WAIT_S) as message:
            assert (message.value, message.attempt) == (1, 2)


def test_share_consumer_is_a_consumer_of_the_queue(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        queue.send("for kafka")
        consumer = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": queue_name, "share.acknowledgement.mode": "explicit"}
        )
        consumer.subscribe([queue_name])
        deadline = time.monotonic() + 60
        messages: list[Any] = []
        while not messages and time.monotonic() < deadline:
            messages = consumer.poll(1.0)
        assert [message.value() for message in messages] == [b"for kafka"]
        with pytest.raises(QueueEmpty):
            queue.receive()
        consumer.acknowledge(messages[0], AcknowledgeType.ACCEPT)
        consumer.commit_sync(10.0)
        consumer.close()
        assert describe(bootstrap, queue_name).depth == 0


def test_bad_input_is_refused(bootstrap: str, queue_name: str) -> None:
    with pytest.raises(InvalidSetting):
        Queue(queue_name, bootstrap=bootstrap, workers=0)
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        for options in ({"delay_s": -1}, {"ttl_s": -1}, {"priority": 10}, {"delay_s": 1e12}):
            with pytest.raises(InvalidSetting):
                queue.send("x", **options)
        for value, named in (
            (object(), {}),
            (float("nan"), {}),
            ("x", {"key": 7}),
            ("x", {"headers": {"a": 1}}),
        ):
            with pytest.raises(NotSerializable):
                queue.send(value, **named)
        wrong_delays: list[Any] = ["soon", float("nan")]
        for wrong in wrong_delays:
            with pytest.raises(InvalidSetting):
                queue.send("x", delay_s=wrong)
    with Queue("missing-queue", bootstrap=bootstrap) as missing, pytest.raises(QueueUnknown):
        missing.send("x")


def test_delayed_message_is_received_when_it_is_due(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        began = time.monotonic()
        queue.send("later", delay_s=1)
        queue.send("now")
        for value in ("now", "later"):
            with queue.receive(wait_s=WAIT_S) as message:
                assert message.value == value
        assert time.monotonic() - began >= 1
    eventually(lambda: describe(bootstrap, queue_name).depth == 0)


def test_delay_of_a_queue_needs_a_topic_with_delays(bootstrap: str, topic_name: str) -> None:
    run(InternalClient.to(bootstrap, "test", 20.0), lambda client: client.topics.create(NewTopic(topic_name)))
    with (
        Queue.create(f"{topic_name}-queue", of=topic_name, bootstrap=bootstrap) as queue,
        pytest.raises(InvalidSetting, match=r"delivery\.delay"),
    ):
        queue.send("x", delay_s=5)


def test_settled_messages_are_deleted_where_the_queue_says_so(bootstrap: str, topic_name: str) -> None:
    with Queue.create(topic_name, partitions=1, retain="acknowledged", bootstrap=bootstrap) as queue:
        for value in range(5):
            queue.send(value)
        held = queue.receive_many(3, wait_s=WAIT_S)
        queue.accept(held)
        eventually(lambda: first_offset(bootstrap, topic_name) == 3, within_s=60)
        assert f"group {topic_name}" in describe(bootstrap, topic_name).kept_by[0]


def first_offset(bootstrap: str, topic: str) -> int:
    found = run(
        InternalClient.to(bootstrap, "test", 20.0),
        lambda client: client.records.offsets(topic, [0], EARLIEST),
    )
    return found[0]


def test_call_that_waits_ends_when_the_queue_is_closed(bootstrap: str, queue_name: str) -> None:
    queue = Queue(queue_name, bootstrap=bootstrap)
    ended: list[str] = []

    def wait() -> None:
        try:
            queue.receive(wait_s=600)
        except ClientError as error:
            ended.append(str(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    eventually(lambda: bool(asyncio.all_tasks(queue._loop)))
    queue.close()
    thread.join(WAIT_S)
    assert "closed" in ended[0]


def test_queue_is_created_from_python(bootstrap: str, topic_name: str) -> None:
    with Queue.create(topic_name, partitions=1, back_off="1s", max_attempts=2, bootstrap=bootstrap) as queue:
        queue.send("a")
        assert queue.receive(wait_s=WAIT_S).value == "a"
    with pytest.raises(ClientError, match="already"):
        Queue.create(topic_name, bootstrap=bootstrap)
    with pytest.raises(InvalidSetting):
        Queue.create(f"{topic_name}-2", back_off="soon", bootstrap=bootstrap)


def test_async_queue_sends_receives_and_settles(bootstrap: str, queue_name: str) -> None:
    async def scenario() -> None:
        async with AsyncQueue(queue_name, bootstrap=bootstrap) as queue:
            for number in range(3):
                await queue.send({"number": number})
            async with await queue.receive(wait_s=WAIT_S) as message:
                assert message.value == {"number": 0}
            waiting = asyncio.create_task(queue.receive_many(10, WAIT_S))
            rest = await waiting
            assert [each.value["number"] for each in rest] == [1, 2]
            await rest[0].accept()
            await rest[1].reject("bad")
            with pytest.raises(QueueEmpty):
                await queue.receive()
            await queue.send("last")
            async with queue.receive(wait_s=WAIT_S) as message:
                assert message.value == "last"
            with pytest.raises(QueueEmpty):
                async with queue.receive():
                    pytest.fail("nothing was received")

    asyncio.run(scenario())


def test_async_workers_process_messages_at_the_same_time(bootstrap: str, queue_name: str) -> None:
    async def scenario() -> None:
        together = asyncio.Barrier(4)
        failed: set[int] = set()
        seen: list[int] = []
        async with AsyncQueue(queue_name, bootstrap=bootstrap, workers=4) as queue:

            async def work(message: Any) -> None:
                if message.value not in failed:
                    failed.add(message.value)
                    async with asyncio.timeout(WAIT_S):
                        await together.wait()
                    raise ValueError(message.value)
                seen.append(message.value)
                if len(seen) == 4:
                    queue.stop()

            for number in range(4):
                await queue.send(number)
            await queue.run(work)
        assert sorted(seen) == [0, 1, 2, 3]

    asyncio.run(scenario())
    assert describe(bootstrap, queue_name).depth == 0


def test_several_messages_are_accepted_together(bootstrap: str, topic_name: str) -> None:
    with Queue.create(topic_name, partitions=1, bootstrap=bootstrap) as queue:
        for value in range(4):
            queue.send(value)
        held = queue.receive_many(4, wait_s=WAIT_S)
        held[1].accept()
        with pytest.raises(ReceiptExpired):
            queue.accept(held)
        assert [each.is_settled for each in held] == [True, False, True, True]
        assert describe(bootstrap, topic_name).depth == 0


def test_closed_queue_returns_messages_that_are_not_settled(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        for number in range(3):
            queue.send(number)
        queue.receive_many(2, wait_s=WAIT_S)[0].accept()
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        found = queue.receive_many(3, wait_s=WAIT_S)
        assert [(each.value, each.attempt) for each in found] == [(1, 2)]
        assert queue.receive(wait_s=WAIT_S).value == 2


def test_message_that_no_worker_has_started_was_not_tried(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap, prefetch=4) as queue:
        for number in range(20):
            queue.send(number)
        done: list[int] = []

        def work(message: Any) -> None:
            if len(done) == 8:
                eventually(lambda: describe(bootstrap, queue_name).in_flight > 1)
                queue.stop()
            done.append(message.value)

        queue.run(work)
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        left = [queue.receive(wait_s=WAIT_S) for _ in range(20 - len(done))]
        assert [each.attempt for each in left] == [1] * len(left)
        assert sorted([*done, *(each.value for each in left)]) == list(range(20))


def test_prefetched_messages_are_returned_while_work_takes_long(bootstrap: str, queue_name: str) -> None:
    others: list[Any] = []
    with (
        Queue(queue_name, bootstrap=bootstrap, prefetch=4) as queue,
        Queue(queue_name, bootstrap=bootstrap) as other,
    ):
        for number in range(20):
            queue.send(number)
        done: list[int] = []

        def work(message: Any) -> None:
            done.append(message.value)
            if len(done) == 8:
                eventually(lambda: describe(bootstrap, queue_name).in_flight > 1)
                while len(done) + len(others) < 20:
                    with other.receive(wait_s=WAIT_S) as received:
                        others.append((received.value, received.attempt))
                queue.stop()

        queue.run(work)
    assert sorted([*done, *(value for value, _ in others)]) == list(range(20))
    assert {attempt for _, attempt in others} == {1}


@pytest.mark.parametrize(("order", "priorities"), [("key", False), (None, True)])
def test_queue_with_an_order_has_no_prefetch(
    bootstrap: str, topic_name: str, order: str | None, priorities: bool
) -> None:
    ordered = Queue.create(topic_name, partitions=1, bootstrap=bootstrap, order=order, priorities=priorities)
    with ordered as queue:
        for number in range(20):
            queue.send(number, key=str(number))
        in_flight: list[int] = []

        def work(_: Any) -> None:
            in_flight.append(describe(bootstrap, topic_name).in_flight)
            if len(in_flight) == 10:
                queue.stop()

        queue.run(work)
    assert max(in_flight) <= 2  # the message before it is perhaps not settled yet


def test_redrive_with_a_rate_sends_no_burst(bootstrap: str, topic_name: str) -> None:
    with Queue.create(topic_name, partitions=1, dead_letter=f"{topic_name}-d", bootstrap=bootstrap) as queue:
        for number in range(4):
            queue.send(number)
        for message in queue.receive_many(4, wait_s=WAIT_S):
            message.reject()
    steps: list[int] = []

    async def redrive(client: InternalClient) -> int:
        owner = await client.dead_letters.owner(topic_name)
        return await client.dead_letters.redrive(
            owner, Selection(), rate=2, progress=lambda done, _: steps.append(done)
        )

    assert run(InternalClient.to(bootstrap, "test", 20.0), redrive) == 4
    assert steps == [2, 4]
