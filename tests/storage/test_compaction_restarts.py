"""Starts after a compaction, when the checkpoint on the disk has an older recovery mark."""

from __future__ import annotations

from pathlib import Path

from compaction_helpers import compact, compacting, pairs, put, roll
from log_helpers import checkpoint, open_manager, the_log

from penstock.model import BrokerEpoch
from penstock.storage.disk import RealDisk

BOOT = "boot"


def test_recovery_mark_older_than_the_compaction_is_harmless(tmp_path: Path) -> None:
    config = compacting(segment_bytes=2_000)
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, config)
    put(log, (b"a", b"1" * 50), (b"b", b"1" * 50))
    checkpoint(log)
    manager.write_checkpoints(both=True)  # the mark on disk: behind the first batch
    put(log, (b"a", b"2" * 500))
    put(log, (b"c", b"1" * 500))
    roll(log)  # a newer mark, in memory alone
    assert compact(log, manager.context.files)
    expected = pairs(log)
    end = log.log_end_offset
    log.discard()
    manager._disk.close()
    reopened = the_log(open_manager(RealDisk(str(tmp_path))), config)
    assert reopened.log_end_offset == end
    assert pairs(reopened) == expected


def test_compaction_below_an_older_mark_loses_nothing(tmp_path: Path) -> None:
    """The checkpoint on the disk has a mark inside the segment that was compacted after it."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, BOOT)
    log = the_log(manager, compacting())
    manager.record_use(BrokerEpoch(1))
    for number in range(3):
        put(log, (b"key", b"%d" % number))
    checkpoint(log)
    manager.write_checkpoints()
    assert log.mark.base_offset == 0
    roll(log)
    assert compact(log, manager.context.files)
    kept = pairs(log)
    disk.close()  # killed before the checkpoint files have the newer mark
    reopened = open_manager(RealDisk(str(tmp_path)), BOOT)
    found = the_log(reopened, compacting())
    assert reopened.lost_partitions == set()
    assert found.damage == ()
    assert pairs(found) == kept
