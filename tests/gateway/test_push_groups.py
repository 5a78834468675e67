"""Server-sent events and WebSockets of consumer groups: offsets belong to the group, delivery is at least
once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from push_stage import Events, Stage, on_stage
from test_push_events import EVENTS, ORDERS, create

from support.eventually import eventually_async
from support.whole_brokers import Brokers

ACKNOWLEDGE = f"/v1/groups/readers/topics/{ORDERS}/acknowledgements"


async def committed(stage: Stage) -> dict[int, int | None]:
    found = await stage.backend.groups.describe("readers")
    return {each.partition: each.committed for each in found.offsets}


async def acknowledge(stage: Stage, events: Events) -> list[int]:
    answer = await stage.http.post(ACKNOWLEDGE, json={"id": events.last_id})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["partitions"])


async def until_committed(stage: Stage, expected: dict[int, int]) -> None:
    async def is_committed() -> bool:
        return await committed(stage) == expected

    await eventually_async(is_committed)


def test_unacknowledged_events_are_sent_again(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(10)))
        async with stage.events(EVENTS, group="readers") as events:
            assert await events.values(4) == ["0", "1", "2", "3"]
            assert await acknowledge(stage, events) == [0]
            assert await events.values(3) == ["4", "5", "6"]
        async with stage.events(EVENTS, group="readers") as events:
            assert await events.values(6) == ["4", "5", "6", "7", "8", "9"]
        assert await committed(stage) == {0: 4}

    on_stage(tmp_path, scenario)


def test_last_event_id_acknowledges_earlier_events(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=2)
        for partition in range(2):
            await stage.send(ORDERS, *(f"{partition}/{n}" for n in range(20)), partition=partition)
        seen: list[str] = []
        last_id = ""
        for count in (5, 1, 14, 20):
            async with stage.events(EVENTS, last_id, group="readers") as events:
                seen += await events.values(count)
                last_id = events.last_id
        assert sorted(seen) == sorted(f"{p}/{n}" for p in range(2) for n in range(20))
        async with stage.events(EVENTS, last_id, group="readers"):
            await until_committed(stage, {0: 20, 1: 20})

    on_stage(tmp_path, scenario)


def test_full_window_ends_the_stream_and_reconnect_resumes(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(25)))
        seen: list[str] = []
        last_id = ""
        while len(seen) < 25:
            async with stage.events(EVENTS, last_id, group="readers", window=10) as events:
                count = min(10, 25 - len(seen))
                seen += await events.values(count)
                last_id = events.last_id
                if count == 10:
                    assert await events.ended()
        assert seen == [str(number) for number in range(25)]
        await until_committed(stage, {0: 20})

    on_stage(tmp_path, scenario)


def test_acknowledging_keeps_the_window_open(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stage.events(EVENTS, group="readers", window=5) as events:
            for number in range(20):
                await stage.send(ORDERS, str(number))
                assert await events.values(1) == [str(number)]
                await acknowledge(stage, events)
        assert await committed(stage) == {0: 20}

    on_stage(tmp_path, scenario)


def test_streams_of_a_group_share_its_partitions(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=4)
        async with (
            stage.events(EVENTS, group="readers") as first,
            stage.events(EVENTS, group="readers") as second,
        ):
            streams = stage.push._groups["readers", ORDERS]
            await eventually_async(lambda: all(len(each.stream.positions) == 2 for each in streams))
            for partition in range(4):
                await stage.send(ORDERS, str(partition), partition=partition)
            parts = [await first.values(2), await second.values(2)]
            assert sorted(parts[0] + parts[1]) == ["0", "1", "2", "3"]
        await eventually_async(lambda: stage.push._groups == {})

    on_stage(tmp_path, scenario)


@pytest.mark.slow
def test_later_stream_gets_partitions_without_waiting_for_heartbeats(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=2)
        async with stage.events(EVENTS, group="readers"):
            streams = stage.push._groups["readers", ORDERS]
            await eventually_async(lambda: all(len(each.stream.positions) == 2 for each in streams))
            async with stage.events(EVENTS, group="readers"):
                await eventually_async(lambda: [len(each.stream.positions) for each in streams] == [1, 1])

    on_stage(tmp_path, scenario, of_brokers={"group_consumer_heartbeat_interval_ms": "9000"})


def test_refused_join_is_reported_and_holds_no_partition(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        async with stage.events(EVENTS, group="readers"):
            refused = await stage.http.get(EVENTS, params={"group": "readers"})
            assert refused.status_code == 429
            assert len((await stage.backend.groups.describe("readers")).members) == 1

    on_stage(tmp_path, scenario, of_brokers={"group_max_size": "1"})


def test_group_stream_continues_at_offsets_of_kafka_consumer(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(5)))
        await stage.backend.groups.reset("readers", {(ORDERS, 0): 3})
        async with stage.events(EVENTS, group="readers") as events:
            assert await events.values(2) == ["3", "4"]

    on_stage(tmp_path, scenario)


def test_invalid_stream_request_fails_before_the_stream(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        cases: list[tuple[str, dict[str, str | int], int]] = [
            ("/v1/topics/nowhere/events", {}, 404),
            ("/v1/topics/nowhere/events", {"group": "readers"}, 404),
            (EVENTS, {"group": "readers", "partition": 0}, 400),
            (EVENTS, {"offset": 3}, 400),
            (EVENTS, {"partition": 1}, 404),
            (EVENTS, {"from": "somewhere"}, 400),
            (EVENTS, {"window": 0, "group": "readers"}, 400),
            (EVENTS, {"last_event_id": "AAAA"}, 400),
        ]
        for path, parameters, status in cases:
            answer = await stage.http.get(path, params=parameters)
            assert answer.status_code == status, (parameters, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        refused = await stage.http.post(ACKNOWLEDGE, json={"id": "AAAA"})
        assert refused.status_code == 400

    on_stage(tmp_path, scenario)


def test_any_gateway_accepts_an_acknowledgement(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=2)
        for partition in range(2):
            await stage.send(ORDERS, *map(str, range(5)), partition=partition)
        other = Stage(brokers, {}, "other")
        await other.start()
        try:
            async with stage.events(EVENTS, group="readers") as events:
                await events.values(10)
                last = events.last_id
                assert await acknowledge(other, events) == [0, 1]
                assert await committed(stage) == {0: 5, 1: 5}
        finally:
            await other.stop()
        await eventually_async(lambda: not stage.push._groups)
        await stage.send(ORDERS, "more")
        async with stage.events(EVENTS, group="readers") as events:
            assert await events.values(1) == ["more"]
            events.last_id = last
            assert await acknowledge(stage, events) == [0, 1]
        assert await committed(stage) == {0: 5, 1: 5}

    on_stage(tmp_path, scenario)


def test_acknowledgement_after_the_stream_ended_counts(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *map(str, range(5)))
        async with stage.events(EVENTS, group="readers") as events:
            await events.values(3)
        await eventually_async(lambda: not stage.push._groups)
        assert await acknowledge(stage, events) == [0]
        async with stage.events(EVENTS, group="readers") as events:
            assert await events.values(2) == ["3", "4"]

    on_stage(tmp_path, scenario)
