"""Fetches of a follower at its leader, sent by the test: which response has which partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.model import BrokerId
from penstock.net.response import Answer, PendingResponse
from penstock.server.dispatch import Session
from penstock.server.security import ANONYMOUS
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request
from penstock.wire.framing import SIZE_PREFIX
from support.eventually import eventually_async
from support.harness import Harness, content_of
from support.whole_brokers import Brokers, run

ORDERS = "orders"
VERSION = 17


class Follower:
    def __init__(self, leader: Harness, broker_id: BrokerId) -> None:
        self._leader = leader
        self._id = broker_id
        self._session = Session("test:1", "test", ANONYMOUS)
        self._session.broker_id = broker_id
        self._epoch = 0

    def name(self, offset: int) -> Answer:
        """Fetch the one partition at an offset, with a short wait."""
        topic = self._leader.context.image.topics[ORDERS]
        partition = FetchPartition(
            0,
            offset,
            1_000,
            current_leader_epoch=topic.partitions[0].leader_epoch,
            last_fetched_epoch=-1,
            log_start_offset=0,
            flushed_offset=offset,
        )
        known = self._session.follower
        request = FetchRequest(
            50,
            1,
            [FetchTopic(None, topic.id, [partition])],
            [],
            replica_id=self._id,
            replica_epoch=1,
            session_id=0 if known is None else known.id,
            session_epoch=self._epoch,
            uses_topic_ids=True,
        )
        self._epoch += 1
        frame = encode_fetch_request(7, VERSION, "test", request)
        return self._leader._broker._dispatcher.dispatch(self._session, memoryview(frame)[SIZE_PREFIX:])


async def said(answer: Answer) -> FetchResponse:
    assert isinstance(answer, PendingResponse)
    done = asyncio.Event()
    answer.when_done(done.set)
    if not answer.is_done:
        await asyncio.wait_for(done.wait(), 30)
    assert answer.parts is not None
    content = memoryview(content_of(answer.parts))
    return decode_fetch_response(content[SIZE_PREFIX:], VERSION)


def test_partition_is_in_the_response_to_the_request_that_names_it(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first = await brokers.start(1)
        second = await brokers.start(2)
        await eventually_async(lambda: len(brokers.running[1]._metadata.image.brokers) == 2)
        await first.create(ORDERS)
        number = first.context.image.topics[ORDERS].partitions[0].leader
        leader = {1: first, 2: second}[number]
        await eventually_async(lambda: leader.context.replicas.get(ORDERS, 0))
        follower = Follower(leader, BrokerId(3 - number))
        waiting = follower.name(0)
        again = follower.name(0)
        await said(waiting)
        [topic] = (await said(again)).topics
        assert topic.partitions[0].high_watermark == 0

    run(tmp_path, scenario, default_replication_factor="2", min_insync_replicas="1")
