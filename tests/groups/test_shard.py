"""A shard of groups: order of commits and responses, refused appends, and reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from shard_bench import P0, P1, Bench, join_request, outside, topic, turns

from penstock.cluster.image import ImageChange
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.group import ConsumerHeartbeat, GroupKind, GroupState, LeavingMember, SyncRequest
from penstock.groups.offsets import OffsetCommit
from penstock.groups.shard import GroupShard
from penstock.model import TopicId, TopicPartition
from penstock.replication.in_sync import InSync
from support.group_commits import committing

Scenario = Callable[[Bench], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(scenario: Scenario) -> None:
        async def body() -> None:
            await scenario(Bench(tmp_path))

        asyncio.run(body())

    return run


def committed(shard: GroupShard, group: str = "g") -> dict[TopicPartition, int]:
    return {
        partition: value.offset for partition, value in shard.fetch_offsets(group, None, -1, None).items()
    }


async def refused(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


# --- commits


def test_commit_is_visible_only_after_it_is_durable(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        task = asyncio.ensure_future(bench.commit(5))
        await turns()
        assert not task.done()
        assert committed(bench.shard) == {}
        await bench.flushed(task)
        assert committed(bench.shard) == {P0: 5}

    run(scenario)


def test_commits_of_one_turn_share_a_batch_and_keep_their_order(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        order: list[int] = []

        async def commit(number: int) -> None:
            await bench.commit(number, group=f"g{number % 3}")
            order.append(number)

        tasks = [asyncio.ensure_future(commit(number)) for number in range(9)]
        await turns()
        assert bench.batches == [9]
        await bench.threads.flush()
        await asyncio.gather(*tasks)
        assert order == list(range(9))
        assert committed(bench.shard, "g2") == {P0: 8}

    run(scenario)


def test_response_without_records_waits_for_earlier_appends(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        commit = asyncio.ensure_future(bench.commit(5, group="h"))
        await turns()
        sync = asyncio.ensure_future(bench.shard.sync("g", SyncRequest("nobody", None, 1, None, None, {})))
        await turns()
        assert not sync.done()
        await bench.threads.flush()
        assert commit.done()
        assert (await sync).error is ErrorCode.unknown_member_id

    run(scenario)


def test_refused_commit_is_an_error_to_its_client_only(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flushed(bench.commit(5))
        bench.storage.full = True
        assert await refused(bench.commit(6)) is ErrorCode.coordinator_not_available
        assert committed(bench.shard) == {P0: 5}
        assert not bench.lost_shards
        bench.storage.full = False
        await bench.flushed(bench.commit(7))
        assert committed(bench.shard) == {P0: 7}

    run(scenario)


def test_refused_commit_removes_the_group_unless_another_is_pending(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        first = asyncio.ensure_future(bench.commit(5))
        await turns()
        bench.storage.full = True
        assert await refused(bench.commit(6)) is ErrorCode.coordinator_not_available
        assert await refused(bench.commit(6, group="h")) is ErrorCode.coordinator_not_available
        assert list(bench.shard.groups) == ["g"]
        await bench.flushed(first)
        assert committed(bench.shard) == {P0: 5}

    run(scenario)


def test_commit_timed_out_with_an_uncertain_in_sync_set_gets_not_coordinator(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(InSync, "is_in_doubt", True)
        late = asyncio.ensure_future(bench.commit(5))
        await turns()
        bench.clock.advance(5_000)
        bench.shard.on_due(None)
        assert await refused(late) is ErrorCode.not_coordinator

    run(scenario)


def test_slow_commit_times_out_and_is_visible_after_it_is_durable(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        late = asyncio.ensure_future(bench.commit(5))
        await turns()
        bench.clock.advance(3_000)
        in_time = asyncio.ensure_future(bench.commit(6, group="h"))
        await turns()
        bench.clock.advance(2_000)
        bench.shard.on_due(None)
        assert await refused(late) is ErrorCode.request_timed_out
        assert not in_time.done()
        await bench.flushed(in_time)
        assert committed(bench.shard) == {P0: 5}

    run(scenario)


def test_commit_without_a_member_creates_a_group_and_one_with_a_member_does_not(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        member = OffsetCommit("g", "m1", None, 3, outside(5).offsets)
        assert await refused(committing(bench.shard, member)) is ErrorCode.illegal_generation
        assert "g" not in bench.shard.groups
        await bench.flushed(bench.commit(5))
        assert bench.shard.groups["g"].state is GroupState.EMPTY

    run(scenario)


def test_commit_with_member_id_but_no_generation_counts_as_without_membership(run: Run) -> None:
    """A consumer of the consumer protocol that assigns partitions by hand: it has a member id and joins no
    group.
    """

    async def scenario(bench: Bench) -> None:
        assert bench.shard.fetch_offsets("g", "m1", -1, [P0]) == {}
        for offset in (5, 6):
            mine = OffsetCommit("g", "m1", None, -1, outside(offset).offsets)
            await bench.flushed(committing(bench.shard, mine))
        assert committed(bench.shard) == {P0: 6}

    run(scenario)


def test_fetch_of_a_group_that_is_not_there_finds_nothing_unless_a_member_asks(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        assert committed(bench.shard) == {}
        with pytest.raises(BrokerError) as caught:
            bench.shard.fetch_offsets("g", "m1", 3, [P0])
        assert caught.value.code is ErrorCode.group_id_not_found

    run(scenario)


# --- members


def test_member_joins_commits_and_leaves(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group()
        assert bench.shard.heartbeat("g", "m1", None, generation) is ErrorCode.none
        mine = OffsetCommit("g", "m1", None, generation, outside(5).offsets)
        await bench.flushed(committing(bench.shard, mine))
        stale = OffsetCommit("g", "m1", None, generation - 1, outside(6).offsets)
        assert await refused(committing(bench.shard, stale)) is ErrorCode.illegal_generation
        left = await bench.flushed(bench.shard.leave("g", [LeavingMember("m1", None)]))
        assert left.errors == (ErrorCode.none,)
        assert bench.shard.describe("g").state is GroupState.EMPTY
        assert committed(bench.shard) == {P0: 5}

    run(scenario)


def test_silent_member_is_removed_when_its_session_expires(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        bench.clock.advance(9_999)
        bench.shard.on_due("g")
        assert bench.shard.describe("g").members
        bench.clock.advance(2)
        bench.shard.on_due("g")
        assert not bench.shard.describe("g").members

    run(scenario)


@pytest.mark.parametrize("field", ["member_id", "protocol_type", "client_id"])
def test_name_longer_than_the_log_can_hold_is_refused(run: Run, field: str) -> None:
    async def scenario(bench: Bench) -> None:
        change: dict[str, Any] = {field: "x" * 10_000}
        request = replace(join_request(), **change)
        assert await refused(bench.shard.join("g", request)) is ErrorCode.invalid_request

    run(scenario)


@pytest.mark.parametrize("change", [{"member_id": "stranger"}, {"session_timeout_ms": 1}])
def test_refused_join_leaves_no_group_behind(run: Run, change: dict[str, Any]) -> None:
    async def scenario(bench: Bench) -> None:
        refusal = await bench.shard.join("g", join_request(**change))
        assert refusal.error is not ErrorCode.none
        assert not bench.shard.groups

    run(scenario)


def test_group_is_removed_when_its_only_pending_member_expires(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        answer = await bench.shard.join("g", join_request(requires_known_member_id=True))
        assert answer.error is ErrorCode.member_id_required
        assert list(bench.shard.groups) == ["g"]
        bench.clock.advance(10_001)
        bench.shard.on_due("g")
        assert not bench.shard.groups

    run(scenario)


def test_empty_group_changes_its_protocol_and_keeps_its_offsets(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        await bench.flushed(bench.shard.leave("g", [LeavingMember("m1", None)]))
        await bench.flushed(bench.commit(5))
        await bench.flushed(bench.shard.consumer_heartbeat("g", consumer_heartbeat(0)))
        before = bench.shard.groups["g"].kind
        assert before is GroupKind.CONSUMER
        await bench.flushed(bench.shard.consumer_heartbeat("g", consumer_heartbeat(-1)))
        await bench.join_group()
        assert bench.shard.groups["g"].kind is GroupKind.CLASSIC
        shard = await bench.reload()
        assert shard.groups["g"].kind is GroupKind.CLASSIC
        assert committed(shard) == {P0: 5}

    run(scenario)


def test_consumer_heartbeat_to_a_group_that_is_not_there_must_begin_with_epoch_0(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        work = bench.shard.consumer_heartbeat("g", consumer_heartbeat(3))
        assert await refused(work) is ErrorCode.group_id_not_found

    run(scenario)


def consumer_heartbeat(epoch: int) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "m1", epoch, None, None, "c", "/h", 10_000, frozenset({"orders"}), None, None, {}
    )


# --- refused appends


def test_reload_after_a_refused_step_restores_committed_state(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group()
        await bench.flushed(bench.commit(5, group="h"))
        before = bench.shard.describe("g")
        bench.storage.full = True
        leave = bench.shard.leave("g", [LeavingMember("m1", None)])
        assert await refused(leave) is ErrorCode.coordinator_not_available
        assert bench.lost_shards == [bench.shard]
        assert not bench.shard.has_failed
        assert await refused(bench.commit(6)) is ErrorCode.coordinator_not_available
        bench.storage.full = False
        shard = await bench.reload()
        assert shard.describe("g") == before
        assert shard.heartbeat("g", "m1", None, generation) is ErrorCode.none
        assert committed(shard, "h") == {P0: 5}

    run(scenario)


def test_request_waiting_for_a_rebalance_fails_when_the_shard_closes(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        waiting = asyncio.ensure_future(bench.shard.join("g", join_request(new_member_id="m2")))
        await turns()
        bench.shard.close(ErrorCode.not_coordinator)
        assert (await waiting).error is ErrorCode.not_coordinator

    run(scenario)


def test_closed_shard_appends_nothing_and_refuses_every_request(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        collected = asyncio.ensure_future(bench.commit(5))
        await asyncio.sleep(0)
        bench.shard.close(ErrorCode.not_coordinator)
        assert await refused(collected) is ErrorCode.not_coordinator
        await bench.threads.flush()
        assert bench.batches == []
        assert await refused(bench.commit(6)) is ErrorCode.not_coordinator
        with pytest.raises(BrokerError):
            bench.shard.fetch_offsets("g", None, -1, None)

    run(scenario)


def test_closed_shard_releases_all_memory(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        await bench.flushed(bench.commit(5, group="h"))
        bench.storage.full = True
        leave = asyncio.ensure_future(bench.shard.leave("g", [LeavingMember("m1", None)]))
        await asyncio.sleep(0)
        commit = asyncio.ensure_future(bench.commit(6, group="h"))
        assert await refused(leave) is ErrorCode.coordinator_not_available
        assert await refused(commit) is ErrorCode.coordinator_not_available
        assert not bench.shard.groups
        assert len(bench.shard.offsets) == 0

    run(scenario)


def test_failed_log_closes_its_shard(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flushed(bench.commit(5))
        bench.replica.log.fail(OSError("broken"))
        assert await refused(bench.commit(6)) is ErrorCode.coordinator_not_available
        assert bench.lost_shards == [bench.shard]
        assert bench.shard.has_failed

    run(scenario)


def test_failed_fsync_fails_waiting_and_later_requests(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group()
        first, second = (asyncio.ensure_future(bench.commit(5, group=group)) for group in "hi")
        await turns()
        bench.replica.on_flush_failed(OSError("broken"))
        assert await refused(first) is ErrorCode.coordinator_not_available
        assert await refused(second) is ErrorCode.coordinator_not_available
        assert bench.lost_shards == [bench.shard]
        with pytest.raises(BrokerError):
            bench.shard.heartbeat("g", "m1", None, generation)

    run(scenario)


# --- deletion and expiry


def test_deleted_group_stays_deleted_with_its_offsets(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flushed(bench.commit(5))
        on_its_way = asyncio.ensure_future(bench.commit(6, partition=P1))
        await turns()
        deletion = asyncio.ensure_future(bench.shard.delete_group("g"))
        await bench.threads.flush()
        await asyncio.gather(on_its_way, deletion)
        assert committed(bench.shard) == {}
        assert "g" not in bench.shard.groups
        shard = await bench.reload()
        assert committed(shard) == {}
        assert "g" not in shard.groups

    run(scenario)


def test_delete_of_a_group_with_members_or_an_unknown_group_is_refused(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.join_group()
        assert await refused(bench.shard.delete_group("g")) is ErrorCode.non_empty_group
        assert await refused(bench.shard.delete_group("h")) is ErrorCode.group_id_not_found

    run(scenario)


def test_offsets_of_a_topic_that_is_read_are_not_deleted(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group()
        other = TopicPartition("payments", 0)
        bench.image = bench.image.with_topics([topic("payments", TopicId(UUID(int=2)))])
        commit = OffsetCommit(
            "g",
            "m1",
            None,
            generation,
            {**outside(5).offsets, **outside(6, other, TopicId(UUID(int=2))).offsets},
        )
        await bench.flushed(committing(bench.shard, commit))
        errors = await bench.flushed(bench.shard.delete_offsets("g", [P0, other]))
        assert errors == {P0: ErrorCode.group_subscribed_to_topic, other: ErrorCode.none}
        assert committed(bench.shard) == {P0: 5}
        assert committed(await bench.reload()) == {P0: 5}

    run(scenario)


def test_deletion_of_a_topic_appends_tombstones_of_its_offsets(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flushed(bench.commit(5))
        before = bench.image
        again = topic("orders", TopicId(UUID(int=9)))
        bench.image = before.without_topics(["orders"]).with_topics([again])
        bench.shard.on_topics(ImageChange(before, bench.image, frozenset({"orders"})))
        await bench.threads.flush()
        bench.image = before
        assert committed(await bench.reload()) == {}

    run(scenario)


def test_sweep_removes_expired_offsets_and_then_the_group(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flushed(bench.commit(5))
        week_ms = 10_080 * 60_000
        bench.clock.advance(week_ms - 1)
        bench.shard.sweep("g")
        await bench.threads.flush()
        assert committed(bench.shard) == {P0: 5}
        bench.clock.advance(1)
        bench.shard.sweep("g")
        await bench.threads.flush()
        assert committed(bench.shard) == {}
        bench.shard.sweep("g")
        await bench.threads.flush()
        assert "g" not in bench.shard.groups
        assert "g" not in (await bench.reload()).groups

    run(scenario)


def test_sweep_keeps_a_group_with_a_pending_commit(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        commit = asyncio.ensure_future(bench.commit(5))
        await turns()
        bench.shard.sweep("g")
        await bench.flushed(commit)
        assert committed(bench.shard) == {P0: 5}
        assert "g" in bench.shard.groups

    run(scenario)
