"""Transactions in one log: the last stable offset, aborted transactions, and permitted markers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from log_helpers import NOW_MS, append, checkpoint, flush, make_context, make_log, open_manager, the_log
from transaction_helpers import Writer, append_marker, commit_all, read_committed

from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.records.control import AbortedTransaction, Marker
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make_log(make_context(tmp_path), LogConfig(segment_bytes=1_000, index_interval_bytes=150))


def refusal(log: Log, marker: Marker, *, is_epoch_new: bool = False) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        log.producers.check_marker(marker, is_epoch_new=is_epoch_new)
    return refused.value.code


# --- the last stable offset


def test_last_stable_offset_without_transactions_is_the_high_watermark(log: Log) -> None:
    append(log, b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
    assert log.last_stable_offset == 0
    log.high_watermark = Offset(1)
    assert log.last_stable_offset == 1


def test_an_open_transaction_holds_the_last_stable_offset(log: Log) -> None:
    append(log, b"a")
    writer = Writer(log)
    writer.write(b"b")
    append(log, b"c")
    commit_all(log)
    assert log.last_stable_offset == 1
    assert log.producers.ongoing(1) == 1
    writer.commit()
    commit_all(log)
    assert log.last_stable_offset == log.log_end_offset
    assert log.producers.ongoing(1) is None


def test_last_stable_offset_passes_a_marker_below_the_high_watermark(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a")
    marker = writer.commit().base_offset
    log.high_watermark = marker
    assert log.last_stable_offset == 0
    log.high_watermark = Offset(marker + 1)
    assert log.last_stable_offset == marker + 1


def test_last_stable_offset_is_the_start_of_the_earliest_open_transaction(log: Log) -> None:
    writers = [Writer(log, producer_id) for producer_id in range(3)]
    for writer in writers:
        writer.write(b"x")
    commit_all(log)
    for writer, expected in zip((writers[1], writers[0], writers[2]), (0, 2, 6), strict=True):
        writer.commit()
        commit_all(log)
        assert log.last_stable_offset == expected


def test_transaction_above_the_high_watermark_does_not_hold_the_stable_offset(log: Log) -> None:
    append(log, b"a")
    log.high_watermark = Offset(1)
    Writer(log).write(b"b")
    assert log.last_stable_offset == 1


def test_the_last_stable_offset_never_lies_below_the_log_start(log: Log) -> None:
    Writer(log).write(b"a", b"b")
    commit_all(log)
    log.advance_log_start(Offset(1))
    assert log.last_stable_offset == 1


def test_ended_transactions_are_removed_from_memory_without_readers(log: Log) -> None:
    writer = Writer(log)
    for _ in range(50):
        writer.write(b"a")
        writer.commit()
        commit_all(log)
    assert len(log.producers.unstable.ended) <= 1


# --- aborted transactions


def test_committed_reads_skip_aborted_records(log: Log) -> None:
    one, two = Writer(log, 1), Writer(log, 2)
    append(log, b"plain")
    one.write(b"aborted")
    two.write(b"committed")
    one.write(b"aborted too")
    one.abort()
    two.commit()
    one.write(b"later")
    one.commit()
    commit_all(log)
    assert [value for _, value in read_committed(log)] == [b"plain", b"committed", b"later"]
    assert log.aborted_transactions(Offset(0), log.log_end_offset) == [AbortedTransaction(1, 1)]


def test_aborted_transactions_are_found_by_overlapping_offset_range(log: Log) -> None:
    for producer_id in range(10):
        writer = Writer(log, producer_id)
        writer.write(b"x", b"y")
        writer.abort()
    assert log.aborted_transactions(Offset(4), Offset(6)) == [AbortedTransaction(1, 3)]
    assert log.aborted_transactions(Offset(5), Offset(7)) == [
        AbortedTransaction(1, 3),
        AbortedTransaction(2, 6),
    ]
    assert log.aborted_transactions(Offset(30), Offset(40)) == []


def test_long_aborted_transaction_is_found_by_any_offset_inside_it(log: Log) -> None:
    long = Writer(log, 99)
    long.write(b"long")
    for producer_id in range(20):
        writer = Writer(log, producer_id)
        writer.write(b"x")
        writer.abort()
    long.abort()
    assert AbortedTransaction(99, 0) in log.aborted_transactions(Offset(20), Offset(21))
    commit_all(log)
    assert read_committed(log) == []


def test_a_small_fetch_names_few_aborted_transactions(log: Log) -> None:
    for producer_id in range(200):
        writer = Writer(log, producer_id)
        writer.write(b"x" * 50)
        writer.abort()
    commit_all(log)
    below = log.last_stable_offset
    _, aborted = log.read_committed(Offset(100), 200, below=below, at_least_one=True)
    assert AbortedTransaction(50, 100) in aborted
    assert len(aborted) < 10


def test_aborted_transactions_are_forgotten_with_their_records(log: Log) -> None:
    for producer_id in range(4):
        writer = Writer(log, producer_id)
        writer.write(b"x")
        writer.abort()
    commit_all(log)
    held = log.producers.aborted
    log.advance_log_start(Offset(4))
    assert log.aborted_transactions(Offset(0), Offset(100)) == [
        AbortedTransaction(2, 4),
        AbortedTransaction(3, 6),
    ]
    assert len(held.between(0, 100)) == 4, "a reader that was there before keeps what it needs"


def test_marker_without_records_aborts_no_transaction(log: Log) -> None:
    append_marker(log, Marker(1, 0, False, 0))
    assert log.aborted_transactions(Offset(0), Offset(10)) == []
    assert log.producers.ongoing(1) is None


# --- permitted writes


def test_non_transactional_batch_is_refused_during_a_transaction(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a")
    with pytest.raises(BrokerError) as refused:
        writer.write(b"b", transactional=False)
    assert refused.value.code is ErrorCode.invalid_txn_state


def test_sequences_continue_after_a_marker_of_the_same_epoch(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a", b"b")
    writer.commit()
    assert writer.write(b"c").base_offset == 3


def test_sequences_restart_after_a_marker_of_a_new_epoch(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a", b"b")
    writer.commit(bump=True)
    writer.sequence = 2
    with pytest.raises(BrokerError) as refused:
        writer.write(b"c")
    assert refused.value.code is ErrorCode.out_of_order_sequence_number
    writer.sequence = 0
    assert writer.write(b"c").base_offset == 3


def test_a_marker_of_a_new_epoch_fences_the_old_one(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a")
    zombie = Writer(log)
    zombie.sequence = 1
    writer.abort(bump=True)
    with pytest.raises(BrokerError) as refused:
        zombie.write(b"late")
    assert refused.value.code is ErrorCode.invalid_producer_epoch


def test_a_marker_of_an_older_epoch_is_refused(log: Log) -> None:
    Writer(log, epoch=5).write(b"a")
    assert refusal(log, Marker(1, 4, False, 0)) is ErrorCode.invalid_producer_epoch


def test_a_marker_of_an_older_coordinator_is_refused(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a")
    writer.end(commit=True, coordinator_epoch=7)
    assert refusal(log, Marker(1, 0, False, 6)) is ErrorCode.transaction_coordinator_fenced
    assert log.producers.check_marker(Marker(1, 0, False, 7), is_epoch_new=False)


def test_a_late_marker_cannot_end_the_next_transaction(log: Log) -> None:
    writer = Writer(log)
    writer.write(b"a")
    writer.commit(bump=True)
    late = Marker(1, 1, True, 0)
    assert not log.producers.check_marker(late, is_epoch_new=True), "it was written already"
    writer.write(b"b")
    assert refusal(log, late, is_epoch_new=True) is ErrorCode.invalid_producer_epoch


def test_producers_in_a_transaction_do_not_expire(log: Log) -> None:
    log.config = replace(log.config, max_producers=2)
    Writer(log, 1).write(b"a")
    for producer_id in range(2, 20):
        append(log, b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert log.producers.ongoing(1) == 0
    assert len(log.producers) <= 3


# --- restarts, truncation and followers


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_transactions_survive_a_restart(tmp_path: Path, clean: bool, checkpointed: bool) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, LogConfig(segment_bytes=400, index_interval_bytes=150))
    one, two, three = (Writer(log, producer_id) for producer_id in (1, 2, 3))
    one.write(b"aborted")
    two.write(b"open")
    three.write(b"undecided")
    one.end(commit=False, coordinator_epoch=9)
    log.high_watermark = log.log_end_offset
    three.commit()
    if checkpointed:
        checkpoint(log)
    one.write(b"aborted as well")
    one.end(commit=False, coordinator_epoch=9)
    flush(log)
    manager.write_checkpoints(both=True)
    before = log.producers
    if clean:
        manager.close(BrokerEpoch(1))
    else:
        disk.close()
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    assert log.producers.aborted == before.aborted
    assert log.producers.ongoing(2) == 1
    assert log.last_stable_offset == 1
    assert log.producers.get(1) is not None
    assert refusal(log, Marker(1, 0, True, 8)) is ErrorCode.transaction_coordinator_fenced
    Writer(log, 2).abort()
    assert log.last_stable_offset == 1, "neither marker is below the high watermark"
    log.high_watermark = Offset(4)
    assert log.last_stable_offset == 1
    commit_all(log)
    assert read_committed(log) == [(2, b"undecided")]


def test_transaction_stays_open_if_its_marker_is_above_the_high_watermark(tmp_path: Path) -> None:
    """A marker below the snapshot but not below the high watermark can still be lost, so it decides nothing."""
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager)
    writer = Writer(log)
    writer.write(b"a")
    append(log, b"b")
    writer.commit()
    log.high_watermark = Offset(2)
    manager.close(BrokerEpoch(1))
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)


@pytest.mark.parametrize("end", ["process", "power"])
def test_high_watermark_is_not_below_the_log_start_after_a_crash(tmp_path: Path, end: str) -> None:
    """Committed records were deleted before they were flushed, and the checkpoint has a lower high watermark."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager)
    append(log, b"a")
    flush(log)
    (file,) = tmp_path.glob("logs/*/*.log")
    flushed = file.read_bytes()
    Writer(log).write(b"b")
    append(log, b"c", b"d")
    log.high_watermark = Offset(4)
    log.advance_log_start(Offset(3))
    manager.write_checkpoints()
    assert log.checkpoint().high_watermark == 1
    disk.close()
    if end == "power":
        file.write_bytes(flushed)
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    assert log.log_start_offset == 3
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset


def test_truncation_removes_markers(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, LogConfig(segment_bytes=300, index_interval_bytes=100))
    writer = Writer(log)
    writer.write(b"a")
    writer.abort()
    writer.write(b"b")
    checkpoint(log)
    writer.abort()
    append(log, b"c")
    checkpoint(log)
    manager.truncate(log, Offset(3), NOW_MS)
    assert log.producers.ongoing(1) == 2
    assert log.aborted_transactions(Offset(0), Offset(10)) == [AbortedTransaction(1, 0)]
    manager.truncate(log, Offset(1), NOW_MS)
    assert log.producers.ongoing(1) == 0
    assert log.aborted_transactions(Offset(0), Offset(10)) == []


def test_log_restarted_at_an_offset_has_no_transactions(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager)
    Writer(log, 1).write(b"a")
    two = Writer(log, 2)
    two.write(b"b")
    two.abort()
    manager.restart(log, Offset(100), NOW_MS)
    assert log.last_stable_offset == 100
    assert log.aborted_transactions(Offset(0), Offset(200)) == []


def test_follower_has_the_transactions_of_its_leader(tmp_path: Path) -> None:
    leader = make_log(make_context(tmp_path / "a"), LogConfig(segment_bytes=300))
    follower = make_log(make_context(tmp_path / "b"), LogConfig(segment_bytes=500))
    one, two, three = (Writer(leader, producer_id) for producer_id in (1, 2, 3))
    for writer in (one, two, three):
        writer.write(b"x")
    one.end(commit=False, coordinator_epoch=4)
    two.commit(bump=True)
    two.write(b"y")
    one.write(b"z")
    offset = Offset(0)
    while offset < leader.log_end_offset:
        content = leader.read(offset, 200, below=leader.log_end_offset, at_least_one=True).read()
        follower.append_as_follower(memoryview(bytearray(content)), LeaderEpoch(3), NOW_MS)
        offset = follower.log_end_offset
    assert follower.producers.copy() == leader.producers.copy()
    assert follower.producers.aborted == leader.producers.aborted
    commit_all(leader)
    commit_all(follower)
    assert follower.last_stable_offset == leader.last_stable_offset == 2
