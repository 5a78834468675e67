"""Maximum length of queues: the leader refuses records beyond it, and takes them when others are settled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from test_dead_letters import headers_of, letters, offsets, set_topic

from penstock.errors import ErrorCode
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import build_marker
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness
from support.queue_wire import QueueClient
from support.share_wire import ACCEPT, RELEASE, ShareMember, configure, first_take, run
from support.transaction_wire import ask_raw

TRIMMED = {"queue_topic": "t", "max_length_policy": "dead-letter"}


async def send(broker: Harness, count: int = 1, **batch: Any) -> ErrorCode:
    records = [NewRecord(b"k", b"v", 1_000, ()) for _ in range(count)]
    content = memoryview(build_batch(records, **batch))
    data = [ProduceTopic("t", None, [ProducePartition(0, content)])]
    frame = encode_produce_request(7, 9, "test", ProduceRequest(None, -1, 5_000, data))
    result = decode_produce_response(await ask_raw(broker, frame), 9).topics[0].partitions[0]
    return ErrorCode(result.error_code)


def test_full_queue_refuses_records_until_some_are_settled(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        given = await queue.receive(2, wait_ms=5_000)
        await configure(broker, queue_topic="t", max_length=12)
        assert await send(broker, 2) is ErrorCode.none
        assert await send(broker) is ErrorCode.policy_violation
        assert await queue.settle(given[0], ACCEPT) is ErrorCode.none
        assert await send(broker, 2) is ErrorCode.policy_violation
        assert await send(broker) is ErrorCode.none
        await configure(broker, max_length=0)
        assert await send(broker, 100) is ErrorCode.none

    run(tmp_path, scenario)


def test_repeated_batch_is_not_refused_by_a_full_queue(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await first_take(member)
        await configure(broker, queue_topic="t", max_length=11)
        once = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        assert await send(broker, **once) is ErrorCode.none
        assert await send(broker, **once) is ErrorCode.none
        assert await send(broker, **{**once, "base_sequence": 1}) is ErrorCode.policy_violation

    run(tmp_path, scenario)


def test_maximum_queue_length_does_not_apply_to_other_topics_and_groups(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, max_length=1)
        assert await send(broker, 20) is ErrorCode.none

    run(tmp_path, scenario)


def test_oldest_records_of_a_long_queue_become_dead_letters(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        queue = QueueClient(broker)
        given = await queue.receive(2, wait_ms=5_000)
        await configure(broker, **TRIMMED, max_length=5)
        await eventually_async(lambda: len(letters(broker)) == 5)
        assert offsets(letters(broker)) == [2, 3, 4, 5, 6]  # 0 and 1 are held
        assert await send(broker, 3) is ErrorCode.none
        await eventually_async(lambda: len(letters(broker)) == 8)
        assert offsets(letters(broker)) == list(range(2, 10))
        shown = headers_of(letters(broker)[0])
        assert (shown["penstock-dead-reason"], shown["penstock-dead-attempts"]) == ("overflow", "0")
        assert await queue.settle(given[0], ACCEPT) is ErrorCode.none
        assert [each.offset for each in await queue.receive(100)] == [10, 11, 12]
        await asyncio.sleep(0.1)
        assert len(letters(broker)) == 8

    run(tmp_path, scenario)


def test_transaction_markers_get_no_dead_letter(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        replica = broker.context.replicas.get("t", 0)
        await QueueClient(broker).receive(1, wait_ms=5_000)
        marker = memoryview(build_marker(5, 0, True, 0, 1_000))
        replica.append_as_leader(marker, read_header(marker), 1_000)
        assert await send(broker, 3) is ErrorCode.none
        await configure(broker, **TRIMMED, max_length=2)
        await eventually_async(lambda: len(letters(broker)) == 11)
        assert offsets(letters(broker)) == [*range(1, 10), 11, 12]

    run(tmp_path, scenario)


def test_long_queue_refuses_records_while_dead_letters_wait(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await set_topic(broker)  # the topic does not exist
        await first_take(member)
        await member.acknowledge("t", [(0, 9, [RELEASE])])
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        await configure(broker, **TRIMMED, max_length=5)
        settings = replace(leader.partition.settings, max_archiving=4)
        leader.partition.follow_settings(settings)
        await eventually_async(lambda: leader.partition is not None and leader.partition.archiving >= 4)
        assert await send(broker) is ErrorCode.policy_violation
        await broker.create("dead", 1)
        await eventually_async(lambda: len(letters(broker)) == 5)
        assert await send(broker) is ErrorCode.none

    run(tmp_path, scenario)


def test_policy_without_a_dead_letter_topic_refuses_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await first_take(member)
        await configure(broker, **TRIMMED, max_length=10)
        assert await send(broker) is ErrorCode.policy_violation

    run(tmp_path, scenario)
