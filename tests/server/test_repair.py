"""Damaged records in whole brokers: the scrub finds them, and they are repaired from another replica."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.observability.alarms import AlarmKind
from penstock.replication.replica import Replica
from penstock.server import repairing
from penstock.storage.damage import DamagedRange
from penstock.storage.log_manager import LogManager
from support.changed_bytes import Segment, segments_of
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.whole_brokers import Brokers, run

ORDERS = "orders"
COUNT = 40
SCRUB = {
    "log_scrub_interval_ms": "50",
    "log_flush_offset_checkpoint_interval_ms": "50",
    "replica_lag_time_max_ms": "30000",
}


async def started(brokers: Brokers, count: int, **configs: str) -> None:
    for number in range(1, count + 1):
        await brokers.start(number)
    await eventually_async(
        lambda: all(len(broker._metadata.image.brokers) == count for broker in brokers.running.values())
    )
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    new = new_topic(
        ORDERS, assignments=[(0, list(range(1, count + 1)))], configs={"segment.bytes": "1024", **settings}
    )
    first = Harness(brokers.running[1])
    response = await first.ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
    assert response.topics[0].error_code == 0, response.topics[0].error_message
    for broker in brokers.running.values():
        await eventually_async(partial(broker._context.replicas.get_any, ORDERS, 0))
    for number in range(COUNT):
        await first.append(ORDERS, b"value-%d;" % number)


def replica_of(brokers: Brokers, number: int) -> Replica:
    return brokers.running[number]._context.replicas.get_any(ORDERS, 0)


def stored(directory: Path, number: int) -> list[Segment]:
    return segments_of(directory / str(number), ORDERS)


def change(directory: Path, number: int, offset: int) -> None:
    """Change the value at an offset on the disk of one broker, running or not."""
    text = b"value-%d;" % offset
    [segment] = [each for each in stored(directory, number) if text in each.content]
    with segment.path.open("r+b") as file:
        file.seek(segment.content.index(text))
        file.write(b"VALUE")


def has_copied(brokers: Brokers, number: int) -> bool:
    log = replica_of(brokers, number).log
    return log.log_end_offset == log.high_watermark == COUNT


async def all_copied(brokers: Brokers) -> None:
    for number in brokers.running:
        await eventually_async(partial(has_copied, brokers, number))


def contents(directory: Path, numbers: Sequence[int]) -> set[bytes]:
    """Stored bytes of each broker."""
    return {b"".join(segment.content for segment in stored(directory, number)) for number in numbers}


def repaired(brokers: Brokers) -> int:
    return sum(each._maintenance._repairing.repaired_ranges for each in brokers.running.values())


def damage_of(brokers: Brokers, number: int) -> list[tuple[int, int]]:
    return [(each.base_offset, each.end_offset) for each in replica_of(brokers, number).log.damage]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [[(1, 5)], [(2, 5)], [(2, 0)], [(1, 5), (2, 20)], [(1, 20), (2, 5), (3, 9)], [(2, 5), (3, 5)]],
    ids=["leader", "follower", "first record", "two places", "three places", "two followers alike"],
)
def test_damaged_replicas_become_equal_to_whole_ones(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 3)
        await all_copied(brokers)
        [before] = contents(tmp_path, [1, 2, 3])
        for number, offset in changes:
            change(tmp_path, number, offset)
        await eventually_async(lambda: repaired(brokers) == len(changes))
        await eventually_async(
            lambda: not any(each._context.alarms.present for each in brokers.running.values())
        )
        assert contents(tmp_path, [1, 2, 3]) == {before}
        assert brokers.members(1, ORDERS) == {1, 2, 3}
        assert [damage_of(brokers, number) for number in (1, 2, 3)] == [[], [], []]

    run(tmp_path, scenario, **SCRUB)


@pytest.mark.slow
def test_records_damaged_in_all_replicas_are_never_removed(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 3)
        await all_copied(brokers)
        for number in (1, 2, 3):
            change(tmp_path, number, 5)
        before = contents(tmp_path, [1, 2, 3])
        await eventually_async(lambda: all(damage_of(brokers, number) == [(5, 6)] for number in (1, 2, 3)))
        await eventually_async(lambda: any("could not be repaired" in line for line in brokers.lines))
        log = replica_of(brokers, 1).log
        with pytest.raises(CorruptLog):
            log.read(Offset(5), 100, below=log.high_watermark, at_least_one=True, wait=True)
        assert len(log.read(Offset(6), 100, below=log.high_watermark, at_least_one=True, wait=True)) > 0
        assert contents(tmp_path, [1, 2, 3]) == before
        name = replica_of(brokers, 1).name
        await eventually_async(lambda: brokers.running[1]._context.alarms.has(AlarmKind.DAMAGED_LOG, name))
        health = brokers.running[1]._health()
        assert health.is_ok
        assert health.is_degraded
        await Harness(brokers.running[1]).append(ORDERS, b"more")

    run(tmp_path, scenario, **SCRUB)


def test_follower_refuses_a_damaged_batch_and_takes_it_when_it_is_repaired(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        good = next(each for each in stored(tmp_path, 1) if b"value-5;" in each.content)
        whole = good.content
        change(tmp_path, 1, 5)
        await brokers.stop(2)
        shutil.rmtree(tmp_path / "2")
        await brokers.start(2)
        await eventually_async(lambda: brokers.running[2]._context.alarms.present)
        log = replica_of(brokers, 2).log
        [alarm] = brokers.running[2]._context.alarms.present
        assert (alarm.kind, alarm.partition.topic) == (AlarmKind.CORRUPT_FETCH, ORDERS)
        assert "offset 5" in alarm.detail
        assert log.log_end_offset == 5
        good.path.write_bytes(whole)
        await eventually_async(
            lambda: log.log_end_offset == COUNT and not brokers.running[2]._context.alarms.present
        )
        assert len(contents(tmp_path, [1, 2])) == 1

    run(tmp_path, scenario, log_scrub_interval_ms="0", replica_lag_time_max_ms="30000")


def lose_at_start(monkeypatch: pytest.MonkeyPatch, number: int, *ranges: tuple[int, int]) -> None:
    """Make a broker find missing records at its next start, as recovery does after the loss of a segment."""
    open_logs = LogManager.open

    def lacking(manager: LogManager, *arguments: Any) -> None:
        open_logs(manager, *arguments)
        for log in manager:
            if manager._node_id == number and log.topic_partition.topic == ORDERS:
                for base, end in ranges:
                    log.add_damage(DamagedRange(Offset(base), Offset(end), "a segment is missing"))
                manager.lost_partitions |= {(log.topic_id, 0)}

    monkeypatch.setattr(LogManager, "open", lacking)
    monkeypatch.setattr(repairing, "extent_of", lambda log, damaged: None)


@pytest.mark.slow
def test_follower_that_lacks_records_is_fetched_again_before_it_is_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        await brokers.stop(2)
        lose_at_start(monkeypatch, 2, (10, 20), (25, 26))
        await brokers.start(2)
        assert brokers.members(2, ORDERS) == {1}
        await eventually_async(lambda: any("fetching damaged log again" in line for line in brokers.lines))
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        log = replica_of(brokers, 2).log
        assert (log.damage, log.log_end_offset) == ((), COUNT)
        assert len(contents(tmp_path, [1, 2])) == 1

    run(tmp_path, scenario, **SCRUB)


@pytest.mark.slow
def test_follower_keeps_its_records_where_the_leader_lacks_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        await brokers.stop(2)
        change(tmp_path, 1, 30)
        lose_at_start(monkeypatch, 2, (10, 20))
        await brokers.start(2)
        await eventually_async(lambda: any("could not be fetched again" in line for line in brokers.lines))
        log = replica_of(brokers, 2).log
        assert log.log_end_offset == COUNT
        assert damage_of(brokers, 2) == [(10, 20)]
        assert brokers.members(1, ORDERS) == {1}

    run(tmp_path, scenario, **SCRUB | {"log_scrub_interval_ms": "0"})
