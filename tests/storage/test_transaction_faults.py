"""Transactions if writes fail half-way, and if derived files are damaged or missing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_disk import FaultyDisk
from log_helpers import flush, make_log, open_manager, the_log
from transaction_helpers import Writer, commit_all, read_committed

from penstock.errors import BrokerError
from penstock.storage.aborted_transactions import AbortedRange
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext

CONFIG = LogConfig(segment_bytes=450, index_interval_bytes=100)


def run_transactions(log: Log, attempt: Callable[[Callable[[], object]], None]) -> None:
    """Three producers: one aborts twice, one commits, one stays open; checkpoints between."""
    one, two, three = (Writer(log, producer_id) for producer_id in (1, 2, 3))
    attempt(lambda: one.write(b"aborted"))
    attempt(lambda: two.write(b"committed"))
    attempt(one.abort)
    try_checkpoint(log)
    attempt(lambda: three.write(b"open"))
    attempt(lambda: one.write(b"aborted again"))
    attempt(two.commit)
    try_checkpoint(log)
    attempt(one.abort)


def try_checkpoint(log: Log) -> None:
    job = log.jobs.begin_checkpoint()
    if job is not None:
        try:
            job.work()
        except OSError as error:
            log.jobs.abandon_checkpoint(job, error)
        else:
            log.jobs.finish_checkpoint(job)


def check(log: Log) -> None:
    assert list(log.producers.aborted) == [
        AbortedRange(1, 0, 2, later_from=1),
        AbortedRange(1, 4, 6, later_from=3),
    ]
    assert [log.producers.ongoing(producer_id) for producer_id in (1, 2, 3)] == [None, None, 3]
    commit_all(log)
    assert log.last_stable_offset == 3
    assert read_committed(log) == [(1, b"committed")]
    Writer(log, 3).commit()
    commit_all(log)
    assert read_committed(log) == [(1, b"committed"), (3, b"open")]


def once(step: Callable[[], object]) -> None:
    step()


def calls_of_all(directory: Path) -> int:
    disk = FaultyDisk(str(directory))
    manager = open_manager(disk)
    run_transactions(the_log(manager, CONFIG), once)
    return len(disk.calls)


@pytest.mark.parametrize("partial", [True, False])
def test_append_that_fails_half_way_does_not_change_the_log(tmp_path: Path, partial: bool) -> None:
    """A fault at every call that changes the disk; refused operations are repeated, as by a client or a coordinator."""

    def again_if_refused(step: Callable[[], object]) -> None:
        try:
            step()
        except BrokerError:
            step()

    for number in range(calls_of_all(tmp_path / "all")):
        directory = tmp_path / f"{number}"
        disk = FaultyDisk(str(directory), error=errno.ENOSPC, partial=partial)
        manager = open_manager(disk)
        log = the_log(manager, CONFIG)
        disk.fail_at = len(disk.calls) + number
        try:
            run_transactions(log, again_if_refused)
        except BrokerError:
            assert log.failed, "nothing but a failed sync takes the log out of service"
            continue
        disk.fail_at = -1
        flush(log)
        manager.write_checkpoints(both=True)
        disk.close()
        check(the_log(open_manager(RealDisk(str(directory)))))


def damage_nothing(directory: Path) -> None: ...


def remove(*patterns: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for pattern in patterns:
            for path in directory.rglob(pattern):
                path.unlink()

    return damage


def garble(*patterns: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for pattern in patterns:
            for path in directory.rglob(pattern):
                path.write_bytes(path.read_bytes()[:-3] + b"xyz")

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        damage_nothing,
        remove("*.snapshot"),
        garble("*.snapshot"),
        remove("checkpoint.*"),
        remove("*.snapshot", "checkpoint.*"),
        garble("*.snapshot", "checkpoint.*"),
        remove("*.snapshot", "*.index", "checkpoint.*"),
    ],
)
def test_transactions_are_rebuilt_from_the_log(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    run_transactions(log, once)
    flush(log)
    manager.write_checkpoints(both=True)
    disk.close()
    damage(tmp_path)
    check(the_log(open_manager(RealDisk(str(tmp_path)))))


def test_marker_that_cannot_be_written_ends_no_transaction(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path), error=errno.ENOSPC, partial=True)
    context = StorageContext(disk, FileCache(disk))
    log = make_log(context, CONFIG)
    writer = Writer(log)
    writer.write(b"a")
    disk.fail_at = len(disk.calls)
    with pytest.raises(BrokerError):
        writer.abort()
    assert (log.producers.ongoing(1), log.log_end_offset, len(log.producers.aborted)) == (0, 1, 0)
    writer.abort()
    assert (log.producers.ongoing(1), log.log_end_offset, len(log.producers.aborted)) == (None, 2, 1)
