"""Leader that reaches its clients, but neither the store nor its followers: clients are turned away to ask
other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_produce_handler import ALL, batch, produce, send, topic
from test_replicas_on_brokers import ORDERS, create, started

from penstock.errors import BrokerError, CutOff, ErrorCode
from penstock.model import TopicId
from penstock.net.response import Answer, PendingResponse
from penstock.replication.in_sync_writer import InSyncOutcome, InSyncWrite
from penstock.server.handlers import produce as handler
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.fetch_client import encode_fetch_request
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.produce import ProduceRequest
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import SHORT_LAG, Brokers, run

FETCH_VERSION = 13
MINUTE_MS = 60_000


async def cut_off(brokers: Brokers, leader: int, follower: Harness) -> None:
    async def no_answer(writes: Sequence[InSyncWrite]) -> Sequence[InSyncOutcome]:
        raise BrokerError(ErrorCode.request_timed_out, "no clear answer")

    brokers.running[leader]._in_sync_writer._store.write_in_sync = no_answer  # type: ignore[method-assign]
    await follower.context.replicas._fetchers.stop()


async def error_of(answer: Answer) -> Exception | None:
    assert isinstance(answer, PendingResponse)
    done = asyncio.Event()
    answer.when_done(done.set)
    await done.wait()
    return answer.error


def fetch(broker: Harness, topic_id: TopicId, offset: int, max_wait_ms: int) -> Answer:
    asked = FetchTopic(None, topic_id, [FetchPartition(0, offset, 1_000)])
    request = FetchRequest(max_wait_ms, 1, [asked], [], max_bytes=1_000, uses_topic_ids=True)
    frame = encode_fetch_request(7, FETCH_VERSION, "test", request)
    return broker._broker._dispatcher.dispatch(broker.session, memoryview(frame)[SIZE_PREFIX:])


@pytest.fixture(autouse=True)
def doubt_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "DOUBT_SECONDS", 0.05)


async def leader_and_follower(brokers: Brokers) -> tuple[Harness, Harness]:
    """Producer of a partition with one record, which both replicas have."""
    first, second = await started(brokers, 2)
    await create(first, [1, 2])
    (result,) = await produce(first, topic(ORDERS, batch()))
    assert result.error_code == ErrorCode.none
    return first, second


@pytest.mark.slow
def test_partitioned_leader_closes_connections_of_waiting_clients(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await leader_and_follower(brokers)
        await cut_off(brokers, 1, second)
        answer = send(first, ProduceRequest(None, ALL, MINUTE_MS, [topic(ORDERS, batch())]))
        assert isinstance(await error_of(answer), CutOff)
        topic_id = first.context.image.topics[ORDERS].id
        assert not isinstance(fetch(first, topic_id, 0, max_wait_ms=100), PendingResponse), (
            "what is committed is shown"
        )
        assert isinstance(await error_of(fetch(first, topic_id, 1, max_wait_ms=100)), CutOff)

    run(tmp_path, scenario, **SHORT_LAG)


@pytest.mark.slow
def test_producer_keeps_waiting_at_a_leader_that_lost_a_follower(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await leader_and_follower(brokers)
        await second.context.replicas._fetchers.stop()
        (result,) = await produce(first, topic(ORDERS, batch()), timeout_ms=MINUTE_MS)
        assert result.error_code == ErrorCode.none
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1})

    run(tmp_path, scenario, **SHORT_LAG)
