"""Webhooks of brokers: calls for the messages of a queue, settled by the answers; owners that die; secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.webhooks import NewWebhook, WebhookDetails
from penstock.records.building import NewRecord
from penstock.webhooks.signing import key_of, signature
from support.eventually import eventually_async
from support.webhook_receivers import Received, ReceiverServer, answer, hang, receiving
from support.whole_brokers import Brokers, run

LOOPBACK = {"webhook_allow_private_addresses": "127.0.0.0/8"}
Scenario = Callable[[Brokers, InternalClient], Awaitable[None]]


def on_brokers(
    directory: Path, scenario: Scenario, brokers: int = 1, settings: dict[str, str] = LOOPBACK
) -> None:
    async def play(running: Brokers) -> None:
        for number in range(1, brokers + 1):
            await running.start(number)
        addresses = ",".join(f"127.0.0.1:{each.port}" for each in running.running.values())
        async with InternalClient.to(addresses, "test", 30.0) as client:
            await scenario(running, client)

    run(directory, play, **settings)


async def create_queue(client: InternalClient, name: str = "orders", **settings: str) -> None:
    await client.queues.create(NewQueue(name, partitions=2, settings=settings))


async def send(client: InternalClient, *values: str, topic: str = "orders") -> None:
    producer = IdempotentProducer(client.routes)
    await asyncio.gather(
        *(
            producer.send(topic, number % 2, NewRecord(None, value.encode(), 1_700_000_000_000))
            for number, value in enumerate(values)
        )
    )
    await producer.close()


async def depth(client: InternalClient, queue: str = "orders") -> int:
    return (await client.queues.describe(queue)).depth


async def until_depth(client: InternalClient, expected: int, queue: str = "orders") -> None:
    await until(lambda: depth(client, queue), expected)


async def until(read: Callable[[], Awaitable[Any]], expected: Any) -> None:
    async with asyncio.timeout(60):
        while (found := await read()) != expected:
            await asyncio.sleep(0.05)
    assert found == expected


async def figures(client: InternalClient, name: str = "hook") -> WebhookDetails:
    return await client.webhooks.describe(name)


def bodies(server: ReceiverServer) -> list[str]:
    return sorted(each.body.decode() for each in server.received)


@pytest.mark.parametrize("brokers", [1, 2])
def test_messages_are_sent_signed_and_accepted_after_2xx(tmp_path: Path, brokers: int) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(200)) as server:
            created = await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            assert created.secret.startswith("whsec_")
            assert created.details.secrets == 1
            await send(client, "one", "two", "three")
            await until_depth(client, 0)
            assert bodies(server) == ["one", "three", "two"]
            for each in server.received:
                headers = each.headers
                expected = signature(
                    key_of(created.secret),
                    headers["webhook-id"],
                    int(headers["webhook-timestamp"]),
                    each.body,
                )
                assert headers["webhook-signature"] == expected
                assert headers["penstock-attempt"] == "1"
            assert len({each.headers["webhook-id"] for each in server.received}) == 3
            found = await figures(client)
            assert (found.successes, found.failures, found.last_status) == (3, 0, 200)
            assert found.summary.owner in (1, 2)

    on_brokers(tmp_path, scenario, brokers)


def test_failed_message_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    seen: list[str] = []

    async def fail_twice(received: Received, writer: asyncio.StreamWriter) -> None:
        seen.append(received.headers["webhook-id"])
        await answer(200 if len(seen) > 2 else 500)(received, writer)

    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client, back_off="10ms,20ms")
        async with receiving(fail_twice) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            await send(client, "one")
            await until_depth(client, 0)
            assert len(set(seen)) == 1
            assert [each.headers["penstock-attempt"] for each in server.received] == ["1", "2", "3"]
            found = await figures(client)
            assert (found.successes, found.failures) == (1, 2)
            assert "answered 500" in found.last_error

    on_brokers(tmp_path, scenario)


def test_message_becomes_a_dead_letter_after_its_attempts(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client, back_off="10ms", max_attempts="3", dead_letter="orders-dead")
        async with receiving(answer(400)) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            await send(client, "bad")
            await until_depth(client, 0)
            assert len(server.received) == 3
        offsets = await client.records.offsets("orders-dead", [0, 1], -1)
        assert sum(offsets.values()) == 1

    on_brokers(tmp_path, scenario)


def test_410_pauses_and_resume_continues(tmp_path: Path) -> None:
    status = 410

    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        await answer(status)(received, writer)

    async def scenario(running: Brokers, client: InternalClient) -> None:
        nonlocal status
        await create_queue(client)
        async with receiving(respond) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders", concurrency=1))
            await send(client, "one")
            await eventually_async(lambda: len(server.received) == 1)

            async def is_paused() -> bool:
                return (await figures(client)).summary.paused

            await until(is_paused, True)
            assert "410" in (await figures(client)).summary.paused_reason
            await send(client, "two")
            status = 200
            await client.webhooks.resume("hook")
            await until_depth(client, 0)
            assert not (await figures(client)).summary.paused

    on_brokers(tmp_path, scenario)


def test_410_uses_up_no_attempts(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client, max_attempts="2", back_off="1ms")
        async with receiving(answer(410)) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders", concurrency=1))
            await send(client, "one", "two", "three", "four")

            async def is_paused() -> bool:
                return (await figures(client)).summary.paused

            async def has_been_called() -> bool:
                return bool(server.received)

            for _ in range(3):
                await until(has_been_called, True)
                await until(is_paused, True)
                server.received.clear()
                assert await depth(client) == 4
                await client.webhooks.resume("hook")

    on_brokers(tmp_path, scenario)


def test_paused_webhook_makes_no_calls(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(200)) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            await client.webhooks.pause("hook")
            await send(client, "one")
            other = await client.queue_messages.receive("orders", "orders", 1, 10_000)
            assert len(other) == 1
            assert server.received == []

    on_brokers(tmp_path, scenario)


def test_retry_after_holds_the_webhook(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(429, "retry-after: 3600")) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders", concurrency=1))
            await send(client, "one")
            await eventually_async(lambda: len(server.received) == 1)

            async def delayed() -> int:
                return (await client.queues.describe("orders")).delayed

            await until(delayed, 1)
            await send(client, "two")
            assert (await client.webhooks.test("hook")).status == 429
            assert len(server.received) == 2, "the test alone was sent"

    on_brokers(tmp_path, scenario)


def test_hanging_receiver_delays_no_other(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        await client.queues.create(NewQueue("others", "orders"))
        async with receiving(hang) as hanging, receiving(answer(200)) as server:
            await client.webhooks.create(NewWebhook("stuck", hanging.url, "others", timeout_ms=300_000))
            await send(client, *map(str, range(40)))
            await eventually_async(lambda: len(hanging.received) == 8)
            await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            await until_depth(client, 0)
            assert len(server.received) == 40
            assert len(hanging.received) == 8, "one call for each of the webhook's slots"
            await client.webhooks.delete("stuck")

    on_brokers(tmp_path, scenario)


def test_webhook_of_a_topic_has_a_filtered_queue_of_its_own(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        await send(client, '{"total": 90}')
        async with receiving(answer(204)) as server:
            new = NewWebhook("big", server.url, topic="orders", filter="json.total > 50", format="cloudevent")
            created = await client.webhooks.create(new)
            queue = created.details.summary.queue
            assert queue == "webhook-big"
            await send(client, '{"total": 51}', '{"total": 5}', '{"total": 52}')
            await eventually_async(lambda: len(server.received) == 2)
            events = [json.loads(each.body) for each in server.received]
            assert sorted(each["data"]["total"] for each in events) == [51, 52]
            assert {each["source"] for each in events} == {"/topics/orders"}
            await client.webhooks.delete("big")
            assert "webhook-big" not in [each.name for each in await client.queues.all()]
            assert await client.webhooks.all() == []

    on_brokers(tmp_path, scenario)


def test_rotation_signs_with_both_secrets(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(200)) as server:
            first = await client.webhooks.create(
                NewWebhook("hook", server.url, "orders", secret="my own secret")
            )
            assert first.secret == ""
            second = await client.webhooks.rotate_secret("hook", "", 3_600_000)
            assert second.details.secrets == 2
            again = await client.webhooks.rotate_secret("hook", second.secret, 3_600_000)
            assert again.details.secrets == 2, "the same secret changes nothing"
            assert (await client.webhooks.test("hook")).ok
            [received] = server.received
            headers = received.headers
            place = headers["webhook-id"], int(headers["webhook-timestamp"]), received.body
            assert headers["webhook-signature"].split(" ") == [
                signature(key_of(second.secret), *place),
                signature(b"my own secret", *place),
            ]
            third = await client.webhooks.rotate_secret("hook", "third secret", 0)
            assert third.details.secrets == 1

    on_brokers(tmp_path, scenario)


def test_secret_is_nowhere_in_plain_text(tmp_path: Path) -> None:
    secret = "a secret that must not be seen"

    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(200)) as server:
            created = await client.webhooks.create(NewWebhook("hook", server.url, "orders", secret=secret))
            assert secret not in repr(created)
            assert secret not in repr(await figures(client))
            assert secret not in repr(await client.webhooks.all())
            assert secret not in repr(NewWebhook("hook", server.url, "orders", secret=secret))

    on_brokers(tmp_path, scenario)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


def test_webhook_survives_a_restart_of_its_broker(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        async with receiving(answer(200)) as server:
            await client.webhooks.create(NewWebhook("hook", server.url, "orders"))
            await send(client, "one")
            await until_depth(client, 0)
            await running.stop(1)
            await running.start(1)
            async with InternalClient.to(f"127.0.0.1:{running.running[1].port}", "again", 30.0) as other:
                await send(other, "two")
                await until_depth(other, 0)
                assert bodies(server) == ["one", "two"]

    on_brokers(tmp_path, scenario)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": "file:///etc/passwd"}, "scheme"),
    ({"url": "http://user:hunter2@example.com/"}, "credentials"),
    ({"url": "http://10.0.0.1/"}, "private"),
    ({"url": "http://169.254.169.254/latest"}, "private"),
    ({"concurrency": 0}, "concurrency"),
    ({"concurrency": 10_000}, "concurrency"),
    ({"timeout_ms": 0}, "timeout_ms"),
    ({"format": "xml"}, "format"),
    ({"secret": "whsec_***"}, "base64"),
    ({"secret": "x" * 300}, "secret"),
    ({"queue": "nowhere"}, "no queue"),
    ({"queue": ""}, "queue or a topic"),
    ({"topic": "orders"}, "not both"),
    ({"filter": "true"}, "filter"),
    ({"name": "bad name"}, "characters"),
    ({"queue": "", "topic": "nowhere"}, "nowhere"),
    ({"queue": "", "topic": "orders", "filter": "total >"}, "filter"),
    ({"queue": "", "topic": "orders", "url": "file:///x"}, "scheme"),
]


def test_bad_definitions_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        good: dict[str, Any] = {"name": "hook", "url": "http://127.0.0.1:9/", "queue": "orders"}
        for wrong, reason in BAD:
            with pytest.raises(BrokerError, match=reason) as refused:
                await client.webhooks.create(NewWebhook(**(good | wrong)))
            assert "hunter2" not in str(refused.value)
            assert [each.name for each in await client.queues.all()] == ["orders"], wrong
            names = [each.name for each in await client.topics.all() if not each.name.startswith("__")]
            assert names == ["orders"], wrong
        assert await client.webhooks.all() == []
        await client.webhooks.create(NewWebhook(**good))
        with pytest.raises(BrokerError, match="already"):
            await client.webhooks.create(NewWebhook(**good))
        with pytest.raises(BrokerError, match="already"):
            await client.webhooks.create(NewWebhook("hook", good["url"], topic="orders"))
        assert [each.name for each in await client.queues.all()] == ["orders"]
        for work in (client.webhooks.describe, client.webhooks.delete, client.webhooks.pause):
            with pytest.raises(BrokerError) as missing:
                await work("nothing")
            assert missing.value.code is ErrorCode.resource_not_found

    on_brokers(tmp_path, scenario)


def test_loopback_is_refused_unless_allowed(tmp_path: Path) -> None:
    async def scenario(running: Brokers, client: InternalClient) -> None:
        await create_queue(client)
        for host in ("127.0.0.1", "localhost", "[::1]", "0x7f000001"):
            with pytest.raises(BrokerError, match=r"webhook\.allow\.private\.addresses"):
                await client.webhooks.create(NewWebhook("hook", f"http://{host}:9/", "orders"))

    on_brokers(tmp_path, scenario, settings={})
