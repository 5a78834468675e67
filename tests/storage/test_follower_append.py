"""Appends of a follower: the leader's batches, unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from log_helpers import (
    NOW_MS,
    append,
    flush,
    make_batch,
    make_context,
    make_log,
    open_manager,
    read_all,
    the_log,
)

from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.records.batch import assign, read_header, write_crc, write_header
from penstock.records.building import NewRecord, build_batch
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
LEADER = LeaderEpoch(9)


def content(log: Log, start: int = 0) -> bytearray:
    """All bytes of the log from an offset on, across segments."""
    found, offset = bytearray(), Offset(start)
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, below=log.log_end_offset, at_least_one=True, wait=True).read()
        found += part
        position = 0
        while position < len(part):
            header = read_header(part, position)
            position, offset = position + header.size, header.next_offset
    return found


def leader_with(path: Path, count: int) -> Log:
    log = make_log(make_context(path), CONFIG)
    for number in range(count):
        append(
            log,
            b"%02d" % number,
            b"second",
            epoch=LeaderEpoch(number // 10),
            timestamp=NOW_MS + number,
            producer_id=1,
            producer_epoch=0,
            base_sequence=2 * number,
        )
    return log


@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_follower_has_the_bytes_and_state_of_the_leader(tmp_path: Path, max_bytes: int) -> None:
    leader = leader_with(tmp_path / "leader", 40)
    disk = RealDisk(str(tmp_path / "follower"))
    manager = open_manager(disk)
    follower = the_log(manager, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    while follower.log_end_offset < leader.log_end_offset:
        offset = follower.log_end_offset
        part = leader.read(
            offset, max_bytes, below=leader.log_end_offset, at_least_one=True, wait=True
        ).read()
        follower.append_as_follower(memoryview(part), LEADER, NOW_MS)
        assert follower.log_end_offset > offset
    for _ in range(2):
        assert content(follower) == content(leader)
        assert follower.leader_epochs.entries == leader.leader_epochs.entries
        assert follower.producers.get(1).batches == leader.producers.get(1).batches  # type: ignore[union-attr]
        assert [follower.find_timestamp(NOW_MS + n, Offset(99)) for n in range(40)] == [
            leader.find_timestamp(NOW_MS + n, Offset(99)) for n in range(40)
        ]
        flush(follower)
        manager.close(BrokerEpoch(1))
        disk = RealDisk(str(tmp_path / "follower"))
        manager = open_manager(disk)
        follower = the_log(manager, CONFIG)
    assert append(follower, b"next", epoch=LEADER).base_offset == leader.log_end_offset
    disk.close()


def test_batches_of_the_leader_are_accepted_unchanged(tmp_path: Path) -> None:
    """Gaps that compaction left, empty batches, control batches, delete horizons, sequences with holes."""
    log = make_log(make_context(tmp_path), CONFIG)
    gap = bytearray(make_batch([b"kept"], producer_id=5, producer_epoch=0, base_sequence=7))
    assign(memoryview(gap), Offset(100), LeaderEpoch(2))
    horizon = make_batch([b"tombstone"], producer_id=5, producer_epoch=0, base_sequence=90)
    header = read_header(horizon)
    write_header(horizon, header._replace(base_offset=200, leader_epoch=2, attributes=0x40))
    write_crc(horizon)
    control = build_batch(
        [NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", NOW_MS)],
        base_offset=201,
        leader_epoch=3,
        producer_id=5,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    empty = build_batch([NewRecord(None, None, NOW_MS)], base_offset=202, leader_epoch=3)[:61]
    write_header(empty, read_header(empty)._replace(batch_length=49, last_offset_delta=5, record_count=0))
    write_crc(memoryview(empty))
    log.append_as_follower(memoryview(bytes(gap + horizon + control + empty)), LEADER, NOW_MS)
    assert log.log_end_offset == 208
    assert log.leader_epochs.entries == ((2, 100), (3, 201))
    assert log.last_epoch == 3
    assert [offset for offset, _ in read_all(log)][:2] == [100, 200]
    entry = log.producers.get(5)
    assert entry is not None
    assert entry.batches[-1].base_sequence == 90


@pytest.mark.parametrize("fault", ["crc", "overlap", "old epoch", "later than the leader", "magic"])
def test_invalid_leader_batches_do_not_change_the_followers_log(tmp_path: Path, fault: str) -> None:
    log = make_log(make_context(tmp_path), CONFIG)
    append(log, b"a", epoch=LeaderEpoch(4))
    before = content(log)
    good, bad = make_batch([b"b"]), make_batch([b"c"])
    assign(good, Offset(1), LeaderEpoch(4))
    assign(
        bad,
        Offset(1 if fault == "overlap" else 2),
        LeaderEpoch({"old epoch": 3, "later than the leader": 10}.get(fault, 4)),
    )
    if fault == "crc":
        bad[-1] ^= 1
    if fault == "magic":
        bad[16] = 1
    log.append_as_follower(memoryview(bytes(good) + bytes(bad)), LEADER, NOW_MS)
    assert content(log) == before + good
    with pytest.raises(BrokerError) as refused:
        log.append_as_follower(memoryview(bad), LEADER, NOW_MS)
    assert refused.value.code is ErrorCode.corrupt_message
    assert content(log) == before + good
    assert log.log_end_offset == 2


def test_full_disk_refuses_follower_appends(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    log = make_log(context, CONFIG)
    context.full = True
    with pytest.raises(BrokerError) as refused:
        log.append_as_follower(make_batch([b"b"]), LEADER, NOW_MS)
    assert refused.value.code is ErrorCode.kafka_storage_error


@pytest.mark.parametrize("count", [0, 3, 40])
def test_follower_log_behind_the_leaders_log_start_restarts_at_it(tmp_path: Path, count: int) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for number in range(count):
        append(log, b"%02d" % number, producer_id=1, producer_epoch=0, base_sequence=number)
    assert log.jobs.begin_truncation()
    assert not log.jobs.begin_truncation()
    assert log.jobs.begin_checkpoint() is None
    manager.restart(log, Offset(5000), NOW_MS)
    log.jobs.finish_truncation()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5000, 5000, 5000)
    assert log.producers.get(1) is None
    assert log.last_epoch == -1
    batch = make_batch([b"new"])
    assign(batch, Offset(5000), LeaderEpoch(6))
    log.append_as_follower(batch, LEADER, NOW_MS)
    flush(log)
    if log.jobs.can_delete():
        manager.write_checkpoints()
        job = log.jobs.begin_delete()
        assert job is not None
        job.work()
        log.jobs.finish_delete(job)
    for _ in range(2):
        assert read_all(log) == [(5000, b"new")]
        assert log.leader_epochs.entries == ((6, 5000),)
        manager.close(BrokerEpoch(1))
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk)
        log = the_log(manager, replace(CONFIG, segment_bytes=10_000))
    disk.close()
