"""Topics as server-sent events, for single readers: order, resuming, sharing, slow clients."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c
from push_stage import Stage, on_stage

from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers

ORDERS = "orders"
EVENTS = f"/v1/topics/{ORDERS}/events"


async def create(brokers: Brokers, partitions: int = 1) -> None:
    await Harness(next(iter(brokers.running.values()))).create(ORDERS, partitions=partitions)


def test_messages_arrive_in_order_with_all_fields(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "old")
        async with stage.events(EVENTS, **{"from": "earliest"}) as events:
            assert events.response.headers["content-type"] == "text/event-stream"
            first = await events.next()
            assert first == {
                "message_id": "0-0",
                "topic": ORDERS,
                "partition": 0,
                "offset": 0,
                "timestamp": "2023-11-14T22:13:20.000Z",
                "timestamp_ms": 1_700_000_000_000,
                "key": "k",
                "value": "old",
                "headers": [],
                "size": 4,
                "crc": crc32c(b"kold"),
            }
            await stage.send(ORDERS, *(f"new {number}" for number in range(2_000)))
            assert await events.values(2_000) == [f"new {number}" for number in range(2_000)]

    on_stage(tmp_path, scenario)


def test_reconnect_resumes_after_the_last_event_seen(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=3)
        for partition in range(3):
            await stage.send(ORDERS, *(f"{partition}/{n}" for n in range(50)), partition=partition)
        seen: list[str] = []
        last_id = ""
        for count in (1, 7, 30, 112):
            async with stage.events(EVENTS, last_id, **{"from": "earliest"}) as events:
                seen += await events.values(count)
                last_id = events.last_id
        assert sorted(seen) == sorted(f"{p}/{n}" for p in range(3) for n in range(50))
        for partition in range(3):
            mine = [each for each in seen if each.startswith(f"{partition}/")]
            assert mine == [f"{partition}/{n}" for n in range(50)]

    on_stage(tmp_path, scenario)


def test_metrics_count_streams_and_events(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "a", "b", "c")
        async with stage.events(EVENTS, **{"from": "earliest"}) as events:
            await events.values(3)
            told = (await stage.http.get("/metrics")).text
        assert "penstock_push_streams 1.0" in told
        assert "penstock_push_events_total 3.0" in told

    on_stage(tmp_path, scenario)


def test_one_read_serves_many_waiting_streams(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        reads = 0
        read = stage.backend.records._fetch

        async def counted(*arguments):  # type: ignore[no-untyped-def]
            nonlocal reads
            reads += 1
            return await read(*arguments)

        stage.backend.records._fetch = counted  # type: ignore[method-assign]
        streams = [stage.events(EVENTS) for _ in range(50)]
        opened = [await stream.__aenter__() for stream in streams]
        [feed] = stage.push._feeds._feeds.values()
        await eventually_async(lambda: len(feed._waiting) == 50)
        before = reads
        await stage.send(ORDERS, "x")
        for events in opened:
            assert await events.values(1) == ["x"]
        await eventually_async(lambda: len(feed._waiting) == 50)
        assert reads - before <= 2
        for stream in streams:
            await stream.__aexit__(None, None, None)
        await eventually_async(lambda: feed.readers == 0)

    on_stage(tmp_path, scenario)
