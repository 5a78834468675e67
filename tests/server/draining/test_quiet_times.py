from __future__ import annotations

from pathlib import Path

from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.server.draining.quiet_file import PATH, read_quiet_times, write_quiet_times
from penstock.server.draining.quiet_times import RETRY_MS, QuietTime, QuietTimes
from penstock.storage.disk import RealDisk

NAME = TopicPartition("orders", 3)
LONG_MS = 600_000


def looked(quiet: QuietTimes, end: int, now_ms: int, epoch: int = 1, wanted_ms: int = LONG_MS) -> int:
    quiet.look(NAME, Offset(end), LeaderEpoch(epoch), now_ms)
    return quiet.of(NAME, wanted_ms, now_ms)


def test_quiet_time_starts_at_the_last_observed_write() -> None:
    quiet = QuietTimes()
    assert looked(quiet, 5, 1_000) == 0
    assert looked(quiet, 5, 4_000) == 3_000
    assert looked(quiet, 6, 5_000) == 0
    quiet.keep([])
    assert looked(quiet, 6, 9_000) == 0


def test_a_longer_quiet_time_is_learned_for_the_same_log_end_only() -> None:
    quiet = QuietTimes()
    looked(quiet, 5, 1_000)
    quiet.learn([QuietTime("orders", 3, 4, 90_000), QuietTime("orders", 2, 5, 90_000)], 2_000)
    assert looked(quiet, 5, 2_000) == 1_000
    quiet.learn([QuietTime("orders", 3, 5, 90_000), QuietTime("orders", 3, 5, 10)], 2_000)
    assert looked(quiet, 5, 3_000) == 91_000


def test_an_election_keeps_the_quiet_time_but_leaves_clients_time_to_send_again() -> None:
    quiet = QuietTimes()
    looked(quiet, 5, 1_000)
    assert looked(quiet, 5, 1_000 + LONG_MS) == LONG_MS
    assert looked(quiet, 5, 2_000 + LONG_MS, epoch=2) == LONG_MS - RETRY_MS
    assert looked(quiet, 5, 2_000 + LONG_MS + RETRY_MS, epoch=2) >= LONG_MS
    assert looked(quiet, 5, 9_000 + LONG_MS, epoch=3, wanted_ms=300) == 0


def test_a_restart_continues_the_quiet_time_from_the_file(tmp_path: Path) -> None:
    disk, before = RealDisk(str(tmp_path)), QuietTimes()
    assert read_quiet_times(disk) == []
    looked(before, 5, 1_000)
    write_quiet_times(disk, before.all(61_000))
    after = QuietTimes()
    after.load(read_quiet_times(disk))
    assert looked(after, 5, 7) == 60_000
    after = QuietTimes()
    after.load(read_quiet_times(disk))
    assert looked(after, 6, 7) == 0, "somebody has written since"
    disk.replace(PATH, b"[[1,2")
    assert read_quiet_times(disk) == []
    write_quiet_times(disk, [])
    assert not disk.exists(PATH)
