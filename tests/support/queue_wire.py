"""QueueReceive and QueueSettle as raw requests to a broker of the test's own process."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.net.response import PendingResponse
from penstock.wire.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveResponse,
    decode_queue_receive_response,
    encode_queue_receive_request,
)
from penstock.wire.queue_settle import (
    QueueSettlement,
    QueueSettleRequest,
    decode_queue_settle_response,
    encode_queue_settle_request,
)
from support.harness import Harness, content_of

SIZE_BYTES = 4


async def exchange(broker: Harness, frame: bytes) -> memoryview:
    answer = broker._broker._dispatcher.dispatch(broker.session, memoryview(frame)[SIZE_BYTES:])
    if isinstance(answer, PendingResponse):
        done = asyncio.Event()
        answer.when_done(done.set)
        await done.wait()
        assert answer.error is None, answer.error
        answer = answer.parts
    assert answer is not None
    return memoryview(content_of(answer))[SIZE_BYTES:]


class Given(NamedTuple):
    """A message that was received."""

    partition: int
    offset: int
    attempt: int
    token: bytes


class QueueClient:
    def __init__(self, broker: Harness, group: str = "g", topic: str = "t") -> None:
        self.broker, self.group, self.topic = broker, group, topic

    async def ask(
        self, max_records: int = 10, wait_ms: int = 0, lock_ms: int = -1, kind: int = 0
    ) -> QueueReceiveResponse:
        image = self.broker.context.image
        topic = image.shown(image.topics[self.topic])
        partitions = tuple(range(len(topic.partitions)))
        request = QueueReceiveRequest(
            self.group, topic.id, partitions, max_records, 1_000_000, wait_ms, lock_ms, kind
        )
        return decode_queue_receive_response(
            await exchange(self.broker, encode_queue_receive_request(1, "test", request))
        )

    async def receive(
        self, max_records: int = 10, wait_ms: int = 0, lock_ms: int = -1, kind: int = 0
    ) -> list[Given]:
        answer = await self.ask(max_records, wait_ms, lock_ms, kind)
        assert answer.error_code == 0, answer.error_message
        given = []
        for partition in answer.partitions:
            assert partition.error_code == 0, partition.error_message
            for first, last, count, _ in partition.ranges:
                given += [
                    Given(partition.partition, offset, count, answer.token)
                    for offset in range(first, last + 1)
                ]
        return given

    async def settle(
        self, given: Given, action: int, delay_ms: int = -1, reason: str = "", group: str | None = None
    ) -> ErrorCode:
        topic_id = self.broker.context.image.topics[self.topic].id
        settlement = QueueSettlement(
            topic_id, given.partition, given.token, given.offset, given.offset, action, delay_ms, reason
        )
        request = QueueSettleRequest(self.group if group is None else group, (settlement,))
        answer = decode_queue_settle_response(
            await exchange(self.broker, encode_queue_settle_request(1, "test", request))
        )
        assert answer.error_code == 0, answer.error_message
        return ErrorCode(answer.results[0].error_code)
