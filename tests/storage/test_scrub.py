"""The scrub of a log's segments: every change of a stored byte is found, and nothing else is taken for damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from log_helpers import NOW_MS, append, make_batch, make_context, make_log

from penstock.errors import StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import read_header
from penstock.storage import scrub
from penstock.storage.leader_epochs import EpochEntry, LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.repair import Patch, check_copy, extent_of, locate
from penstock.storage.scrub import Damaged, extents, scrub_piece, start_of

BATCH_RECORDS = 3
BATCHES = 12


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Twelve batches of three records in closed segments of four, and one batch in the active segment."""
    found = make_log(make_context(tmp_path), replace(LogConfig(), segment_bytes=4 * size_of_batch()))
    for number in range(BATCHES + 1):
        append(found, *(b"value-%02d-%d" % (number, place) for place in range(BATCH_RECORDS)))
    job = found.jobs.begin_checkpoint()
    assert job is not None
    job.work()
    found.jobs.finish_checkpoint(job)
    assert len(found.segments) == 4
    return found


def size_of_batch() -> int:
    return len(make_batch([b"value-00-0"] * BATCH_RECORDS))


def scrubbed(log: Log) -> list[Damaged]:
    found = []
    place = None
    for extent in extents(log):
        place = start_of(extent, place)
        while place.position < extent.size:
            piece = scrub_piece(extent, place)
            assert piece.after != place
            place = piece.after
            if piece.found is not None:
                found.append(piece.found)
    return found


def ranges(log: Log) -> list[tuple[int, int]]:
    return [(each.damaged.base_offset, each.damaged.end_offset) for each in scrubbed(log)]


def change(log: Log, number: int, position: int, mask: int = 1) -> bytes:
    """Change a byte of the batch with this number; return the former content of the segment."""
    segment, nth = log.segments[number // 4], number % 4
    file = segment.file
    before = file.pread(0, segment.size)
    place = nth * size_of_batch() + position
    file.pwrite(place, (bytes([before[place] ^ mask]),))
    return before


def test_scrub_of_an_intact_log_finds_no_damage(log: Log) -> None:
    assert ranges(log) == []
    assert [extent.end_offset for extent in extents(log)] == [12, 24, 36, 39]


@pytest.mark.parametrize("number", [0, 5, 7, 11, 12])
def test_scrub_finds_every_changed_byte_in_its_batch(log: Log, number: int) -> None:
    for position in range(size_of_batch()):
        for mask in (1, 0x80):
            before = change(log, number, position, mask)
            assert ranges(log) == [(3 * number, 3 * number + 3)], (position, mask)
            log.segments[number // 4].file.pwrite(0, (before,))


def test_run_of_unknown_leader_epochs_is_no_damage(log: Log) -> None:
    """A replay over a damaged segment may have missed the change of the leader epoch."""
    for number in range(5, 8):
        change(log, number, 15)
    assert ranges(log) == []


@pytest.mark.parametrize("number", [0, 1, 4])
def test_changed_leader_epoch_of_the_only_batch_of_a_segment_is_found(tmp_path: Path, number: int) -> None:
    log = with_a_batch_in_each_segment(tmp_path)
    log.segments[number].file.pwrite(15, (b"\x09",))
    assert ranges(log) == [(number, number + 1)]


def test_run_of_unknown_leader_epochs_over_several_segments_is_no_damage(tmp_path: Path) -> None:
    log = with_a_batch_in_each_segment(tmp_path)
    for number in (0, 1):
        log.segments[number].file.pwrite(15, (b"\x09",))
    assert ranges(log) == []


def with_a_batch_in_each_segment(tmp_path: Path) -> Log:
    log = make_log(make_context(tmp_path), replace(LogConfig(), segment_bytes=20))
    for _ in range(5):
        append(log, b"x")
    job = log.jobs.begin_checkpoint()
    assert job is not None
    job.work()
    log.jobs.finish_checkpoint(job)
    assert len(log.segments) == 5
    return log


def test_scrub_in_small_pieces_finds_the_same_damage(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "PIECE_BYTES", 100)
    monkeypatch.setattr(scrub, "PIECE_BATCHES", 1)
    assert ranges(log) == []
    change(log, 2, size_of_batch() - 1)
    change(log, 6, 7)
    change(log, 9, 11)
    change(log, 11, 15)
    assert ranges(log) == [(6, 9), (18, 21), (27, 30), (33, 36)]


def test_bytes_above_the_recovery_point_are_not_scrubbed(log: Log) -> None:
    append(log, b"x")
    position = log.segments[-1].size - 1
    log.segments[-1].file.pwrite(position, (b"\xff",))
    assert ranges(log) == []


def test_offsets_that_compaction_removed_are_no_damage(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path), replace(LogConfig(), segment_bytes=300))
    for offset in (0, 10, 20, 500):
        batch = make_batch([b"x"])
        scattered = bytearray(batch)
        scattered[:8] = offset.to_bytes(8, "big")
        scattered[12:16] = (3).to_bytes(4, "big")
        log.append_as_follower(memoryview(scattered), LeaderEpoch(3), NOW_MS)
    job = log.jobs.begin_checkpoint()
    assert job is not None
    job.work()
    log.jobs.finish_checkpoint(job)
    assert ranges(log) == []


@pytest.mark.parametrize("position", [0, 7, 11, 15, 16, 17, 26, 70])
@pytest.mark.parametrize("number", [0, 5, 7, 11, 12])
def test_patch_restores_a_damaged_segment(log: Log, tmp_path: Path, number: int, position: int) -> None:
    before = change(log, number, position)
    nth = number % 4
    good = memoryview(before)[nth * size_of_batch() : (nth + 1) * size_of_batch()]
    [found] = scrubbed(log)
    log.add_damage(found.damaged)
    extent = extent_of(log, found.damaged)
    assert extent is not None
    target = locate(extent, found.damaged)
    assert (target.position, target.end) == (found.position, found.end)
    check_copy(good, found.damaged, log.leader_epochs, is_sparse=False, is_in_sync=True)
    assert log.jobs.begin_patch(target.segment)
    Patch(log.files.disk, target, good).work()
    log.jobs.finish_patch(target.segment, found.damaged)
    assert log.damage == ()
    assert target.segment.file.pread(0, target.segment.size) == before
    assert ranges(log) == []


@pytest.mark.parametrize("fault", ["crc", "short", "long", "epoch", "other offset"])
def test_patch_with_wrong_bytes_is_refused(log: Log, fault: str) -> None:
    before = change(log, 5, size_of_batch() - 1)
    size = size_of_batch()
    good = bytearray(before[size : 2 * size])
    [found] = scrubbed(log)
    if fault == "crc":
        good[-1] ^= 1
    elif fault == "short":
        good = good[:-10]
    elif fault == "long":
        good += before[2 * size : 3 * size]
    elif fault == "epoch":
        good[15] ^= 1
    else:
        good = bytearray(before[2 * size : 3 * size])
    assert read_header(good).size == size
    with pytest.raises(StorageError):
        check_copy(memoryview(good), found.damaged, log.leader_epochs, is_sparse=False, is_in_sync=True)


def test_copy_of_forgotten_epochs_is_taken_from_in_sync_replicas(log: Log) -> None:
    """A recovery that cannot read the first batches does not know their leader epochs."""
    before = change(log, 0, size_of_batch() - 1)
    good = memoryview(before)[: size_of_batch()]
    [found] = scrubbed(log)
    header = read_header(good)
    epoch, end = LeaderEpoch(header.leader_epoch), Offset(header.next_offset)
    forgotten = LeaderEpochs([EpochEntry(epoch, end)])
    check_copy(good, found.damaged, forgotten, is_sparse=False, is_in_sync=True)
    with pytest.raises(StorageError, match="another leader epoch"):
        check_copy(good, found.damaged, forgotten, is_sparse=False, is_in_sync=False)
    older = LeaderEpochs([EpochEntry(LeaderEpoch(epoch - 1), end)])
    with pytest.raises(StorageError, match="another leader epoch"):
        check_copy(good, found.damaged, older, is_sparse=False, is_in_sync=True)
