"""Verification of the first batch of a transaction, by the local coordinator or by another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coordinator_bench import P0, P1, Bench

from penstock.clock import SystemClock
from penstock.cluster.image import NO_LEADER
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, ProducerEpoch, ProducerId
from penstock.observability.logs import Logger
from penstock.transactions import verification
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.links import BrokerLinks
from penstock.transactions.verification import Verifier

ME, OTHER = BrokerId(1), BrokerId(2)
PRODUCER = (ProducerId(7), ProducerEpoch(0))


class World:
    """A local coordinator, and one on another broker that responds as the test says."""

    def __init__(self, leader: BrokerId) -> None:
        self.leader = leader
        self.bench = Bench()
        self.asked: list[Any] = []
        self.answers: list[ErrorCode | Exception] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        log = Logger(SystemClock(), lambda line: None, lambda *_: "")
        self.verifier = Verifier(ME, cast(TransactionCoordinator, self), cast(BrokerLinks, self), log)

    def leader_of(self, transactional_id: str) -> BrokerId:
        if transactional_id == "nobody's":
            raise BrokerError(ErrorCode.coordinator_not_available)
        return self.leader

    def shard_of(self, transactional_id: str) -> Any:
        return self.bench.shard

    async def send(self, broker_id: BrokerId, request: Callable[[Any], Awaitable[Any]]) -> Any:
        return await request(SimpleNamespace(request=partial(self.respond, broker_id)))

    async def respond(self, broker_id: BrokerId, api_key: int, version: int, fields: Any) -> Any:
        assert (broker_id, api_key) == (OTHER, 24)
        self.asked.append(fields["transactions"])
        await self.may_answer.wait()
        code = self.answers.pop(0) if self.answers else ErrorCode.none
        if isinstance(code, Exception):
            raise code
        results = [
            SimpleNamespace(
                transactional_id=each["transactional_id"],
                topic_results=[
                    SimpleNamespace(
                        name=topic["name"],
                        results_by_partition=[
                            SimpleNamespace(partition_index=index, partition_error_code=code)
                            for index in topic["partitions"]
                        ],
                    )
                    for topic in each["topics"]
                ],
            )
            for each in fields["transactions"]
        ]
        return SimpleNamespace(error_code=0, results_by_transaction=results)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "RETRY_SECONDS", 0.001)


async def test_local_coordinator_verifies_without_a_request() -> None:
    world = World(ME)
    producer = await world.bench.init()
    asking = world.verifier.verify("t", *producer, P0, False)
    assert await world.bench.settle(asking) is ErrorCode.transaction_abortable
    assert await world.bench.settle(world.verifier.verify("t", *producer, P0, True)) is ErrorCode.none
    assert await world.bench.settle(world.verifier.verify("t", *producer, P0, False)) is ErrorCode.none
    stranger = (ProducerId(1), ProducerEpoch(0))
    refused = world.verifier.verify("t", *stranger, P0, True)
    assert await world.bench.settle(refused) is ErrorCode.invalid_producer_id_mapping
    assert not world.asked


async def test_verifications_during_a_request_share_the_next_request() -> None:
    world = World(OTHER)
    world.may_answer.clear()
    first = asyncio.ensure_future(world.verifier.verify("a", *PRODUCER, P0, True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [
        asyncio.ensure_future(world.verifier.verify(name, *PRODUCER, partition, implicit))
        for name, partition, implicit in [
            ("a", P0, True),
            ("a", P1, True),
            ("a", P1, False),
            ("b", P0, False),
        ]
    ]
    await asyncio.sleep(0)
    world.may_answer.set()
    assert await asyncio.gather(first, *others) == [ErrorCode.none] * 5
    assert [len(asked) for asked in world.asked] == [1, 3]
    assert [
        (each["transactional_id"], each["verify_only"], each["topics"][0]["partitions"])
        for each in world.asked[1]
    ] == [("a", False, [0, 1]), ("a", True, [1]), ("b", True, [0])]


async def test_verification_waits_for_the_end_of_the_previous_transaction() -> None:
    world = World(OTHER)
    world.answers = [ErrorCode.concurrent_transactions] * 3
    assert await world.verifier.verify("t", *PRODUCER, P0, True) is ErrorCode.none
    world.answers = [ErrorCode.concurrent_transactions] * 1_000
    assert await world.verifier.verify("t", *PRODUCER, P0, True) is ErrorCode.concurrent_transactions


@pytest.mark.parametrize(
    "trouble", [ConnectionResetError(), TimeoutError(), BrokerError(ErrorCode.none), KeyError()]
)
async def test_verification_by_an_unreachable_coordinator_gets_not_available(trouble: Exception) -> None:
    world = World(OTHER)
    world.answers = [trouble]
    assert await world.verifier.verify("t", *PRODUCER, P0, True) is ErrorCode.coordinator_not_available


async def test_verification_without_a_coordinator_gets_not_available() -> None:
    world = World(NO_LEADER)
    for name in ("t", "nobody's"):
        assert await world.verifier.verify(name, *PRODUCER, P0, True) is ErrorCode.coordinator_not_available


async def test_waiting_verification_fails_when_the_broker_stops() -> None:
    world = World(OTHER)
    world.may_answer.clear()
    asking = [asyncio.ensure_future(world.verifier.verify("t", *PRODUCER, P0, True)) for _ in range(2)]
    await asyncio.sleep(0)
    asking.append(asyncio.ensure_future(world.verifier.verify("t", *PRODUCER, P1, True)))
    await asyncio.sleep(0)
    await world.verifier.close()
    assert await asyncio.gather(*asking) == [ErrorCode.coordinator_not_available] * 3
