"""Controller on a real ZooKeeper: cut connections, expired sessions, ten thousand partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from cutting_proxy import Cut, CuttingProxy
from node import ClusterNode

from penstock.cluster.coordination import CoordinationStore, SessionState
from penstock.cluster.image import TopicImage
from penstock.cluster.loading import load_image
from penstock.cluster.topics import CreatableTopic, NewPartitions
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.errors import BrokerError, ErrorCode
from penstock.threads import ThreadPools

PATIENCE_SECONDS = 20
BOUND_SECONDS = 30
"""Limit in seconds. Each step takes about a second on an idle machine with two cores."""


@asynccontextmanager
async def cluster(
    zookeeper: str, session_timeout_ms: int = 10_000
) -> AsyncIterator[tuple[ClusterNode, ZooKeeperStore, CoordinationStore, CuttingProxy]]:
    """Controller behind a proxy, its store, and another session that reads the true state."""
    address, _, chroot = zookeeper.partition("/")
    proxy = CuttingProxy(int(address.rpartition(":")[2]))
    await proxy.start()
    threads = ThreadPools()
    store = ZooKeeperStore(f"127.0.0.1:{proxy.port}/{chroot}", threads, session_timeout_ms)
    observer = ZooKeeperStore(zookeeper, threads)
    await store.start()
    await observer.start()
    node = await ClusterNode(store).start()
    try:
        yield node, store, observer, proxy
    finally:
        await node.stop()
        await store.close()
        await observer.close()
        threads.close()
        await proxy.close()


@pytest.mark.parametrize("seed", range(3))
def test_responses_match_the_store_while_connections_are_cut(zookeeper: str, seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        expected: dict[str, int] = {}
        async with cluster(zookeeper) as (node, store, observer, proxy):
            states: list[SessionState] = []
            store.on_session(states.append)
            for number in range(25):
                proxy.next_multi = random.choice([None, *Cut])
                name = f"t{number}"
                [made] = await node.administration.create_topics([CreatableTopic(name, 1)])
                assert isinstance(made, TopicImage)
                expected[name] = 1
                if random.random() < 0.5:
                    proxy.next_multi = random.choice([None, *Cut])
                    [grown] = await node.administration.create_partitions([NewPartitions(name, 3)])
                    assert isinstance(grown, TopicImage)
                    expected[name] = 3
                if random.random() < 0.3:
                    [gone] = await node.administration.delete_topics([name])
                    assert isinstance(gone, TopicImage)
                    del expected[name]
            seen = {name: len(topic.partitions) for name, topic in node.metadata.image.topics.items()}
            assert seen == expected
            assert node.metadata.image == await load_image(observer)
            assert SessionState.SUSPENDED in states
            assert SessionState.EXPIRED not in states

    asyncio.run(scenario())


def test_controller_with_expired_session_resigns(zookeeper: str) -> None:
    async def scenario() -> None:
        async with cluster(zookeeper, 1_000) as (node, store, observer, proxy):
            expired = asyncio.Event()
            store.on_session(lambda state: expired.set() if state is SessionState.EXPIRED else None)
            proxy.cut()
            with pytest.raises(BrokerError) as refusal:
                await node.administration.create_topics([CreatableTopic("a")])
            assert refusal.value.code is ErrorCode.request_timed_out
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await load_image(observer)).brokers:
                    await asyncio.sleep(0.02)
            proxy.restore()
            await asyncio.wait_for(expired.wait(), PATIENCE_SECONDS)
            with pytest.raises(BrokerError) as refusal:
                await node.administration.create_topics([CreatableTopic("a")])
            assert refusal.value.code is ErrorCode.not_controller
            assert not (await load_image(observer)).topics

    asyncio.run(scenario())


def test_ten_thousand_partitions_take_seconds(zookeeper: str) -> None:
    async def scenario() -> None:
        async with cluster(zookeeper) as (node, store, observer, _):
            async with asyncio.timeout(BOUND_SECONDS):
                await node.administration.create_topics([CreatableTopic("large", 10_000, 1)])
            async with asyncio.timeout(BOUND_SECONDS):
                assert await load_image(observer) == node.metadata.image
            async with asyncio.timeout(BOUND_SECONDS):
                await node.membership.take_leadership()
            assert {
                partition.leader_epoch for partition in node.metadata.image.topics["large"].partitions
            } == {1}
            async with asyncio.timeout(BOUND_SECONDS):
                await node.administration.delete_topics(["large"])
            assert await store.children("/topics") == []

    asyncio.run(scenario())
