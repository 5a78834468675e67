"""QueueReceive and QueueSettle: deliveries with tokens, lock times, delayed releases, and wrong settlements."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.wire.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveResponse,
    ReceivedPartition,
    ReceivedRange,
    decode_queue_receive_request,
    decode_queue_receive_response,
    encode_queue_receive_request,
    encode_queue_receive_response,
)
from penstock.wire.queue_settle import (
    RETURN,
    QueueSettlement,
    QueueSettleRequest,
    decode_queue_settle_request,
    encode_queue_settle_request,
)
from support.harness import Harness, content_of
from support.queue_wire import Given, QueueClient
from support.share_wire import ACCEPT, REJECT, RELEASE, RENEW, ShareMember, configure, first_take, run

PEEK, WAIT = 1, 2


def offsets(given: list[Given]) -> list[tuple[int, int]]:
    return [(each.offset, each.attempt) for each in given]


def test_message_is_taken_and_settled_without_a_session(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        given = await queue.receive(3)
        assert offsets(given) == [(0, 1), (1, 1), (2, 1)]
        assert await queue.settle(given[0], ACCEPT) is ErrorCode.none
        assert await queue.settle(given[1], REJECT, reason="bad") is ErrorCode.none
        assert await queue.settle(given[2], RELEASE, 0) is ErrorCode.none
        assert offsets(await queue.receive(2)) == [(2, 2)]
        assert offsets(await queue.receive(100)) == [(offset, 1) for offset in range(3, 10)]
        assert await queue.receive() == []

    run(tmp_path, scenario)


def test_message_released_with_a_delay_is_delivered_after_the_delay(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue, loop = QueueClient(broker), asyncio.get_running_loop()
        (given,) = await queue.receive(1)
        began = loop.time()
        assert await queue.settle(given, RELEASE, 300) is ErrorCode.none
        assert offsets(await queue.receive(1)) == [(1, 1)]
        await queue.receive(100)
        again = await queue.receive(1, wait_ms=20_000)
        assert offsets(again) == [(0, 2)]
        assert loop.time() - began >= 0.3

    run(tmp_path, scenario)


def test_receipt_expires_with_its_lock_unless_the_lock_is_extended(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        first, second = await queue.receive(2, lock_ms=300)
        assert await queue.settle(second, RENEW, 60_000) is ErrorCode.none
        await queue.receive(100)
        again = await queue.receive(1, wait_ms=20_000)
        assert offsets(again) == [(0, 2)]
        assert await queue.settle(first, ACCEPT) is ErrorCode.invalid_record_state
        assert await queue.settle(second, ACCEPT) is ErrorCode.none
        assert await queue.settle(again[0], ACCEPT) is ErrorCode.none

    run(tmp_path, scenario)


def test_repeated_foreign_and_forged_settlements_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        (given,) = await queue.receive(1)
        assert await queue.settle(given._replace(token=bytes(16)), ACCEPT) is ErrorCode.invalid_record_state
        assert await queue.settle(given._replace(offset=5), ACCEPT) is ErrorCode.invalid_record_state
        assert await queue.settle(given._replace(partition=7), ACCEPT) is not ErrorCode.none
        assert await queue.settle(given, ACCEPT, group="other") is not ErrorCode.none
        assert await queue.settle(given, ACCEPT) is ErrorCode.none
        assert await queue.settle(given, ACCEPT) is ErrorCode.invalid_record_state
        assert await queue.settle(given, RELEASE, 0) is ErrorCode.invalid_record_state

    run(tmp_path, scenario)


def test_message_returned_untried_keeps_its_delivery_count(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, delivery_count_limit=2)
        queue = QueueClient(broker)
        for attempt, action in ((1, RETURN), (1, RETURN), (1, RELEASE), (2, RETURN), (2, RETURN)):
            (given,) = await queue.receive(1)
            assert (given.offset, given.attempt) == (0, attempt)
            assert await queue.settle(given, action, 0) is ErrorCode.none
            assert await queue.settle(given, ACCEPT) is ErrorCode.invalid_record_state

    run(tmp_path, scenario)


def test_receipt_of_a_share_consumer_cannot_be_forged(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        forged = Given(0, 0, 1, member.member_id.encode().ljust(16, b"\0"))
        assert await QueueClient(broker).settle(forged, ACCEPT) is ErrorCode.invalid_record_state

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("action", "delay_ms"), [(-1, -1), (7, -1), (RELEASE, -2), (RELEASE, 2**62), (RENEW, 0), (RENEW, 2**40)]
)
def test_malformed_settlement_changes_nothing(tmp_path: Path, action: int, delay_ms: int) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        (given,) = await queue.receive(1)
        assert await queue.settle(given, action, delay_ms) is ErrorCode.invalid_request
        assert await queue.settle(given, ACCEPT) is ErrorCode.none

    run(tmp_path, scenario)


def test_peek_acquires_no_message_and_shows_messages_in_flight(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        first, second = await queue.receive(2)
        await queue.settle(first, ACCEPT)
        assert offsets(await queue.receive(3, kind=PEEK)) == [(1, 1), (2, 0), (3, 0)]
        assert offsets(await queue.receive(1)) == [(2, 1)]
        assert await queue.settle(second, ACCEPT) is ErrorCode.none

    run(tmp_path, scenario)


def test_waiting_receive_ends_when_a_message_is_available(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        queue = QueueClient(broker)
        assert len(await queue.receive(100)) == 10
        waiting = [asyncio.ensure_future(queue.receive(1, 20_000, kind=kind)) for kind in (WAIT, 0)]
        await asyncio.sleep(0)
        await broker.append("t", b"one")
        assert await waiting[0] == []
        assert offsets(await waiting[1]) == [(10, 1)]

    run(tmp_path, scenario)


def test_unknown_queue_and_wrong_limits_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        answer = await QueueClient(broker, "unknown").ask()
        assert answer.partitions[0].error_code == ErrorCode.invalid_request
        for asked in ({"max_records": 0}, {"lock_ms": 0}, {"lock_ms": -5}, {"kind": 9}):
            assert (await QueueClient(broker).ask(**asked)).error_code == ErrorCode.invalid_request
        assert (await QueueClient(broker, "").ask()).error_code == ErrorCode.invalid_request

    run(tmp_path, scenario)


def test_lost_connection_of_a_share_consumer_counts_as_a_failure(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, retry_backoff_ms="10m")
        assert await first_take(member) == [(0, 9, 1)]
        broker.context.share.sessions.close_all_of(member.broker.session)
        assert await QueueClient(broker).receive() == []
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        assert leader.partition.waiting == 10

    run(tmp_path, scenario)


def test_queue_requests_and_responses_round_trip() -> None:
    from uuid import UUID

    topic_id = UUID(int=7)
    receive = QueueReceiveRequest("q", topic_id, (0, 3), 10, 1_000, 20, 30, 1)
    frame = encode_queue_receive_request(1, "c", receive)
    body = 4 + 8 + 2 + 1
    assert decode_queue_receive_request(memoryview(frame)[4:], body - 4) == receive
    settle = QueueSettleRequest("q", (QueueSettlement(topic_id, 1, b"t" * 16, 5, 6, 2, 9, "why"),))
    frame = encode_queue_settle_request(1, "c", settle)
    assert decode_queue_settle_request(memoryview(frame)[4:], body - 4) == settle
    with pytest.raises(ProtocolError):
        decode_queue_settle_request(memoryview(frame)[4:-1], body - 4)
    response = QueueReceiveResponse(
        0, "", b"t" * 16, 30, [ReceivedPartition(1, 3, "no", [ReceivedRange(1, 2, 3, -2)], (b"records",))]
    )
    encoded = content_of(encode_queue_receive_response(1, response))
    assert decode_queue_receive_response(memoryview(encoded)[4:]) == response
