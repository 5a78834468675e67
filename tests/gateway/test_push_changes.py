"""Streams while the cluster changes: new leaders, truncated logs, deleted topics, a stopping gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from push_stage import Events, Stage, on_stage
from test_push_events import EVENTS, ORDERS, create
from test_push_groups import committed

from penstock.gateway.push import open_streams
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_streams, "LOOK_SECONDS", 0.02)


def any_broker(brokers: Brokers) -> Harness:
    return Harness(next(iter(brokers.running.values())))


async def problem(events: Events) -> int:
    """Return the problem that ends the stream."""
    fields = await events.fields()
    assert fields["event"] == "problem"
    assert await events.ended()
    return int(fields["data"]["status"])


@pytest.mark.slow
def test_stream_continues_with_the_next_leader(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await eventually_async(
            lambda: all(len(each._metadata.image.brokers) == 3 for each in brokers.running.values())
        )
        await create(brokers)
        async with (
            stage.events(EVENTS, **{"from": "earliest"}) as single,
            stage.events(EVENTS, group="readers") as grouped,
        ):
            for number in range(60):
                await stage.send(ORDERS, str(number))
                if number == 20:
                    leader = (await stage.backend.routes.topic(ORDERS)).partitions[0].leader
                    await brokers.stop(leader)
            expected = [str(number) for number in range(60)]
            assert await single.values(60) == expected
            assert await grouped.values(60) == expected

    on_stage(tmp_path, scenario, brokers=3)


@pytest.mark.parametrize("parameters", [{"from": "earliest"}, {"group": "readers"}])
def test_stream_overtaken_by_retention_continues_at_log_start(
    tmp_path: Path, parameters: dict[str, str]
) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(10)))
        async with stage.events(EVENTS, **parameters) as events:
            assert await events.values(10) == [str(number) for number in range(10)]
            last_id = events.last_id
        await stage.send(ORDERS, *map(str, range(10, 30)))
        await stage.backend.records.delete_before(ORDERS, {0: 25})
        async with stage.events(EVENTS, last_id, **parameters) as events:
            assert await events.values(5) == ["25", "26", "27", "28", "29"]

    on_stage(tmp_path, scenario)


def test_added_partitions_are_read_from_their_start(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stage.events(EVENTS) as events:
            await stage.send(ORDERS, "first")
            assert await events.values(1) == ["first"]
            await stage.backend.topics.set_partitions(ORDERS, 3)
            await stage.send(ORDERS, "third", partition=2)
            assert await events.values(1) == ["third"]
            last_id = events.last_id
        await stage.send(ORDERS, "second", partition=1)
        async with stage.events(EVENTS, last_id) as events:
            assert await events.values(1) == ["second"]

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize("parameters", [{"from": "earliest"}, {"group": "readers"}])
def test_partitions_that_go_are_read_to_their_end_first(tmp_path: Path, parameters: dict[str, str]) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=4)
        await stage.send(ORDERS, *(f"old {number}" for number in range(300)), partition=3)
        await stage.backend.topics.reduce_partitions(ORDERS, 1)
        await stage.send(ORDERS, *(f"new {number}" for number in range(300)), partition=0)
        async with stage.events(EVENTS, **parameters) as events:
            found = await events.values(600)
            assert found == [f"old {n}" for n in range(300)] + [f"new {n}" for n in range(300)]
            await asyncio.sleep(0.1)  # the stream knows the partitions that go
            for number in range(20):
                await stage.send(ORDERS, f"{number} late", partition=2)
                await stage.send(ORDERS, f"{number} later", partition=0)
            seen = await events.values(40)
            for number in range(20):
                assert seen.index(f"{number} late") < seen.index(f"{number} later")

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize("parameters", [{}, {"group": "readers"}])
@pytest.mark.parametrize("again", [False, True])
def test_streams_of_deleted_topic_end_with_a_problem(
    tmp_path: Path, parameters: dict[str, str], again: bool
) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stage.events(EVENTS, **parameters) as events:
            await stage.send(ORDERS, "x")
            await events.values(1)
            await stage.backend.topics.delete(ORDERS)
            if again:
                await any_broker(brokers).create(ORDERS)
            assert await problem(events) == 404
        refused = await stage.http.get(EVENTS, params={"last_event_id": events.last_id})
        assert refused.status_code == (400 if again else 404)

    on_stage(tmp_path, scenario)


def test_stream_of_disconnected_client_is_closed(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        tasks = len(asyncio.all_tasks())
        for _ in range(20):
            async with stage.events(EVENTS), stage.events(EVENTS, group="readers"):
                pass
        await eventually_async(lambda: not stage.push._groups and not stage.push._streams._streams)
        assert (await stage.backend.groups.describe("readers")).members == ()
        await eventually_async(lambda: stage.gateway.application.limits.open_requests == 0)
        # Tasks that stay: a wait at the broker, the lookup of topics, shared connections.
        await eventually_async(lambda: len(asyncio.all_tasks()) <= tasks + 6)

    on_stage(tmp_path, scenario)


def test_gateway_stop_ends_streams_and_leaves_groups(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(3)))
        async with (
            stage.events(EVENTS, group="readers") as grouped,
            stage.events(EVENTS) as single,
        ):
            await grouped.values(3)
            stage.gateway.drain()
            assert await grouped.ended()
            assert await single.ended()
        found = await stage.backend.groups.describe("readers")
        assert found.members == ()
        assert await committed(stage) == {}
        refused = await stage.http.get(EVENTS)
        assert refused.status_code == 503

    on_stage(tmp_path, scenario)


def test_slow_event_reader_holds_only_its_socket_buffer(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, limit=4_096)
        writer.write(f"GET {EVENTS}?from=earliest HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readline()
        for _ in range(30):
            await stage.send(ORDERS, *["x" * 100_000] * 20)
        [feed] = stage.push._feeds._feeds.values()
        [connection] = [each for each in stage.connections if each.transport.get_write_buffer_size()]
        assert connection.transport.get_write_buffer_size() < 512 * 1024
        assert feed.end < 600, "what its socket does not take is not read"
        assert stage.push._feeds._kept_bytes <= 33 * 1024 * 1024
        writer.transport.abort()
        await eventually_async(lambda: feed.readers == 0)

    on_stage(tmp_path, scenario)
