"""Share states of the groups of a shard, which are created and deleted while other requests arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from shard_bench import ORDERS, Bench, turns

from penstock.cluster.image import StoredConfigs
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import ShareHeartbeat
from penstock.model import QUEUE_INITIALIZER, ShareKey

KEYS = {ShareKey("q", ORDERS, partition) for partition in (0, 1)}


class States:
    """States in memory; deletions wait while `may_delete` is not set, creations while `may_create` is not set."""

    def __init__(self) -> None:
        self.present: set[ShareKey] = set()
        self.may_create, self.may_delete = asyncio.Event(), asyncio.Event()
        self.may_create.set()
        self.may_delete.set()

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        await self.may_create.wait()
        self.present.add(key)

    async def delete(self, key: ShareKey) -> None:
        await self.may_delete.wait()
        self.present.discard(key)


def beat(member_id: str) -> ShareHeartbeat:
    return ShareHeartbeat(member_id, 0, None, "c", "/h", frozenset({"orders"}))


def run(tmp_path: Path, scenario: Callable[[Bench, States], Awaitable[None]]) -> None:
    async def main() -> None:
        bench, states = Bench(tmp_path), States()
        bench.share_states = states
        await scenario(bench, states)

    asyncio.run(main())


async def make_queue(bench: Bench, partitions: int) -> None:
    """Create the group of a queue, as its creation does, with states of some partitions."""
    offsets = {(ORDERS, "orders", partition): 0 for partition in range(partitions)}
    await bench.flushed(bench.shard.share.alter_offsets("q", offsets))


def test_state_of_an_added_partition_is_created_without_a_member(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 1)
        await bench.flushed(bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER)))
        assert states.present == KEYS
        assert bench.shard.groups["q"].is_empty
        states.present.clear()
        await bench.flushed(bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER)))
        assert not states.present, "existing states stay as they are"

    run(tmp_path, scenario)


def test_receive_during_a_deletion_neither_refuses_it_nor_creates_the_group_again(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 1)
        states.may_delete.clear()
        deletion = asyncio.ensure_future(bench.shard.delete_group("q"))
        await turns()
        receive = asyncio.ensure_future(bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER)))
        await bench.threads.flush()
        states.may_delete.set()
        await bench.flushed(deletion)
        for heartbeat in (receive, bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER))):
            with pytest.raises(BrokerError) as refused:
                await bench.flushed(heartbeat)
            assert refused.value.code is ErrorCode.group_id_not_found
        assert (states.present, dict(bench.shard.groups)) == (set(), {})

    run(tmp_path, scenario)


def test_receive_creates_the_group_of_a_queue_again_after_its_deletion(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 2)
        bench.image = bench.image.with_group_configs("q", StoredConfigs({"share.queue.topic": "orders"}, 0))
        await bench.flushed(bench.shard.delete_group("q"))
        assert (states.present, dict(bench.shard.groups)) == (set(), {})
        await bench.flushed(bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER)))
        assert states.present == KEYS
        assert bench.shard.groups["q"].is_empty

    run(tmp_path, scenario)


def test_deletion_waits_for_states_that_are_being_created(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 1)
        states.may_create.clear()
        receive = asyncio.ensure_future(bench.shard.share.heartbeat("q", beat(QUEUE_INITIALIZER)))
        await turns()
        deletion = asyncio.ensure_future(bench.shard.delete_group("q"))
        await bench.threads.flush()
        states.may_create.set()
        await bench.flushed(receive)
        await bench.flushed(deletion)
        assert (states.present, dict(bench.shard.groups)) == (set(), {})

    run(tmp_path, scenario)


def test_consumer_that_joins_during_a_deletion_keeps_the_group(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 2)
        states.may_delete.clear()
        deletion = asyncio.ensure_future(bench.shard.delete_group("q"))
        await turns()
        joined = asyncio.ensure_future(bench.shard.share.heartbeat("q", beat("m1")))
        await bench.threads.flush()
        states.may_delete.set()
        with pytest.raises(BrokerError) as refused:
            await bench.flushed(deletion)
        assert refused.value.code is ErrorCode.non_empty_group
        assert (await bench.flushed(joined)).error is ErrorCode.none
        await bench.threads.flush()
        assert states.present == KEYS

    run(tmp_path, scenario)


def test_second_deletion_at_the_same_time_finds_no_group(tmp_path: Path) -> None:
    async def scenario(bench: Bench, states: States) -> None:
        await make_queue(bench, 2)
        states.may_delete.clear()
        first, second = (asyncio.ensure_future(bench.shard.delete_group("q")) for _ in range(2))
        await turns()
        states.may_delete.set()
        await bench.flushed(first)
        with pytest.raises(BrokerError) as refused:
            await bench.flushed(second)
        assert refused.value.code is ErrorCode.group_id_not_found

    run(tmp_path, scenario)
