"""Requests and replies over queues, with `Queue` and `AsyncQueue` against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from test_queue import WAIT_S, create

from penstock import (
    AsyncQueue,
    ClientError,
    InvalidSetting,
    NoReply,
    Queue,
    QueueEmpty,
    QueueMessage,
    QueueUnknown,
)
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.replies import REPLY_TO


@pytest.fixture
def queue_name(bootstrap: str, topic_name: str) -> str:
    create(bootstrap, NewQueue(topic_name, partitions=2, settings={"lock_ms": "30000"}))
    return topic_name


@contextmanager
def serving(bootstrap: str, name: str) -> Iterator[None]:
    """A worker that doubles numbers."""

    def work(message: QueueMessage) -> None:
        message.reply(message.value * 2)

    with Queue(name, bootstrap=bootstrap, workers=2) as server:
        thread = threading.Thread(target=server.run, args=(work,))
        thread.start()
        yield
        server.stop()
        thread.join()


def test_request_returns_the_reply(bootstrap: str, queue_name: str) -> None:
    with serving(bootstrap, queue_name), Queue(queue_name, bootstrap=bootstrap) as queue:
        assert queue.request(21, timeout_s=WAIT_S) == 42
        assert queue.request("ab", WAIT_S, key="k", headers={"a": "b"}) == "abab"
        assert queue.request([1], WAIT_S) == [1, 1]


def test_many_requests_at_once_get_their_own_replies(bootstrap: str, queue_name: str) -> None:
    async def scenario() -> list[Any]:
        async with AsyncQueue(queue_name, bootstrap=bootstrap) as queue:
            return list(await asyncio.gather(*(queue.request(number, 60) for number in range(50))))

    with serving(bootstrap, queue_name):
        assert asyncio.run(scenario()) == [2 * number for number in range(50)]


def test_request_without_a_reply_times_out_and_expires(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        queue.send("first")
        with queue.receive(wait_s=WAIT_S):
            pass
        with pytest.raises(NoReply, match=r"within 2 s"):
            queue.request("nobody is there", timeout_s=2)
        with pytest.raises(QueueEmpty):
            queue.receive(wait_s=0.5)


def test_first_reply_counts(bootstrap: str, queue_name: str) -> None:
    answers: list[bool] = []

    def serve() -> None:
        with Queue(queue_name, bootstrap=bootstrap) as server:
            first = server.receive(wait_s=WAIT_S)
            answers.append(first.reply("one"))
            first.release(0)
            with server.receive(wait_s=WAIT_S) as again:
                assert again.attempt == 2
                answers.append(again.reply("another"))
                answers.append(again.reply("one"))

    thread = threading.Thread(target=serve)
    thread.start()
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        assert queue.request("which", timeout_s=WAIT_S) == "one"
        thread.join()
        assert answers == [True, False, True]


def test_reply_needs_a_place_of_its_queue(bootstrap: str, queue_name: str) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue:
        queue.send("plain")
        queue.send("hostile", headers={REPLY_TO: "other-topic/0/key"})
        for _ in range(2):
            message = queue.receive(wait_s=WAIT_S)
            with pytest.raises(ClientError, match=r"not sent with request|not a reply address"):
                message.reply("x")


@pytest.mark.parametrize("timeout_s", [0, -1, 1e9])
def test_impossible_timeout_is_refused(bootstrap: str, queue_name: str, timeout_s: float) -> None:
    with Queue(queue_name, bootstrap=bootstrap) as queue, pytest.raises(InvalidSetting, match="timeout_s"):
        queue.request("x", timeout_s)


def test_request_to_an_unknown_queue_leaves_no_topic(bootstrap: str, topic_name: str) -> None:
    with Queue(topic_name, bootstrap=bootstrap) as queue, pytest.raises(QueueUnknown):
        queue.request("x")
