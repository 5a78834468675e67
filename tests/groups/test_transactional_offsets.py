"""Offsets in transactions: visible after the marker, unstable before, fenced by generation, restored by a
reload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_bench import ORDERS, P0, P1, Bench, outside, turns

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.groups.group import LeavingMember
from penstock.groups.offsets import OffsetCommit, Offsets
from penstock.groups.records import OffsetKey, OffsetValue
from penstock.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.records.control import Marker
from support.group_commits import committing


class Stage:
    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.verdict = ErrorCode.none
        self.asked = 0

    async def verify(self) -> ErrorCode:
        self.asked += 1
        return self.verdict

    def send(
        self,
        offset: int,
        *,
        producer_id: int = 1,
        epoch: int = 0,
        partition: TopicPartition = P0,
        commit: OffsetCommit | None = None,
        group: str = "g",
        connection: int = 1,
    ) -> asyncio.Future[None]:
        return self.bench.shard.transactional.commit(
            commit or outside(offset, partition, group=group),
            ProducerId(producer_id),
            ProducerEpoch(epoch),
            connection,
            self.verify,
        )

    async def commit(self, offset: int, **options: Any) -> None:
        await self.bench.flushed(self.send(offset, **options))

    async def refusal(self, offset: int, **options: object) -> ErrorCode:
        with pytest.raises(BrokerError) as refused:
            await self.commit(offset, **options)
        return refused.value.code

    async def end(
        self, producer_id: int = 1, epoch: int = 0, *, commit: bool = True, bump: bool = False
    ) -> None:
        marker = Marker(producer_id, epoch + bump, commit, 0)
        self.bench.replica.append_marker(marker, is_epoch_new=bump, now_ms=self.bench.wall_ms())
        await self.bench.threads.flush()

    def fetched(self, partition: TopicPartition = P0, group: str = "g") -> int | None:
        found = self.bench.shard.fetch_offsets(group, None, -1, [partition]).get(partition)
        return None if found is None else found.offset

    def is_unstable(self, partition: TopicPartition = P0, group: str = "g") -> bool:
        return partition in self.bench.shard.offsets.unstable(group)


def run(scenario: Callable[[Stage], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        await scenario(Stage(directory))

    asyncio.run(main())


def test_offsets_are_seen_when_the_transaction_is_committed(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.bench.flushed(stage.bench.commit(3))
        await stage.commit(7)
        assert (stage.fetched(), stage.is_unstable()) == (3, True)
        await stage.end(commit=True)
        assert (stage.fetched(), stage.is_unstable()) == (7, False)

    run(scenario, tmp_path)


def test_offsets_of_an_aborted_transaction_are_never_seen(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(7)
        await stage.end(commit=False)
        assert (stage.fetched(), stage.is_unstable()) == (None, False)
        assert "g" not in stage.bench.shard.groups, "nothing is left of a group that never was"

    run(scenario, tmp_path)


def test_an_offset_is_unstable_before_it_is_committed_to_the_log(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        sent = stage.send(7)
        await turns()
        assert not sent.done()
        assert stage.is_unstable()
        await stage.bench.threads.flush()
        await sent
        assert stage.is_unstable()
        assert not stage.is_unstable(P1)

    run(scenario, tmp_path)


def test_transaction_coordinator_is_asked_once_per_transaction(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(1)
        await stage.commit(2)
        assert stage.asked == 1
        await stage.end()
        await stage.commit(3)
        assert stage.asked == 2
        assert stage.fetched() == 2

    run(scenario, tmp_path)


def test_offsets_outside_of_a_transaction_are_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.verdict = ErrorCode.invalid_txn_state
        assert await stage.refusal(7) is ErrorCode.invalid_txn_state
        assert not stage.is_unstable()
        assert stage.bench.replica.log.log_end_offset == 0
        assert "g" not in stage.bench.shard.groups

    run(scenario, tmp_path)


def test_a_fenced_producer_commits_no_offsets(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(7)
        await stage.end(commit=False, bump=True)
        assert await stage.refusal(8) is ErrorCode.invalid_producer_epoch
        assert not stage.is_unstable()

    run(scenario, tmp_path)


def test_a_member_of_an_older_generation_commits_no_offsets(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        generation = await stage.bench.join_group()
        offsets = outside(7).offsets
        await stage.commit(7, commit=OffsetCommit("g", "m1", None, generation, offsets))
        old = OffsetCommit("g", "m1", None, generation - 1, offsets)
        assert await stage.refusal(7, commit=old) is ErrorCode.illegal_generation
        stranger = OffsetCommit("g", "m2", None, generation, offsets)
        assert await stage.refusal(7, commit=stranger) is ErrorCode.unknown_member_id
        nobody = OffsetCommit("other", "m1", None, generation, outside(7, group="other").offsets)
        assert await stage.refusal(7, commit=nobody) is ErrorCode.illegal_generation

    run(scenario, tmp_path)


def test_anonymous_client_may_commit_in_a_transaction(tmp_path: Path) -> None:
    """Clients before version 3 of the request send no member."""

    async def scenario(stage: Stage) -> None:
        await stage.bench.join_group()
        await stage.commit(7)
        await stage.end()
        assert stage.fetched() == 7

    run(scenario, tmp_path)


def test_member_is_checked_after_the_verification(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        generation = await stage.bench.join_group()
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        async def verify() -> ErrorCode:
            return await answer

        mine = OffsetCommit("g", "m1", None, generation, outside(7).offsets)
        sent = stage.bench.shard.transactional.commit(mine, ProducerId(1), ProducerEpoch(0), 1, verify)
        await turns()
        await stage.bench.flushed(stage.bench.shard.leave("g", [LeavingMember("m1", None)]))
        answer.set_result(ErrorCode.none)
        with pytest.raises(BrokerError) as refused:
            await stage.bench.flushed(sent)
        assert refused.value.code is ErrorCode.unknown_member_id

    run(scenario, tmp_path)


def test_late_offsets_on_an_older_connection_are_refused(tmp_path: Path) -> None:
    """The offsets were delayed while the producer sent them again, and later ones, over a newer connection."""

    async def scenario(stage: Stage) -> None:
        await stage.commit(10, connection=2)
        await stage.end()
        await stage.commit(20, connection=2)
        with pytest.raises(ProtocolError):
            await stage.commit(10, connection=1)
        await stage.end()
        assert stage.fetched() == 20
        await stage.commit(30, connection=3)
        await stage.end()
        assert stage.bench.shard.transactional._connections == {}

    run(scenario, tmp_path)


def test_successor_is_accepted_on_an_older_connection_than_its_zombie(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(10, epoch=0, connection=5)
        stage.bench.replica.append_marker(Marker(1, 1, False, 0), is_epoch_new=False, now_ms=0)
        await stage.commit(20, epoch=2, connection=2)
        assert await stage.refusal(15, epoch=0, connection=6) is ErrorCode.invalid_producer_epoch
        await stage.commit(30, epoch=2, connection=2)
        await stage.end(epoch=2)
        assert stage.fetched() == 30

    run(scenario, tmp_path)


def test_later_offset_record_in_the_log_replaces_the_earlier(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(7)
        await stage.bench.flushed(stage.bench.commit(9))
        assert not stage.is_unstable()
        await stage.end()
        assert stage.fetched() == 9
        await stage.commit(1, producer_id=1)
        await stage.commit(2, producer_id=2)
        await stage.end(producer_id=2)
        await stage.end(producer_id=1)
        assert stage.fetched() == 2
        await stage.bench.reload()
        assert stage.fetched() == 2

    run(scenario, tmp_path)


@pytest.mark.parametrize("commit", [True, False])
def test_pending_transactional_offsets_survive_a_reload(tmp_path: Path, commit: bool) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.bench.flushed(stage.bench.commit(3))
        await stage.commit(7)
        await stage.commit(8, partition=P1, group="other")
        await stage.bench.reload()
        assert (stage.fetched(), stage.is_unstable()) == (3, True)
        assert stage.is_unstable(P1, "other")
        assert "other" in stage.bench.shard.groups
        await stage.end(commit=commit)
        assert stage.fetched() == (7 if commit else 3)
        assert stage.fetched(P1, "other") == (8 if commit else None)
        await stage.bench.reload()
        assert stage.fetched() == (7 if commit else 3)
        assert not stage.is_unstable()

    run(scenario, tmp_path)


def test_deletion_of_a_group_drops_its_pending_transactional_offsets(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.bench.flushed(stage.bench.commit(3))
        await stage.commit(7, partition=P1)
        await stage.bench.flushed(stage.bench.shard.delete_group("g"))
        await stage.end()
        assert (stage.fetched(P0), stage.fetched(P1)) == (None, None)
        await stage.bench.reload()
        assert (stage.fetched(P0), stage.fetched(P1)) == (None, None)

    run(scenario, tmp_path)


def test_an_offset_does_not_expire_while_a_transaction_may_commit_it_anew(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.bench.flushed(stage.bench.commit(3))
        stage.bench.clock.advance(30 * 86_400_000)
        await stage.commit(7)
        stage.bench.shard.sweep("g")
        await stage.bench.threads.flush()
        await stage.end()
        assert stage.fetched() == 7

    run(scenario, tmp_path)


def test_transactional_offsets_are_appended_behind_earlier_group_records(tmp_path: Path) -> None:
    """Records of the same turn that were decided earlier come first in the log."""

    async def scenario(stage: Stage) -> None:
        await stage.commit(1)
        plain = committing(stage.bench.shard, outside(5))
        stage.send(6)
        await stage.bench.threads.flush()
        await plain
        await stage.end()
        assert stage.fetched() == 6
        await stage.bench.reload()
        assert stage.fetched() == 6

    run(scenario, tmp_path)


def test_closed_shard_receives_no_markers(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.commit(7)
        old = stage.bench.shard
        old.close(ErrorCode.not_coordinator)
        assert stage.bench.replica.on_marker is None
        await stage.bench.reload()
        old.close(ErrorCode.not_coordinator)
        old.transactional.close()
        await stage.end()
        assert stage.fetched() == 7

    run(scenario, tmp_path)


def test_broker_that_resigned_refuses_offsets(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.verdict = ErrorCode.none
        sent = stage.send(7)
        stage.bench.replica.become_follower(LeaderEpoch(1))
        with pytest.raises(BrokerError) as refused:
            await stage.bench.flushed(sent)
        assert refused.value.code is ErrorCode.not_coordinator

    run(scenario, tmp_path)


# --- against a model

Event = tuple[str, int, int]
Events = st.lists(
    st.tuples(
        st.sampled_from(["in transaction", "plain", "commit", "abort", "forget"]),
        st.integers(1, 3),  # producer
        st.integers(0, 2),  # partition
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(events=Events)
def test_newest_committed_record_is_the_offset(events: list[Event]) -> None:
    offsets = Offsets()
    records: list[
        tuple[int, int | None, int | None]
    ] = []  # partition, value, producer of an open transaction
    for place, (kind, producer_id, index) in enumerate(events):
        key, value = OffsetKey("g", "orders", index), OffsetValue(place, -1, "", ORDERS, 0)
        if kind == "in transaction":
            offsets.transactional.add(producer_id, key, value)
            records.append((index, place, producer_id))
        elif kind in ("plain", "forget"):
            offsets.apply(key, value if kind == "plain" else None)
            records.append((index, place if kind == "plain" else None, None))
        else:
            offsets.end_transaction(producer_id, is_commit=kind == "commit")
            records = [
                (partition, offset, None if owner == producer_id else owner)
                for partition, offset, owner in records
                if owner != producer_id or kind == "commit"
            ]
    image_less = {key: value for _, _, key, value in offsets.all()}
    expected = {}
    for partition, offset, owner in records:
        if owner is None:
            expected[partition] = offset
    assert {index: value.offset for index, value in image_less.items()} == {
        index: offset for index, offset in expected.items() if offset is not None
    }
    newest_settled = {
        partition: place for place, (partition, _, owner) in enumerate(records) if owner is None
    }
    unstable = {
        TopicPartition("orders", partition)
        for place, (partition, _, owner) in enumerate(records)
        if owner is not None and place > newest_settled.get(partition, -1)
    }
    assert offsets.unstable("g") == unstable
    assert offsets.has("g") == bool(unstable or image_less)
