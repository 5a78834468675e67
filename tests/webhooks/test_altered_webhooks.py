"""Webhooks that are altered: the next calls are made by the new definition, and wrong changes have no effect."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_webhooks import bodies, create_queue, figures, on_brokers, send

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.queue_messages import ReceivedMessage
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.webhooks import NewWebhook
from support.eventually import eventually_async
from support.webhook_receivers import answer, hang, receiving
from support.whole_brokers import Brokers


def test_altered_webhook_calls_its_new_receiver_at_once(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(503, "retry-after: 3600")) as old, receiving(answer(200)) as new:
            await client.webhooks.create(NewWebhook("hook", old.url, "orders", timeout_ms=1_000))
            await send(client, "one")
            await eventually_async(lambda: len(old.received) == 1)
            changes = {"url": new.url, "timeout_ms": 5_000, "concurrency": 2}
            altered = (await client.webhooks.alter("hook", changes)).summary
            assert (altered.url, altered.timeout_ms, altered.concurrency) == (new.url, 5_000, 2)
            assert (await client.webhooks.test("hook")).ok
            await send(client, "two", "three")
            await eventually_async(lambda: {"two", "three"} <= set(bodies(new)))
            assert len(old.received) == 1

    on_brokers(tmp_path, scenario)


@pytest.mark.parametrize("brokers", [1, 2])
def test_change_ends_the_long_poll_of_the_owner(tmp_path: Path, brokers: int) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(hang) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders", concurrency=4))
            await send(client, *map(str, range(6)))
            await eventually_async(lambda: len(server.received) == 4)
            await asyncio.sleep(0.3)  # the owner has received the other two, and polls the queue for more
            async with asyncio.timeout(1):
                await client.webhooks.alter("hook", {"concurrency": 8})
                await eventually_async(lambda: len(server.received) == 6)

    on_brokers(tmp_path, scenario, brokers)


def test_pause_returns_messages_without_a_call_at_once(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        topic = (await client.queues.create(NewQueue("orders", partitions=2))).topic
        async with receiving(hang) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders", concurrency=4))
            await send(client, *map(str, range(6)))
            await eventually_async(lambda: len(server.received) == 4)
            await asyncio.sleep(0.3)
            async with asyncio.timeout(1):
                await client.webhooks.pause("hook")
                found: list[ReceivedMessage] = []
                while len(found) < 2:
                    found += await client.queue_messages.receive("orders", topic, 10, 1_000)
            assert [each.attempt for each in found] == [1, 1]

    on_brokers(tmp_path, scenario)


WRONG_CHANGES: list[dict[str, Any]] = [
    {},
    {"queue": "other"},
    {"topic": "t"},
    {"concurrency": 0},
    {"concurrency": "many"},
    {"timeout_ms": 10**9},
    {"format": "xml"},
    {"url": "http://10.0.0.1/"},
    {"url": "http://u:p@example.invalid/"},
    {"url": None},
    {"secret": "x"},
]


def test_wrong_changes_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        made = await client.webhooks.create(NewWebhook("hook", "http://127.0.0.1:9/", "orders"))
        for changes in WRONG_CHANGES:
            with pytest.raises(BrokerError) as refused:
                await client.webhooks.alter("hook", changes)
            assert refused.value.code is ErrorCode.invalid_request
        found = (await figures(client)).summary
        assert (found.url, found.concurrency, found.timeout_ms) == ("http://127.0.0.1:9/", 8, 10_000)
        assert (found.queue, found.format) == (made.details.summary.queue, "raw")

    on_brokers(tmp_path, scenario)
