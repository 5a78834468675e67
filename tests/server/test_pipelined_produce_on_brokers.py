"""Pipelined idempotent producers on whole brokers that stop and start: each record is stored once, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest
from test_produce_handler import send

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer, PendingResponse
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response
from support.eventually import eventually_async
from support.harness import Harness, content_of, new_topic
from support.whole_brokers import Brokers, run

ORDERS = "orders"
IN_FLIGHT = 5
ACKS_ALL = -1


class PipelinedProducer:
    """Producer that sends up to five batches at a time to the leader, and sends refused ones again, in order."""

    def __init__(self, brokers: Brokers, at: dict[int, Harness], producer_id: int) -> None:
        self._brokers = brokers
        self._at = at
        self._producer_id = producer_id
        self._unacknowledged: deque[int] = deque()
        self._next = 0
        self.is_stopping = False

    async def run(self) -> int:
        """Send until stopped, then until every batch is acknowledged; the number of batches."""
        while not self.is_stopping or self._unacknowledged:
            while len(self._unacknowledged) < IN_FLIGHT and not self.is_stopping:
                self._unacknowledged.append(self._next)
                self._next += 1
            await self._send(self._leader(), list(self._unacknowledged))
        return self._next

    def _leader(self) -> Harness | None:
        """Leader of the partition, or any broker while there is none."""
        for number in self._brokers.running:
            try:
                self._at[number].context.replicas.get(ORDERS, 0)
            except BrokerError:
                continue
            return self._at[number]
        return next((self._at[number] for number in self._brokers.running), None)

    async def _send(self, broker: Harness | None, sequences: list[int]) -> None:
        if broker is None:
            await asyncio.sleep(0.01)
            return
        answers = []
        for sequence in sequences:
            answer = send(broker, self._request(sequence))
            answers.append((sequence, answer))
            await asyncio.sleep(0)  # leadership may change between two frames
            while isinstance(answer, PendingResponse) and answer.barrier:
                await asyncio.sleep(0.001)  # a connection dispatches nothing behind a barrier
        for sequence, answer in answers:
            code = await self._code(answer)
            if code is ErrorCode.none:
                self._unacknowledged.remove(sequence)
            else:
                assert code.retriable, f"batch {sequence} was refused with {code.name}"
        if self._unacknowledged:
            await asyncio.sleep(0.01)

    def _request(self, sequence: int) -> ProduceRequest:
        record = NewRecord(b"k", b"%d" % sequence, 1_000)
        content = build_batch(
            [record], producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )
        topic = ProduceTopic(ORDERS, None, [ProducePartition(0, memoryview(bytearray(content)))])
        return ProduceRequest(None, ACKS_ALL, 2_000, [topic])

    async def _code(self, answer: Answer) -> ErrorCode:
        if isinstance(answer, PendingResponse):
            if not answer.is_done:
                done = asyncio.Event()
                answer.when_done(done.set)
                await done.wait()
            if answer.error is not None:
                return ErrorCode.network_exception
            answer = answer.parts
        assert isinstance(answer, list)
        response = decode_produce_response(memoryview(content_of(answer))[SIZE_PREFIX:], 9)
        return ErrorCode(response.topics[0].partitions[0].error_code)


def stored(broker: Harness) -> list[tuple[int, int]]:
    """Producer id and number of every record in the log of the partition."""
    log = broker.context.replicas._replicas[ORDERS, 0].log
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, below=log.log_end_offset, at_least_one=True, wait=True)
        for header, batch in read_batches(memoryview(part.read())):
            found += [(header.producer_id, int(record.value or b"")) for record in iterate(batch, header)]
            offset = header.next_offset
    return found


async def started(brokers: Brokers, **configs: str) -> dict[int, Harness]:
    at = {number: await brokers.start(number) for number in (1, 2, 3)}
    await eventually_async(
        lambda: all(len(broker._metadata.image.brokers) == 3 for broker in brokers.running.values())
    )
    settings = {"min.insync.replicas": "2"} | {
        name.replace("_", "."): value for name, value in configs.items()
    }
    new = new_topic(ORDERS, assignments=[(0, [1, 2, 3])], configs=settings)
    response = await at[1].ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
    assert response.topics[0].error_code == 0
    return at


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_each_pipelined_batch_is_stored_once_over_restarts(tmp_path: Path, policy: str) -> None:
    """Brokers go one after the other and two at a time, so that the partition is under min ISR at times."""

    async def scenario(brokers: Brokers) -> None:
        at = await started(brokers, cleanup_policy=policy)
        producers = [PipelinedProducer(brokers, at, number) for number in (7, 8)]
        sending = [asyncio.ensure_future(producer.run()) for producer in producers]
        for gone in ((1,), (2,), (2, 3), (3,), (1, 2), (1,)):
            for number in gone:
                await brokers.stop(number)
            await asyncio.sleep(0.1)
            for number in gone:
                at[number] = await brokers.start(number)
            await eventually_async(lambda: len(brokers.members(1, ORDERS)) == 3)
        for producer in producers:
            producer.is_stopping = True
        counts = await asyncio.wait_for(asyncio.gather(*sending), 30)
        await eventually_async(lambda: len({tuple(stored(broker)) for broker in at.values()}) == 1)
        for producer, count in zip(producers, counts, strict=True):
            numbers = [number for each, number in stored(at[1]) if each == producer._producer_id]
            assert numbers == list(range(count))

    run(tmp_path, scenario)
