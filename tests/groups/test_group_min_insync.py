"""A shard of groups whose log is under min ISR."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from shard_bench import ME, P0, Bench, join_request, turns

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import LeavingMember, SyncRequest
from penstock.model import BrokerId

UNAVAILABLE = ErrorCode.coordinator_not_available
Run = Callable[[Callable[[Bench], Awaitable[None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
        async def body() -> None:
            bench = Bench(tmp_path)
            bench.replica.partition.in_sync.set_replicas((ME, BrokerId(7)), 0)
            await scenario(bench)

        asyncio.run(body())

    return run


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


def test_writing_requests_are_refused_under_min_isr_before_a_group_decides(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group("g", "m1")
        await bench.flushed(bench.commit(5, group="other"))
        end, shard = bench.replica.log.log_end_offset, bench.shard
        bench.replica.min_insync_replicas = 2
        sync = SyncRequest("m1", None, generation, None, None, {"m1": b"mine"})
        assert await refused(bench.commit(6, group="other")) is UNAVAILABLE
        assert await refused(shard.join("g", join_request(new_member_id="m2"))) is UNAVAILABLE
        assert await refused(shard.sync("g", sync)) is UNAVAILABLE
        assert await refused(shard.leave("g", [LeavingMember("m1", None)])) is UNAVAILABLE
        assert await refused(shard.delete_offsets("other", [P0])) is UNAVAILABLE
        assert await refused(shard.delete_group("other")) is UNAVAILABLE
        await turns()
        assert bench.replica.log.log_end_offset == end
        assert not bench.lost_shards
        bench.replica.min_insync_replicas = 1
        await bench.flushed(bench.commit(6, group="other"))
        assert shard.fetch_offsets("other", None, -1, None)[P0].offset == 6

    run(scenario)


def test_reads_and_heartbeats_continue_under_min_isr(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group("g", "m1")
        await bench.flushed(bench.commit(5, group="other"))
        bench.replica.min_insync_replicas = 2
        shard = bench.shard
        assert shard.heartbeat("g", "m1", None, generation) is ErrorCode.none
        assert shard.fetch_offsets("other", None, -1, None)[P0].offset == 5
        await bench.flushed(shard.confirmed())
        assert len(shard.describe("g").members) == 1

    run(scenario)


def test_a_commit_stored_on_too_few_replicas_is_an_error_and_the_shard_continues(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        task = asyncio.ensure_future(bench.commit(5))
        await turns()
        bench.replica.min_insync_replicas = 2
        assert await refused(bench.flushed(task)) is UNAVAILABLE
        assert not bench.lost_shards
        assert bench.shard.fetch_offsets("g", None, -1, None)[P0].offset == 5, "as after a reload"
        bench.replica.min_insync_replicas = 1
        await bench.flushed(bench.commit(6))
        assert bench.shard.fetch_offsets("g", None, -1, None)[P0].offset == 6

    run(scenario)


def test_a_join_stored_on_too_few_replicas_is_an_error_and_the_shard_continues(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group("g", "m1")
        sync = SyncRequest("m1", None, generation, None, None, {"m1": b"mine"})
        bench.clock.advance(20_000)
        bench.replica.min_insync_replicas = 2
        bench.shard.on_due("g")
        await bench.threads.flush()
        assert not bench.lost_shards
        assert bench.shard.describe("g").members == ()
        bench.replica.min_insync_replicas = 1
        assert (await bench.shard.sync("g", sync)).error is ErrorCode.unknown_member_id
        assert await bench.join_group("g", "m2") > generation

    run(scenario)


def test_a_minimum_above_the_number_of_replicas_counts_as_that_number(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.replica.partition.in_sync.set_replicas((ME,), 0)
        bench.replica.min_insync_replicas = 2
        await bench.flushed(bench.commit(5))
        assert bench.shard.fetch_offsets("g", None, -1, None)[P0].offset == 5

    run(scenario)
