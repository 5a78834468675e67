"""Messages of queues that are pushed: webhook calls to a local receiver, and many streams of one queue."""

from __future__ import annotations

import asyncio

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread
from bench.servers import Penstock
from penstock.internal_client.client import InternalClient
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.queues import NewQueue
from penstock.records.building import NewRecord

PARTITIONS = 4
VALUE = b"x" * 200
STREAMS = 1_000
PREFETCH = 10
CONCURRENCY = 32


def webhook_calls(context: Context) -> list[Row]:
    """Webhook calls in a second, with one broker and one receiver."""
    count = context.scaled(50_000, 10_000)
    found: list[Figures] = []
    with Penstock(settings=("webhook.allow.private.addresses=true",)) as server:
        for number in range(context.rounds):
            context.say(f"webhooks: round {number + 1} of {context.rounds}")
            queue = f"calls-{number}"
            asyncio.run(fill_queue(server.bootstrap, queue, count))
            place = {"bootstrap": server.bootstrap, "queue": queue, "webhook": f"hook-{number}"}
            found.append(run_driver("webhook_receiver", **place, messages=count, concurrency=CONCURRENCY))
    rate = Spread.of([each["per_s"] for each in found])
    return [Row("webhooks", "calls", "/s", rate, bar=Bar("value", "at least", 1_000))]


def queue_streams(context: Context) -> list[Row]:
    """Messages that a thousand streams of one queue get, with a prefetch of ten."""
    count = context.scaled(100_000, 20_000)
    found: list[Figures] = []
    with Penstock(settings=("gateway.client.max.connections=2000",)) as server:
        for number in range(context.rounds):
            context.say(f"queue-streams: round {number + 1} of {context.rounds}")
            queue = f"streams-{number}"
            asyncio.run(fill_queue(server.bootstrap, queue, count))
            place = {"port": server.http_port, "queue": queue}
            found.append(
                run_driver("queue_streams", **place, streams=STREAMS, prefetch=PREFETCH, messages=count)
            )
    return [
        Row("queue-streams", "messages", "/s", Spread.of([each["per_s"] for each in found])),
        Row(
            "queue-streams",
            "least of a stream, times the mean",
            "x",
            Spread.of([each["least"] for each in found]),
            bar=Bar("value", "at least", 0.5),
        ),
        Row(
            "queue-streams",
            "most of a stream, times the mean",
            "x",
            Spread.of([each["most"] for each in found]),
            bar=Bar("value", "at most", 2.0),
        ),
    ]


async def fill_queue(bootstrap: str, queue: str, count: int, **settings: str) -> None:
    """Create a queue with messages."""
    async with InternalClient.to(bootstrap, "bench", 60.0) as client:
        await client.queues.create(NewQueue(queue, partitions=PARTITIONS, settings=settings))
        producer = IdempotentProducer(client.routes)
        records = [NewRecord(None, VALUE, 1_700_000_000_000)] * (count // PARTITIONS)
        sent = [
            future
            for partition in range(PARTITIONS)
            for future, _ in producer.send_many(queue, partition, records)
        ]
        await asyncio.gather(*sent)
        await producer.close()
