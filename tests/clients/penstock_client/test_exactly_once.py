"""Exactly once: transactions of the client, and `process`, which reads, transforms and writes in
transactions.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock import (
    Admin,
    AsyncProducer,
    ClientError,
    Consumer,
    InvalidSetting,
    Message,
    Out,
    Producer,
    ProducerFenced,
    TimedOut,
    TransactionAborted,
    process,
)
from penstock.client import transactions
from penstock.client.producer_options import ProducerOptions
from penstock.client.sender import MessageSender
from penstock.client.transactions import Transactions
from support.broker_process import MakeTopic

IDLE_S = 1.5


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    with Consumer(
        topic, bootstrap=bootstrap, idle_timeout_s=IDLE_S, config={"isolation.level": isolation}
    ) as consumer:
        return sorted(message.value.decode() for message in consumer)


@contextmanager
def producing(bootstrap: str, transactional_id: str | None = None) -> Iterator[Producer]:
    name = transactional_id or f"t-{uuid.uuid4().hex[:8]}"
    with Producer(bootstrap, delivery="exactly-once", transactional_id=name) as producer:
        yield producer


def test_messages_of_a_transaction_are_committed_together(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with producing(bootstrap) as producer:
        with producer.transaction():
            for number in range(5):
                producer.send(topic, f"a{number}", key=str(number))
        with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117
            with producer.transaction():
                producer.send_and_wait(topic, "never")
                raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, "b")
    assert read(bootstrap, topic) == ["a0", "a1", "a2", "a3", "a4", "b"]
    assert "never" in read(bootstrap, topic, "read_uncommitted")


def test_failure_of_a_message_aborts_its_transaction(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with producing(bootstrap) as producer:
        with pytest.raises(ClientError):  # noqa: PT012, SIM117
            with producer.transaction():
                producer.send(topic, "with it")
                producer.send("no-such-topic-here", "lost", partition=77)
        with producer.transaction():
            producer.send(topic, "after it")
    assert read(bootstrap, topic) == ["after it"]


def test_messages_are_sent_inside_a_transaction_only(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with producing(bootstrap) as producer, pytest.raises(ClientError, match="inside"):
        producer.send(topic, "outside")
    with Producer(bootstrap) as producer, pytest.raises(InvalidSetting, match="exactly-once"):  # noqa: SIM117
        with producer.transaction():
            pass
    with producing(bootstrap) as producer, producer.transaction():  # noqa: SIM117
        with pytest.raises(ClientError, match="already open"):
            with producer.transaction():
                pass


@pytest.mark.parametrize("option", ["transactional_id", "transaction_timeout_s"])
def test_settings_of_transactions_need_exactly_once(option: str) -> None:
    with pytest.raises(InvalidSetting, match=option):
        Producer(**{option: "5"})  # type: ignore[arg-type]


def test_successor_takes_over_and_the_old_producer_is_fenced(bootstrap: str, make_topic: MakeTopic) -> None:
    topic, name = make_topic(1), f"t-{uuid.uuid4().hex[:8]}"
    with producing(bootstrap, name) as old, pytest.raises(ProducerFenced):  # noqa: PT012, SIM117
        with old.transaction():
            old.send_and_wait(topic, "old")
            with producing(bootstrap, name) as successor, successor.transaction():
                successor.send(topic, "new")
    assert read(bootstrap, topic) == ["new"]


def test_progress_is_committed_with_the_transaction_or_not_at_all(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    source = make_topic(1)
    target = f"{source}-copies"
    admin.topics.create(target, partitions=1)
    with Producer(bootstrap) as producer:
        for number in range(3):
            producer.send(source, str(number))
    group = f"g-{uuid.uuid4().hex[:8]}"

    def copy(fail: bool) -> None:
        with (
            Consumer(
                source, bootstrap=bootstrap, group=group, delivery="exactly-once", idle_timeout_s=IDLE_S
            ) as consumer,
            producing(bootstrap) as producer,
        ):
            batch = consumer.batch(10, 10)
            with producer.transaction() as transaction:
                for message in batch:
                    producer.send(target, message.value)
                transaction.commit_progress(consumer)
                if fail:
                    raise ZeroDivisionError
            with pytest.raises(ClientError, match="transaction"):
                consumer.commit()

    with pytest.raises(ZeroDivisionError):
        copy(fail=True)
    assert read(bootstrap, target) == []
    copy(fail=False)
    assert read(bootstrap, target) == ["0", "1", "2"]
    with Consumer(source, bootstrap=bootstrap, group=group, idle_timeout_s=IDLE_S) as consumer:
        assert [message.value for message in consumer] == []


def test_process_writes_the_result_of_each_message_once(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    source = make_topic(3)
    sink, other = f"{source}-sink", f"{source}-other"
    for name in (sink, other):
        admin.topics.create(name, partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(30):
            producer.send(source, str(number), key=str(number))

    def transform(message: Message) -> object:
        number = int(message.value)
        if number % 3 == 0:
            return None
        if number % 3 == 1:
            return f"{number}!"
        return [Out(f"{number}?", topic=other), Out(f"{number}!", key="k", headers={"h": "1"})]

    group = f"g-{uuid.uuid4().hex[:8]}"
    done = process(source, transform, sink, group=group, bootstrap=bootstrap, idle_timeout_s=IDLE_S)
    assert done == 30
    assert read(bootstrap, sink) == sorted(f"{number}!" for number in range(30) if number % 3)
    assert read(bootstrap, other) == sorted(f"{number}?" for number in range(30) if number % 3 == 2)
    again = process(source, transform, sink, group=group, bootstrap=bootstrap, idle_timeout_s=IDLE_S)
    assert again == 0


def test_members_of_a_group_share_the_work_and_a_rebalance_repeats_nothing(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    source = make_topic(4)
    sink, group = f"{source}-sink", f"g-{uuid.uuid4().hex[:8]}"
    admin.topics.create(sink, partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(400):
            producer.send(source, str(number), key=str(number))
    counts: list[int] = []

    def work() -> None:
        counts.append(
            process(
                source,
                lambda message: message.value,
                sink,
                group=group,
                bootstrap=bootstrap,
                idle_timeout_s=4,
                max_messages=7,
            )
        )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 400
    assert read(bootstrap, sink) == sorted(str(number) for number in range(400))


def test_transform_that_raises_ends_the_work_and_leaves_nothing_half_done(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    source = make_topic(1)
    sink, group = f"{source}-sink", f"g-{uuid.uuid4().hex[:8]}"
    admin.topics.create(sink, partitions=1)
    with Producer(bootstrap) as producer:
        for number in range(5):
            producer.send(source, str(number))

    def fail_at_3(message: Message) -> bytes:
        if message.value == b"3":
            raise ZeroDivisionError
        return bytes(message.value)

    with pytest.raises(ZeroDivisionError):
        process(source, fail_at_3, sink, group=group, bootstrap=bootstrap, idle_timeout_s=IDLE_S)
    assert read(bootstrap, sink) == []
    done = process(
        source, lambda message: message.value, sink, group=group, bootstrap=bootstrap, idle_timeout_s=IDLE_S
    )
    assert done == 5


def test_producer_that_got_stuck_is_replaced_and_nothing_is_written_twice(
    bootstrap: str, make_topic: MakeTopic, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_topic(1)
    sink, group = f"{source}-sink", f"g-{uuid.uuid4().hex[:8]}"
    admin.topics.create(sink, partitions=1)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(source, str(number))
    commit = Transactions.commit
    calls: list[Transactions] = []

    def commit_without_an_answer(self: Transactions) -> None:
        """The second commit succeeds although its response is lost; the third commit fails."""
        calls.append(self)
        if len(calls) != 3:
            commit(self)
        if len(calls) in (2, 3):
            raise TimedOut("no answer")

    monkeypatch.setattr(Transactions, "commit", commit_without_an_answer)
    process(
        source,
        lambda message: message.value,
        sink,
        group=group,
        bootstrap=bootstrap,
        idle_timeout_s=IDLE_S,
        max_messages=2,
    )
    assert len(set(calls)) == 3
    assert read(bootstrap, sink) == sorted(str(number) for number in range(10))


def test_processing_restarts_at_its_first_record_without_a_commit(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """A group with auto.offset.reset=latest and no commit resumes at the first record that it read."""
    source = make_topic(1)
    latest = {"auto.offset.reset": "latest"}
    with (
        Producer(bootstrap) as producer,
        Consumer(
            source, bootstrap=bootstrap, group=f"g-{source}", delivery="exactly-once", config=latest
        ) as consumer,
    ):
        producer.send_and_wait(source, "old")
        while not (batch := consumer.batch(10, 0.5)):
            producer.send_and_wait(source, "new")
        assert batch[0].offset > 0
        consumer.reader.resume_committed()
        assert consumer.batch(10, 30.0)[0].offset == batch[0].offset


def test_call_that_never_returns_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "STUCK_MARGIN_S", 0.01)
    returns = threading.Event()

    def stuck() -> None:
        returns.wait()

    with pytest.raises(TimedOut):
        transactions._watched(stuck, 0.01)
    returns.set()


async def test_async_producer_has_transactions_too(bootstrap: str, make_topic: MakeTopic) -> None:
    topic, name = make_topic(1), f"t-{uuid.uuid4().hex[:8]}"
    async with AsyncProducer(bootstrap, delivery="exactly-once", transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send(topic, "a")
            await producer.send_and_wait(topic, "b")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait(topic, "never")
                raise ZeroDivisionError
        with pytest.raises(ProducerFenced):  # noqa: PT012
            async with producer.transaction():
                await producer.send_and_wait(topic, "zombie")
                async with AsyncProducer(bootstrap, delivery="exactly-once", transactional_id=name):
                    pass
    assert read(bootstrap, topic) == ["a", "b"]


def test_fenced_producer_closes_without_an_error(bootstrap: str, make_topic: MakeTopic) -> None:
    topic, options = (
        make_topic(1),
        ProducerOptions(delivery="exactly-once", transactional_id=f"t-{uuid.uuid4().hex}"),
    )
    old = MessageSender(bootstrap, options)
    transactions = old.begin()
    assert old.offer(topic, "zombie", None, None, None, None)
    MessageSender(bootstrap, options).close()
    with pytest.raises(ProducerFenced):
        transactions.commit()
    for _ in range(3):  # librdkafka reports the error again, because no poll happened since
        assert old.flush(0.5) == 0
    old.close()


def test_aborted_transaction_has_its_own_error() -> None:
    assert issubclass(TransactionAborted, ClientError)
    assert not issubclass(TransactionAborted, ProducerFenced)
