"""Bugs in finding and repairing damage, planted on purpose: each scenario passes, and fails with its bug."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from test_repair import (
    COUNT,
    ORDERS,
    SCRUB,
    all_copied,
    change,
    contents,
    repaired,
    replica_of,
    started,
    stored,
)

from penstock.model import BrokerId
from penstock.replication.in_sync import InSync
from penstock.server.repairing import Repairing
from penstock.storage import follower_batches, scrub
from penstock.storage.repair import Patch
from support.eventually import eventually_async
from support.whole_brokers import Brokers, run

Scenario = Callable[[Brokers], Awaitable[None]]


def check(tmp_path: Path, scenario: Scenario, **settings: str) -> None:
    run(tmp_path, scenario, **SCRUB | settings)


def check_is_noticed(tmp_path: Path, scenario: Scenario, verdict: str, **settings: str) -> None:
    with pytest.raises(AssertionError, match=verdict):
        check(tmp_path, scenario, **settings)


# --- the scrub


def scrubbed_after_a_change(tmp_path: Path) -> Scenario:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        change(tmp_path, 2, 5)
        scrubbing = brokers.running[2]._maintenance._scrubbing
        passes = scrubbing.passes
        await eventually_async(lambda: scrubbing.passes >= passes + 2)
        assert scrubbing.damaged_ranges == 1, "the scrub overlooked damage"

    return scenario


def test_scrub_finds_a_changed_byte_of_a_follower(tmp_path: Path) -> None:
    check(tmp_path, scrubbed_after_a_change(tmp_path))


def test_scrub_that_ignores_a_mismatch_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "crc_matches", lambda *_: True)
    check_is_noticed(tmp_path, scrubbed_after_a_change(tmp_path), "overlooked damage")


# --- the repair


def repaired_after_a_change(tmp_path: Path) -> Scenario:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        before = contents(tmp_path, [1, 2])
        change(tmp_path, 2, 5)
        await eventually_async(lambda: repaired(brokers) > 0)
        assert contents(tmp_path, [1, 2]) == before, "a repaired replica differs"

    return scenario


@pytest.mark.slow
def test_repaired_replica_has_the_bytes_of_the_others(tmp_path: Path) -> None:
    check(tmp_path, repaired_after_a_change(tmp_path))


@pytest.mark.slow
def test_repair_that_writes_nothing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patch, "work", lambda _: None)
    check_is_noticed(tmp_path, repaired_after_a_change(tmp_path), "a repaired replica differs")


# --- appends of a follower


def fetched_from_a_damaged_leader(tmp_path: Path) -> Scenario:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        change(tmp_path, 1, 5)
        await brokers.stop(2)
        shutil.rmtree(tmp_path / "2")
        await brokers.start(2)
        await eventually_async(lambda: replica_of(brokers, 2))
        log, alarms = replica_of(brokers, 2).log, brokers.running[2]._context.alarms
        await eventually_async(lambda: alarms.present or log.log_end_offset == COUNT)
        assert log.log_end_offset == 5, "a follower appended a damaged batch"

    return scenario


def test_follower_appends_no_batch_with_a_wrong_crc(tmp_path: Path) -> None:
    check(tmp_path, fetched_from_a_damaged_leader(tmp_path), log_scrub_interval_ms="0")


def test_follower_that_checks_no_crc_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_batches, "crc_matches", lambda *_: True)
    scenario = fetched_from_a_damaged_leader(tmp_path)
    check_is_noticed(tmp_path, scenario, "appended a damaged batch", log_scrub_interval_ms="0")


# --- the in-sync set


def returned_without_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    async def repair_nothing(_: Repairing) -> None:
        """Keep the damage, so that the leader meets a follower with it."""

    monkeypatch.setattr(Repairing, "run", repair_nothing)

    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        replica, number = replica_of(brokers, 1), BrokerId(2)
        partition = replica.partition
        former_epoch = partition.in_sync.followers[number].broker_epoch
        await brokers.stop(2)
        stored(tmp_path, 2)[1].path.unlink()
        await brokers.start(2)
        await eventually_async(lambda: partition.in_sync.followers[number].broker_epoch > former_epoch)
        await eventually_async(lambda: partition.in_sync.followers[number].log_end == COUNT)
        joined = brokers.members(1, ORDERS) - {1}
        if partition.in_sync.may_join(number, replica.log.high_watermark):
            joined |= {number}
        assert joined == set(), "a damaged replica is in sync"

    return scenario


def test_damaged_follower_is_not_in_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path, returned_without_a_segment(tmp_path, monkeypatch))


def test_damaged_follower_that_joins_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(*_: Any, is_damaged: bool) -> None:
        """Let the leader ignore that a follower reports damage."""

    monkeypatch.setattr(InSync, "on_damage", forget)
    scenario = returned_without_a_segment(tmp_path, monkeypatch)
    check_is_noticed(tmp_path, scenario, "a damaged replica is in sync")
