"""Batches of one loop turn share a Produce request, and each of them has its own result."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.internal_client import produce_requests
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.produce_loop import PartitionProducer
from penstock.internal_client.produce_requests import Place, ProduceRequests
from penstock.internal_client.routes import Routes
from penstock.internal_client.transactions import ProducerIdentity
from penstock.net.broker_connection import BrokerConnection, ResponseReceiver
from penstock.records.batch import read_header
from penstock.records.building import NewRecord
from penstock.unreachable import ConnectionLost
from penstock.wire.headers import decode_request_header
from penstock.wire.produce import (
    ProduceRequest,
    ProduceResult,
    ProduceTopicResult,
    decode_produce_request,
    encode_produce_response,
)
from support.eventually import eventually_async

VERSION = 12


class Broker:
    """A connection whose requests the test answers."""

    client_id = own_client_id = "test"

    def __init__(self) -> None:
        self.requests: list[tuple[int, ProduceRequest, ResponseReceiver]] = []

    def next_correlation_id(self) -> int:
        return len(self.requests) + 1

    def submit(self, correlation_id: int, frame: bytes, receiver: ResponseReceiver) -> None:
        body = memoryview(frame)[4:]
        _, position = decode_request_header(body)
        self.requests.append((correlation_id, decode_produce_request(body, position, VERSION), receiver))

    @property
    def places(self) -> list[list[Place]]:
        return [
            [(topic.name or "", each.index) for topic in request.topics for each in topic.partitions]
            for _, request, _ in self.requests
        ]

    def answer(self, results: dict[Place, ProduceResult]) -> None:
        correlation_id, _, receiver = self.requests.pop(0)
        topics = [ProduceTopicResult(name, None, [result]) for (name, _), result in results.items()]
        receiver.set_result(memoryview(encode_produce_response(correlation_id, VERSION, topics))[4:])

    def connection(self) -> BrokerConnection:
        return cast(BrokerConnection, self)


def send(requests: ProduceRequests, broker: Broker, *place: Any, batch: bytes = b"x") -> Any:
    return requests.send(broker.connection(), None, (place[0], place[1]), batch)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_batches_of_one_turn_share_a_request_for_each_broker() -> None:
    requests, one, two = ProduceRequests(), Broker(), Broker()
    for partition in range(3):
        send(requests, one, "a", partition)
    send(requests, one, "b", 0)
    send(requests, two, "a", 3)
    await turn()
    assert one.places == [[("a", 0), ("a", 1), ("a", 2), ("b", 0)]]
    assert two.places == [[("a", 3)]]


async def test_each_batch_has_its_own_result() -> None:
    requests, broker = ProduceRequests(), Broker()
    first, second = send(requests, broker, "a", 0), send(requests, broker, "a", 1)
    await turn()
    refused = ProduceResult(1, ErrorCode.not_leader_or_follower)
    broker.answer({("a", 1): refused, ("a", 0): ProduceResult(0, 0, 42)})
    assert (await first).base_offset == 42
    assert (await second).error_code == ErrorCode.not_leader_or_follower


async def test_two_batches_of_a_partition_are_sent_in_order_in_two_requests() -> None:
    requests, broker = ProduceRequests(), Broker()
    send(requests, broker, "a", 0, batch=b"first")
    send(requests, broker, "a", 1)
    send(requests, broker, "a", 0, batch=b"second")
    await turn()
    assert broker.places == [[("a", 0), ("a", 1)], [("a", 0)]]
    assert bytes(broker.requests[1][1].topics[0].partitions[0].records or b"") == b"second"


async def test_batches_of_another_transaction_have_a_request_of_their_own() -> None:
    requests, broker = ProduceRequests(), Broker()
    send(requests, broker, "a", 0)
    requests.send(broker.connection(), "transaction", ("a", 1), b"x")
    await turn()
    assert [request.transactional_id for _, request, _ in broker.requests] == [None, "transaction"]


async def test_large_request_takes_no_further_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_requests, "MAX_REQUEST_BYTES", 10)
    requests, broker = ProduceRequests(), Broker()
    for partition in range(3):
        send(requests, broker, "a", partition, batch=b"x" * 6)
    await turn()
    assert broker.places == [[("a", 0), ("a", 1)], [("a", 2)]]


async def test_batch_given_up_before_the_end_of_the_turn_is_not_sent() -> None:
    requests, broker = ProduceRequests(), Broker()
    send(requests, broker, "a", 0).cancel()
    kept = send(requests, broker, "a", 1)
    await turn()
    assert broker.places == [[("a", 1)]]
    broker.answer({("a", 1): ProduceResult(1, 0, 5)})
    assert (await kept).base_offset == 5


async def test_lost_connection_fails_every_batch_of_the_request() -> None:
    requests, broker = ProduceRequests(), Broker()
    sent = [send(requests, broker, "a", partition) for partition in range(2)]
    await turn()
    broker.requests[0][2].set_exception(ConnectionLost("closed"))
    for each in sent:
        with pytest.raises(ConnectionLost):
            await each


async def test_response_without_a_result_is_an_error_of_that_batch_alone() -> None:
    requests, broker = ProduceRequests(), Broker()
    answered, missing = send(requests, broker, "a", 0), send(requests, broker, "a", 1)
    await turn()
    broker.answer({("a", 0): ProduceResult(0, 0, 7), ("other", 3): ProduceResult(3)})
    assert (await answered).base_offset == 7
    with pytest.raises(ProtocolError):
        await missing


class Receiver:
    """A receiver that is called in the loop turn of the response."""

    def __init__(self) -> None:
        self.outcomes: list[object] = []

    def done(self) -> bool:
        return bool(self.outcomes)

    def set_result(self, result: ProduceResult) -> None:
        self.outcomes.append(result.base_offset)

    def set_exception(self, error: BaseException) -> None:
        self.outcomes.append(error)


async def test_batches_share_later_requests_while_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_requests, "MANY_BATCHES", 2)
    monkeypatch.setattr(produce_requests, "APART_SECONDS", 0.5)
    requests, broker = ProduceRequests(), Broker()
    for partition in range(2):
        send(requests, broker, "a", partition)
    await turn()
    for partition in range(2, 5):
        send(requests, broker, "a", partition)
        await turn()
    assert broker.places == [[("a", 0), ("a", 1)]]
    await eventually_async(lambda: len(broker.places) > 1)
    assert broker.places == [[("a", 0), ("a", 1)], [("a", 2), ("a", 3), ("a", 4)]]


async def test_result_of_an_earlier_batch_lets_the_next_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_requests, "MANY_BATCHES", 1)
    monkeypatch.setattr(produce_requests, "APART_SECONDS", 600.0)
    requests, broker = ProduceRequests(), Broker()
    send(requests, broker, "a", 0)
    await turn()
    broker.answer({("a", 0): ProduceResult(0, 0, 1)})
    send(requests, broker, "a", 1)
    await turn()
    assert broker.places == [[("a", 1)]]


async def test_receiver_gets_one_outcome_when_the_response_comes_after_its_deadline() -> None:
    requests, broker, receiver = ProduceRequests(), Broker(), Receiver()
    deadline = asyncio.get_running_loop().time()
    requests.submit(broker.connection(), None, ("a", 0), b"x", receiver, deadline)
    await eventually_async(lambda: bool(receiver.outcomes))
    broker.answer({("a", 0): ProduceResult(0, 0, 7)})
    [outcome] = receiver.outcomes
    assert isinstance(outcome, TimeoutError)


class OneBroker:
    """Routes to one broker, which gives out producer ids from 0 on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids = 0

    async def leader(self, topic: str, partition: int) -> BrokerConnection:
        return self._broker.connection()

    async def at_any(self, request: object) -> ProducerIdentity:
        self._ids += 1
        return ProducerIdentity(None, self._ids - 1, 0)

    def forget(self, topic: str) -> None: ...


async def test_sequence_of_a_batch_without_a_valid_response_is_not_used_again() -> None:
    """The batch may be stored: another one with its sequence would be taken for a duplicate, and be lost."""
    broker = Broker()
    producer = PartitionProducer(cast(Routes, OneBroker(broker)), "a", 0)
    deadline = asyncio.get_running_loop().time() + 60
    first = asyncio.ensure_future(producer.write([NewRecord(None, b"1", 0)], deadline))
    await eventually_async(lambda: broker.requests)
    broker.answer({("other", 0): ProduceResult(0, 0, 0)})
    with pytest.raises(OutcomeUnknown, match="without a result for each partition"):
        await first
    second = asyncio.ensure_future(producer.write([NewRecord(None, b"2", 0)], deadline))
    await eventually_async(lambda: broker.requests)
    records = broker.requests[0][1].topics[0].partitions[0].records
    assert records is not None
    header = read_header(records)
    assert (header.producer_id, header.base_sequence) == (1, 0)
    broker.answer({("a", 0): ProduceResult(0, 0, 7)})
    assert await second == 7
