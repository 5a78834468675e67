"""Bugs planted in the writes of share states, which seeds of the simulation show too rarely.

Each scenario holds back, fences or fails one write, and checks the invariant of share groups that the write protects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.queues import state_shard
from penstock.queues.record_states import RecordStates
from penstock.queues.state_client import ShareStateClient
from penstock.queues.state_writer import StateWriter, Stored
from penstock.state_log.shard import Shard
from support.eventually import eventually_async
from support.harness import Harness
from support.share_wire import ACCEPT, ShareMember, commits_held_back, first_take, partition_of, run

_TURNS = 50

Bug = Callable[[], AbstractContextManager[Any]]


# --- Q2: an answer follows the commit


def answer_follows_the_commit(tmp_path: Path, bug: Bug = nullcontext) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        with bug(), commits_held_back() as held:
            answer = asyncio.ensure_future(member.acknowledge("t", [(0, 9, [ACCEPT])]))
            await eventually_async(lambda: bool(held))
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            assert not answer.done(), "Q2: the answer came before the commit, a crash would take it back"
            for callback in held:
                callback(None)
            assert partition_of(await answer).error_code == 0

    run(tmp_path, scenario)


def the_writer_answers_at_once() -> AbstractContextManager[Any]:
    store = StateWriter.store

    def answered(self: StateWriter, stored: Stored | None) -> None:
        store(self, None)
        if stored is not None:
            stored(None)

    return patch.object(StateWriter, "store", answered)


def the_coordinator_answers_after_the_append() -> AbstractContextManager[Any]:
    write_for = Shard.write_for

    def answered(self: Shard[Any], waiter: Any, records: Any) -> None:
        write_for(self, waiter, records)
        self.settle(waiter, None)

    return patch.object(Shard, "write_for", answered)


def test_acknowledgement_is_answered_after_the_commit(tmp_path: Path) -> None:
    answer_follows_the_commit(tmp_path)


@pytest.mark.parametrize("bug", [the_writer_answers_at_once, the_coordinator_answers_after_the_append])
def test_acknowledgement_answered_before_the_commit_is_noticed(tmp_path: Path, bug: Bug) -> None:
    with pytest.raises(AssertionError, match="Q2"):
        answer_follows_the_commit(tmp_path, bug)


# --- Q9: a deposed leader stores nothing


def deposed_leader_is_refused(tmp_path: Path, bug: Bug = nullcontext) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        key = ShareKey(member.group, member.topic_id("t"), 0)
        states, epoch = broker.context.share.states, broker.context.replicas.get("t", 0).partition
        read = await states.read(key, epoch.leader_epoch + 1)
        assert (read.start_offset, read.batches) == (0, ())
        with bug():
            partition = partition_of(await member.acknowledge("t", [(0, 4, [ACCEPT])]))
        stored = await states.read(key, epoch.leader_epoch + 1)
        assert partition.error_code, "Q9: the deposed leader stored what its successor has not read"
        assert partition.error_code == ErrorCode.not_leader_or_follower
        assert (stored.start_offset, stored.batches) == (0, ()), "Q9: the refused write has changed the state"

    run(tmp_path, scenario)


def leader_epochs_are_not_compared() -> AbstractContextManager[Any]:
    return patch.object(state_shard, "_check_leader", lambda known, leader_epoch: None)


def test_deposed_leader_stores_nothing_after_its_successor_has_read(tmp_path: Path) -> None:
    deposed_leader_is_refused(tmp_path)


def test_write_of_a_deposed_leader_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Q9"):
        deposed_leader_is_refused(tmp_path, leader_epochs_are_not_compared)


# --- Q2: a failed write is repeated


def failed_write_is_repeated(tmp_path: Path, bug: Bug = nullcontext) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        with bug(), first_write_fails() as failures:
            one = asyncio.ensure_future(member.acknowledge("t", [(3, 3, [ACCEPT])]))
            await eventually_async(lambda: bool(failures))
            member.epoch += 1  # the first request is not answered yet
            other = await member.acknowledge("t", [(5, 5, [ACCEPT])])
            assert [partition_of(each).error_code for each in (await one, other)] == [0, 0]
        [leader] = broker.context.share.partitions.all
        leader.close(BrokerError(ErrorCode.not_leader_or_follower, "the state is loaded again"))
        again = await first_take(member)
        delivered = {offset for first, last, _ in again for offset in range(first, last + 1)}
        assert delivered.isdisjoint({3, 5}), f"Q2: {delivered & {3, 5}} were accepted and delivered again"
        assert len(delivered) == 8

    run(tmp_path, scenario)


@contextmanager
def first_write_fails() -> Iterator[list[int]]:
    """Let the first write of a share state fail; yields a list that has an item then."""
    failures: list[int] = []
    real = ShareStateClient.store_here

    def fail(self: ShareStateClient, *arguments: Any) -> bool:
        if not failures:
            failures.append(1)
            raise BrokerError(ErrorCode.coordinator_not_available, "the coordinator is away")
        return real(self, *arguments)

    with patch.object(ShareStateClient, "store_here", fail):
        yield failures


def the_changes_of_a_failed_write_are_forgotten() -> AbstractContextManager[Any]:
    return patch.object(RecordStates, "restore_changes", lambda self, update: None)


def test_accepted_records_of_a_failed_write_are_stored_later(tmp_path: Path) -> None:
    failed_write_is_repeated(tmp_path)


def test_forgotten_write_of_accepted_records_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Q2"):
        failed_write_is_repeated(tmp_path, the_changes_of_a_failed_write_are_forgotten)
