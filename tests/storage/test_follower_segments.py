"""Names of a follower's segments if the leader's log has gaps, and the proof in recovery that none is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compaction_helpers import compact, compacting, pairs, put, roll
from log_helpers import NOW_MS, checkpoint, flush, make_batch, make_context, make_log, open_manager, the_log

from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.records.batch import assign, read_header
from penstock.storage.batch_scan import MAX_RELATIVE_OFFSET
from penstock.storage.closed_segments import CLOSED_SEGMENTS_FILE
from penstock.storage.disk import RealDisk
from penstock.storage.follower_batches import MAX_GAP
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.storage.segment import Segment
from penstock.storage.segment_list import SegmentList

LEADER = LeaderEpoch(9)
BOOT = "boot"


def compacted_leader(path: Path) -> Log:
    """A log whose first records were removed by compaction, with a gap in the middle too."""
    context = make_context(path)
    log = make_log(context, compacting())
    for number in range(30):
        put(log, (b"key", b"%d" % number), (b"other", b"%d" % number))
    roll(log)
    put(log, (b"late", b"1"))
    roll(log)
    put(log, (b"late", b"2"))
    roll(log)
    assert compact(log, context.files)
    assert pairs(log)[0][0] > 50
    return log


def copy_to(follower: Log, leader: Log, max_bytes: int = 1) -> None:
    """Fetch as a follower does, by default one batch at a time."""
    while follower.log_end_offset < leader.log_end_offset:
        part = leader.read(
            follower.log_end_offset, max_bytes, below=leader.log_end_offset, at_least_one=True, wait=True
        ).read()
        follower.append_as_follower(memoryview(part), LEADER, NOW_MS)


def open_follower(path: Path) -> tuple[LogManager, Log, RealDisk]:
    disk = RealDisk(str(path))
    manager = open_manager(disk, BOOT)
    log = the_log(manager, LogConfig(segment_bytes=200, index_interval_bytes=100))
    manager.record_use(BrokerEpoch(1))
    return manager, log, disk


@pytest.mark.parametrize("kept", ["nothing", "flush", "checkpoint"])
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_killed_follower_of_a_compacted_leader_keeps_everything(
    tmp_path: Path, kept: str, max_bytes: int
) -> None:
    leader = compacted_leader(tmp_path / "leader")
    manager, follower, disk = open_follower(tmp_path / "follower")
    copy_to(follower, leader, max_bytes)
    assert follower.segments[0].base_offset == 0
    expected = pairs(leader)
    assert pairs(follower) == expected
    if kept != "nothing":
        flush(follower)
    if kept == "checkpoint":
        checkpoint(follower)
        manager.write_checkpoints()
    for _ in range(3):
        disk.close()  # the process is killed
        manager, follower, disk = open_follower(tmp_path / "follower")
        assert pairs(follower) == expected
        assert follower.log_start_offset == leader.log_start_offset == 0
        assert follower.log_end_offset == leader.log_end_offset
        assert manager.lost_partitions == frozenset()
        assert manager.kept_epoch == 1


def test_follower_segment_is_named_after_the_log_end(tmp_path: Path) -> None:
    _, follower, _ = open_follower(tmp_path)
    follower.append_as_follower(memoryview(batch_at(100)), LEADER, NOW_MS)
    for offset in (150, 200, 250):
        follower.append_as_follower(memoryview(batch_at(offset, b"x" * 150)), LEADER, NOW_MS)
    assert [segment.base_offset for segment in follower.segments] == [0, 101, 151, 201]


def batch_at(offset: int, value: bytes = b"value") -> bytes:
    batch = make_batch([value])
    assign(batch, Offset(offset), LeaderEpoch(2))
    return bytes(batch)


@pytest.mark.parametrize("marked", [False, True], ids=["no checkpoint", "checkpoint"])
def test_directory_named_by_first_batches_survives_a_kill(tmp_path: Path, marked: bool) -> None:
    """Earlier versions named a follower's segments after their first batch."""
    leader = compacted_leader(tmp_path / "leader")
    path = tmp_path / "follower"
    manager, follower, disk = open_follower(path)
    copy_to(follower, leader)
    if marked:
        checkpoint(follower)
        manager.write_checkpoints()
    expected = pairs(follower)
    disk.close()
    name_after_first_batches(path / follower.directory)
    for _ in range(3):
        manager, follower, disk = open_follower(path)
        assert pairs(follower) == expected
        assert follower.log_start_offset == 0
        assert manager.lost_partitions == frozenset()
        disk.close()


def name_after_first_batches(directory: Path) -> None:
    (directory / CLOSED_SEGMENTS_FILE).unlink()
    for index in directory.glob("*.index"):
        index.unlink()
    for file in sorted(directory.glob("*.log"), reverse=True):
        first = read_header(file.read_bytes())
        file.rename(directory / f"{first.base_offset:020d}.log")


# --- gaps wider than the relative offsets of a segment


@pytest.mark.parametrize("gap", [MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET + 1, 5 * MAX_RELATIVE_OFFSET])
@pytest.mark.parametrize("first", [0, 3], ids=["at the log start", "after records"])
def test_gap_wider_than_relative_offsets_is_kept_through_a_kill(tmp_path: Path, gap: int, first: int) -> None:
    manager, follower, disk = open_follower(tmp_path)
    for offset in range(first):
        follower.append_as_follower(memoryview(batch_at(offset)), LEADER, NOW_MS)
    records = batch_at(first + gap) + batch_at(first + gap + 5)
    follower.append_as_follower(memoryview(records), LEADER, NOW_MS)
    expected = [*range(first), first + gap, first + gap + 5]
    for _ in range(3):
        assert [offset for offset, *_ in pairs(follower)] == expected
        assert follower.log_start_offset == 0
        assert follower.log_end_offset == first + gap + 6
        assert follower.leader_epochs.entries == ((2, 0 if gap > MAX_RELATIVE_OFFSET or first else gap),)
        disk.close()
        manager, follower, disk = open_follower(tmp_path)
        assert manager.lost_partitions == frozenset()
    follower.append_as_follower(memoryview(batch_at(first + gap + 6)), LEADER, NOW_MS)


def test_gap_in_a_log_with_keys_is_kept_through_a_kill(tmp_path: Path) -> None:
    """A key index allows far fewer offsets in a segment."""
    disk = RealDisk(str(tmp_path))
    keyed = LogConfig(index_by_key=True)
    follower = the_log(open_manager(disk), keyed)
    records = batch_at(0) + batch_at(10_000_000) + batch_at(10_000_001)
    follower.append_as_follower(memoryview(records), LEADER, NOW_MS)
    assert len(follower.segments) == 3
    flush(follower)
    disk.close()
    follower = the_log(open_manager(RealDisk(str(tmp_path))), keyed)
    assert [offset for offset, *_ in pairs(follower)] == [0, 10_000_000, 10_000_001]


def test_base_offset_far_beyond_any_log_is_refused(tmp_path: Path) -> None:
    """The CRC of a batch does not cover its base offset."""
    _, follower, _ = open_follower(tmp_path)
    with pytest.raises(BrokerError) as refused:
        follower.append_as_follower(memoryview(batch_at(MAX_GAP + 1)), LEADER, NOW_MS)
    assert refused.value.code is ErrorCode.corrupt_message
    assert follower.log_end_offset == 0


def test_truncation_inside_a_gap_ends_the_log_before_the_gap(tmp_path: Path) -> None:
    """Otherwise the records of another leader between there and the next batch would never be fetched."""
    manager, follower, disk = open_follower(tmp_path)
    follower.append_as_follower(memoryview(batch_at(0) + batch_at(100)), LEADER, NOW_MS)
    manager.truncate(follower, Offset(50), NOW_MS)
    assert follower.log_end_offset == 1
    follower.append_as_follower(memoryview(batch_at(50)), LEADER, NOW_MS)
    assert [offset for offset, *_ in pairs(follower)] == [0, 50]
    disk.close()


def test_truncation_below_the_first_segment_drops_all_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "follower"
    leader = compacted_leader(tmp_path / "leader")
    _, follower, disk = open_follower(path)
    copy_to(follower, leader)
    disk.close()
    name_after_first_batches(path / follower.directory)
    manager, follower, disk = open_follower(path)
    manager.truncate(follower, Offset(10), NOW_MS)
    assert (follower.log_start_offset, follower.log_end_offset, follower.segments) == (0, 10, ())
    copy_to(follower, leader)
    assert pairs(follower) == pairs(leader)
    disk.close()
    _, follower, _ = open_follower(path)
    assert pairs(follower) == pairs(leader)


def test_copied_directory_of_a_follower_is_whole(tmp_path: Path) -> None:
    check_copied_directory(tmp_path)


def test_segment_named_after_its_first_batch_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug names a follower's segments as earlier versions did."""
    start = SegmentList.start

    def start_at_first_batch(
        segments: SegmentList, base_offset: Offset, now_ms: int, content: memoryview
    ) -> Segment:
        named = Offset(read_header(content).base_offset) if content else base_offset
        return start(segments, named, now_ms, content)

    monkeypatch.setattr(SegmentList, "start", start_at_first_batch)
    with pytest.raises(AssertionError, match="a copied follower lacks records"):
        check_copied_directory(tmp_path)


def check_copied_directory(tmp_path: Path) -> None:
    """The names of its segments alone prove after a reboot that nothing is missing."""
    leader = compacted_leader(tmp_path / "leader")
    _, follower, disk = open_follower(tmp_path / "follower")
    copy_to(follower, leader)
    disk.close()
    shutil.copytree(tmp_path / "follower", tmp_path / "copy")
    manager = open_manager(RealDisk(str(tmp_path / "copy")), "another boot")
    assert pairs(the_log(manager)) == pairs(leader), "a copied follower lacks records"
