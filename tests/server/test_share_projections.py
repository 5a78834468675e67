"""Share groups that read views and delay topics: hidden records are settled, and no member gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.delay.headers import DELAY_MS
from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.queue_wire import QueueClient
from support.share_wire import (
    ACCEPT,
    INCREMENTAL_ALTER_CONFIGS,
    RELEASE,
    SET,
    SETTINGS,
    ShareMember,
    acquired,
    configure,
    partition_of,
)
from support.transaction_wire import ask_raw

FILTER = 'value.startsWith("wanted")'
PEEK, WAIT = 1, 2
DELETE_TOPICS, DESCRIBE_SHARE_GROUP_OFFSETS, TOPIC_RESOURCE = 20, 90, 2

Scenario = Callable[[Harness, ShareMember], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario, **configs: Any) -> None:
    async def whole(broker: Harness) -> None:
        await broker.create("t", 1)
        await broker.create("v", view_of="t", view_filter=FILTER)
        await configure(broker, auto_offset_reset="earliest", **configs)
        member = ShareMember(broker)
        await member.join("v")
        await scenario(broker, member)

    serve(tmp_path, whole, SETTINGS)


async def fill(broker: Harness, *pattern: str) -> None:
    """Append a batch for each text: a `w` is a record that matches."""
    for text in pattern:
        await broker.append("t", *[b"wanted" if each == "w" else b"other" for each in text])


def values(answer: Any) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records in an answer."""
    return [
        (record.offset, record.value)
        for header, batch in read_batches(memoryview(partition_of(answer).records))
        if not header.is_control
        for record in iterate(batch, header)
    ]


async def lag(broker: Harness, group: str = "g") -> tuple[int, int]:
    """Start offset and lag of the view's only partition."""
    answer = await broker.ask(
        DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": group, "topics": None}]}
    )
    ((partition,),) = (topic.partitions for topic in answer.groups[0].topics)
    return partition.start_offset, partition.lag


async def set_filter(broker: Harness, text: str) -> None:
    change = {"name": "view.filter", "config_operation": SET, "value": text}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "v", "configs": [change]}
    answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


async def settles(broker: Harness, expected: tuple[int, int]) -> None:
    async def is_reached() -> bool:
        return await lag(broker) == expected

    await eventually_async(is_reached)


def test_member_gets_the_matching_records_of_a_view(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "oowow", "ooo", "www", "o")
        answer = await member.fetch("v", max_wait=5_000)
        assert acquired(answer) == [(2, 2, 1), (4, 4, 1), (8, 10, 1)]
        assert values(answer) == [(offset, b"wanted") for offset in (2, 4, 8, 9, 10)]
        await member.acknowledge("v", [(2, 2, [ACCEPT]), (4, 4, [ACCEPT]), (8, 10, [ACCEPT])])
        await settles(broker, (12, 0))

    run(tmp_path, scenario)


@pytest.mark.slow
def test_records_without_a_match_do_not_end_a_long_poll(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await member.fetch("v")
        await fill(broker, "ooo")
        assert await member.take("v", max_wait=300) == []
        await settles(broker, (3, 0))

    run(tmp_path, scenario)


def test_matching_record_answers_a_waiting_share_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await member.fetch("v")
        waiting = asyncio.ensure_future(member.take("v", max_wait=60_000))
        for _ in range(5):
            await fill(broker, "oo")
        await fill(broker, "w")
        assert await waiting == [(10, 10, 1)]

    run(tmp_path, scenario)


def test_unmatched_records_between_settled_ones_take_no_state(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "w" + "o" * 200 + "w", "wo" * 100)
        taken = await member.take("v", max_wait=5_000)
        assert len(taken) == 101
        acks = [(first, last, [ACCEPT]) for first, last, _ in taken[1:]]
        assert partition_of(await member.acknowledge("v", acks)).error_code == 0
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        assert len(leader.partition._ranges) <= 2
        assert (leader.partition.start_offset, leader.partition.settled) == (0, 401)

    run(tmp_path, scenario)


def test_released_record_of_a_view_is_delivered_again(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "owowo")
        assert await member.take("v", max_wait=5_000) == [(1, 1, 1), (3, 3, 1)]
        await member.acknowledge("v", [(1, 1, [RELEASE]), (3, 3, [ACCEPT])])
        answer = await member.fetch("v", max_wait=5_000)
        assert acquired(answer) == [(1, 1, 2)]
        assert values(answer) == [(1, b"wanted"), (3, b"wanted")]

    run(tmp_path, scenario)


def test_record_limit_counts_matching_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "owowoowwow")
        fields: dict[str, Any] = {"share_acquire_mode": 1, "max_records": 3, "max_wait": 5_000}
        assert await member.take("v", **fields) == [(1, 1, 1), (3, 3, 1), (6, 6, 1)]
        assert await member.take("v", **fields) == [(7, 7, 1), (9, 9, 1)]

    run(tmp_path, scenario)


@pytest.mark.slow
def test_changed_filter_applies_to_records_that_were_not_delivered(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "wo")
        assert await member.take("v", max_wait=5_000) == [(0, 0, 1)]
        await set_filter(broker, 'value.startsWith("other")')
        await fill(broker, "wo")
        await member.acknowledge("v", [(0, 0, [RELEASE])])
        assert await member.take("v", max_wait=5_000) == [(3, 3, 1)]
        await settles(broker, (3, 1))

    run(tmp_path, scenario)


def test_deleted_view_ends_its_share_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "w")
        assert await member.take("v", max_wait=5_000) == [(0, 0, 1)]
        topics = member.topics("v", [(0, 0, [ACCEPT])])
        await broker.ask(
            DELETE_TOPICS, 6, {"topics": [{"name": "v", "topic_id": None}], "timeout": timedelta(seconds=5)}
        )
        assert not broker.context.share.partitions.all
        answer = await member.acknowledge("t", [], topics=topics)
        assert partition_of(answer).error_code == ErrorCode.unknown_topic_id

    run(tmp_path, scenario)


def test_later_look_at_a_queue_of_a_view_shows_records_that_came_after_the_first(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "ow")
        queue = QueueClient(broker, topic="v")
        assert [each.offset for each in await queue.receive(9, kind=PEEK)] == [1]
        await fill(broker, "ow", "w")
        assert [each.offset for each in await queue.receive(9, kind=PEEK)] == [1, 3, 4]

    run(tmp_path, scenario)


def test_queue_of_a_view_receives_peeks_and_waits(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "oowo", "ow", "ww")
        queue = QueueClient(broker, topic="v")
        assert [each.offset for each in await queue.receive(2, kind=PEEK)] == [2, 5]
        given = await queue.receive(2)
        assert [each.offset for each in given] == [2, 5]
        assert [await queue.settle(each, ACCEPT) for each in given] == [ErrorCode.none] * 2
        assert [each.offset for each in await queue.receive(5)] == [6, 7]
        waiting = asyncio.ensure_future(queue.ask(wait_ms=60_000, kind=WAIT))
        await fill(broker, "ooo")
        await fill(broker, "w")
        assert (await waiting).error_code == 0
        assert [each.offset for each in await queue.receive(5)] == [11]

    run(tmp_path, scenario)


def test_wait_for_a_queue_of_a_view_ends_without_a_match(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker, topic="v")
        await fill(broker, "ooo")
        answer = await queue.ask(wait_ms=200, kind=WAIT)
        assert (answer.error_code, answer.partitions) == (0, [])
        assert await queue.receive(5) == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_hidden_delayed_record_is_settled_and_its_delivery_received(tmp_path: Path, isolation: str) -> None:
    async def whole(broker: Harness) -> None:
        await broker.create("d", 1, delivery_delay="true")
        await configure(broker, auto_offset_reset="earliest", isolation_level=isolation)
        member = ShareMember(broker)
        await member.join("d")
        delayed = NewRecord(None, b"later", 1_000, ((DELAY_MS, b"200"),))
        content = memoryview(build_batch([delayed]))
        data = [ProduceTopic("d", None, [ProducePartition(0, content)])]
        await ask_raw(broker, encode_produce_request(7, 9, "test", ProduceRequest(None, -1, 5_000, data)))
        await broker.append("d", b"now")
        taken = await member.take("d", max_wait=5_000)
        assert taken == [(1, 1, 1)]
        answer = await member.fetch("d", max_wait=20_000)
        assert acquired(answer) == [(2, 2, 1)]
        assert values(answer) == [(2, b"later")]
        await member.acknowledge("d", [(1, 1, [ACCEPT]), (2, 2, [ACCEPT])])
        await settles(broker, (3, 0))

    serve(tmp_path, whole, SETTINGS)


@pytest.mark.parametrize("order", [{"order": "key"}, {"priority_enable": "true"}])
def test_ordered_group_gets_only_the_matching_records(tmp_path: Path, order: dict[str, Any]) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await fill(broker, "owow", "o", "ow")
        found: list[int] = []
        while len(found) < 3:
            taken = await member.take("v", max_wait=5_000)
            assert taken
            for first, last, _ in taken:
                found += range(first, last + 1)
                acknowledged = await member.acknowledge("v", [(first, last, [ACCEPT])])
                assert partition_of(acknowledged).error_code == 0
        assert found == [1, 3, 6]
        assert await member.take("v", max_wait=200) == []
        await settles(broker, (7, 0))

    run(tmp_path, scenario, **order)
