"""Bugs that are planted in the serving of share groups one by one: a scenario notices each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import test_share_fetch as fetching
import test_share_states as states

from penstock.queues import state_shard
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partition import SharePartition
from penstock.queues.state_client import ShareStateClient
from penstock.queues.state_writer import StateWriter, Stored
from support.harness import Harness
from support.share_wire import ACCEPT, ShareMember, first_take, partition_of, run


def test_state_of_a_deposed_leader_accepted_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_shard, "_check_leader", lambda known, leader_epoch: None)
    with pytest.raises(pytest.fail.Exception):
        states.test_write_of_a_deposed_leader_is_refused_after_its_successor_has_read(tmp_path)


@pytest.mark.slow
def test_lost_wake_up_after_lock_expiry_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def expire(self: ShareLeader, partition: SharePartition, now_ms: int) -> None:
        if partition.expire(now_ms):
            self.store(None)

    monkeypatch.setattr(ShareLeader, "_expire", expire)
    with pytest.raises(TimeoutError):
        fetching.test_lock_expires_and_wakes_a_waiting_fetch(tmp_path)


def answered_when_durable(tmp_path: Path) -> None:
    """An acknowledgement has no answer while its write is not stored."""

    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        may_write = asyncio.Event()
        real = ShareStateClient.write

        async def write(self: ShareStateClient, *arguments: Any) -> None:
            await may_write.wait()
            await real(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShareStateClient, "store_here", lambda *_: False)
            patch.setattr(ShareStateClient, "write", write)
            waiting = asyncio.ensure_future(member.acknowledge("t", [(0, 9, [ACCEPT])]))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            may_write.set()
            assert partition_of(await waiting).error_code == 0

    run(tmp_path, scenario)


def test_acknowledgement_is_answered_when_it_is_durable(tmp_path: Path) -> None:
    answered_when_durable(tmp_path)


def test_answer_before_the_commit_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = StateWriter.store

    def store(self: StateWriter, stored: Stored | None) -> None:
        real(self, None)
        if stored is not None:
            stored(None)

    monkeypatch.setattr(StateWriter, "store", store)
    with pytest.raises(AssertionError):
        answered_when_durable(tmp_path)
