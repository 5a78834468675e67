"""Maximum length of queues: the leader refuses records beyond it, and takes them when others are settled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.harness import Harness
from support.queue_wire import QueueClient
from support.share_wire import ACCEPT, ShareMember, configure, first_take, run
from support.transaction_wire import ask_raw


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


def test_other_topics_and_groups_have_no_limit(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, max_length=1)
        assert await send(broker, 20) is ErrorCode.none

    run(tmp_path, scenario)
