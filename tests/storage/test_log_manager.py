"""A data directory with its logs, from the first start over crashes to clean stops."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest
from log_helpers import (
    DIRECTORY_ID,
    NODE,
    NOW_MS,
    TOPIC_ID,
    append,
    checkpoint,
    flush,
    open_manager,
    read_all,
    the_log,
)

from penstock.errors import ConfigError, StorageError
from penstock.model import BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from penstock.storage import log_manager
from penstock.storage.disk import RealDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.log_directories import log_directory, parse_log_directory
from penstock.storage.log_manager import LogManager

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
EPOCH = BrokerEpoch(7)


def test_logs_are_loaded_after_a_clean_stop(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, SMALL)
    for number in range(40):
        append(log, b"%d" % number)
    before = read_all(log)
    manager.close(BrokerEpoch(7))

    again = open_manager(RealDisk(str(tmp_path)))
    assert again.was_clean == 7
    assert again.reports == []
    log = the_log(again)
    assert read_all(log) == before
    assert (log.flushed_offset, log.recovery_point) == (40, 40)
    append(log, b"next")
    assert read_all(log)[-1] == (40, b"next")


def test_clean_stop_file_is_valid_for_one_start(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    manager.close(BrokerEpoch(7))
    disk = RealDisk(str(tmp_path))
    assert open_manager(disk).was_clean == 7
    disk.close()
    assert open_manager(RealDisk(str(tmp_path))).was_clean is None


def test_written_records_survive_a_process_crash(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, SMALL)
    for number in range(40):
        append(log, b"%d" % number)
        if number == 10:
            checkpoint(log)
            manager.write_checkpoints()
    before = read_all(log)
    disk.close()

    again = open_manager(RealDisk(str(tmp_path)))
    assert again.was_clean is None
    assert read_all(the_log(again)) == before
    (report,) = again.reports
    assert report.checked_bytes > 0
    assert report.cut_bytes == 0


def test_records_are_kept_within_one_boot(tmp_path: Path) -> None:
    boots = ["a", "a", "a", "b", "b", "", "b"]
    kept = []
    for epoch, boot_id in enumerate(boots, start=1):
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk, boot_id)
        kept.append(manager.kept_epoch)
        manager.record_use(BrokerEpoch(epoch))
        append(the_log(manager), b"more")
        disk.close()  # as the end of the process does
    assert kept == [None, 1, 2, None, 4, None, None]


@pytest.mark.parametrize(
    ("lost", "is_loss"),
    [(1, False), (70, False), ("a byte", True)],
    ids=["torn", "torn in the head", "damaged"],
)
def test_torn_write_after_a_kill_does_not_count_as_loss(
    tmp_path: Path, lost: int | str, is_loss: bool
) -> None:
    """No client got an acknowledgement for a torn write. Changed bytes are a loss of that partition alone."""
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "a")
    manager.record_use(EPOCH)
    append(the_log(manager), b"whole")
    append(the_log(manager), b"the last one")
    disk.close()
    [file] = tmp_path.rglob("*.log")
    content = file.read_bytes()
    file.write_bytes(content[:-lost] if isinstance(lost, int) else content[:-1] + b"?")
    manager = open_manager(RealDisk(str(tmp_path)), "a")
    assert manager.kept_epoch == EPOCH
    assert manager.has_vanished(TOPIC_ID, 0) == is_loss
    assert the_log(manager).log_end_offset == 1


def test_loss_is_recorded_until_the_broker_registers(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "a")
    manager.record_use(EPOCH)
    append(the_log(manager), b"the last one")
    disk.close()
    [file] = tmp_path.rglob("*.log")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    for _ in range(3):  # each start is killed before it registers
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk, "a")
        assert manager.lost_partitions == {(TOPIC_ID, 0)}
        disk.close()
    disk = RealDisk(str(tmp_path))
    open_manager(disk, "a").record_use(EPOCH)
    disk.close()
    assert open_manager(RealDisk(str(tmp_path)), "a").lost_partitions == frozenset()


def test_damaged_loss_file_makes_the_directory_untrusted(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    open_manager(disk, "a").record_use(EPOCH)
    disk.close()
    (tmp_path / "lost-partitions").write_bytes(b"[[")
    manager = open_manager(RealDisk(str(tmp_path)), "a")
    assert manager.kept_epoch is None
    assert "lost-partitions" in manager.problems[0]


def test_disk_error_makes_the_boot_untrusted(tmp_path: Path) -> None:
    for _ in range(2):
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk, "a")
        manager.record_use(EPOCH)
        the_log(manager).fail(OSError(errno.EIO, "it cannot be written"))
        manager.record_use(EPOCH)
        disk.close()
    assert manager.kept_epoch is None
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "a")
    assert manager.kept_epoch is None
    manager.record_use(EPOCH)
    disk.close()
    assert open_manager(RealDisk(str(tmp_path)), "a").kept_epoch == EPOCH


def test_unregistered_start_does_not_hide_an_earlier_loss(tmp_path: Path) -> None:
    """A start after a power loss recovers the rest and is killed: the next start must not trust this boot."""
    for boot_id in ("a", "b"):
        disk = RealDisk(str(tmp_path))
        manager = open_manager(disk, boot_id)
        if boot_id == "a":
            manager.record_use(EPOCH)
        disk.close()
    assert open_manager(RealDisk(str(tmp_path)), "b").kept_epoch is None


def test_deleted_log_does_not_count_as_a_disk_error(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk, "a")
    manager.record_use(EPOCH)
    append(the_log(manager), b"old")
    manager.begin_delete(TOPIC_ID).work()
    disk.close()
    assert open_manager(RealDisk(str(tmp_path)), "a").kept_epoch == EPOCH


@pytest.mark.parametrize("had_records", [True, False])
@pytest.mark.parametrize("offsets", [(27,), (30, 27)])
def test_restarted_log_keeps_its_offset_after_a_crash(
    tmp_path: Path, had_records: bool, offsets: tuple[int, ...]
) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager, SMALL)
    for number in range(9 if had_records else 0):
        append(log, b"%d" % number)
    for offset in offsets:
        assert log.jobs.begin_truncation()
        manager.restart(log, Offset(offset), NOW_MS)
        log.jobs.finish_truncation()
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    disk.close()
    disk = RealDisk(str(tmp_path))
    log = the_log(open_manager(disk))
    assert (log.log_start_offset, log.log_end_offset) == (27, 27)
    append(log, b"there")
    disk.close()
    manager = open_manager(RealDisk(str(tmp_path)))
    assert read_all(the_log(manager)) == [(27, b"there")]
    assert not any(report.problems for report in manager.reports)


def test_a_second_broker_on_the_directory_is_refused(tmp_path: Path) -> None:
    first = RealDisk(str(tmp_path))
    open_manager(first)
    with pytest.raises(ConfigError, match="in use by another broker"):
        open_manager(RealDisk(str(tmp_path)))
    first.close()
    open_manager(RealDisk(str(tmp_path)))


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    open_manager(RealDisk(str(tmp_path))).close(BrokerEpoch(1))
    with pytest.raises(ConfigError, match="belongs to node 1"):
        LogManager(RealDisk(str(tmp_path)), BrokerId(2)).open(NOW_MS, DIRECTORY_ID)


def test_the_directory_keeps_its_id_and_its_cluster(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    manager.join_cluster("here")
    manager.close(BrokerEpoch(1))
    again = LogManager(RealDisk(str(tmp_path)), NODE)
    again.open(NOW_MS, UUID(int=5))
    assert again.directory_id == DIRECTORY_ID
    again.join_cluster("here")
    with pytest.raises(ConfigError, match="belongs to cluster here"):
        again.join_cluster("elsewhere")


def test_unreadable_meta_file_is_reported_and_kept(tmp_path: Path) -> None:
    open_manager(RealDisk(str(tmp_path))).close(BrokerEpoch(1))
    (tmp_path / "meta.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="cannot be read"):
        open_manager(RealDisk(str(tmp_path)))
    assert (tmp_path / "meta.json").read_bytes() == b"{"


def log_directories(path: Path) -> list[Path]:
    return [entry for entry in (path / "logs").iterdir() if entry.is_dir()]


def test_deleted_topic_can_be_created_again_with_a_new_id(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    append(the_log(manager), b"old")
    job = manager.begin_delete(TOPIC_ID)
    assert manager.get(TOPIC_ID, 0) is None
    new_id = TopicId(UUID(int=2))
    manager.create("orders", new_id, [0], LogConfig())
    job.work()
    assert len(log_directories(tmp_path)) == 1
    log = manager.get(new_id, 0)
    assert log is not None
    assert log.log_end_offset == 0


def test_interrupted_deletion_is_finished_at_start(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    append(the_log(manager), b"old")
    directory = tmp_path / the_log(manager).directory
    directory.rename(str(directory) + ".deleted")
    disk.close()
    assert len(open_manager(RealDisk(str(tmp_path)))) == 0
    assert log_directories(tmp_path) == []


def test_logs_of_unknown_topics_are_kept(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager)
    append(log, b"precious")
    assert manager.orphans({TOPIC_ID}) == []
    assert manager.orphans(set()) == [log]
    manager.close(BrokerEpoch(1))
    assert read_all(the_log(open_manager(RealDisk(str(tmp_path))))) == [(0, b"precious")]


def test_unknown_files_among_the_logs_are_kept(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    directory = tmp_path / the_log(manager).directory
    (tmp_path / "logs" / "lost+found").mkdir()
    (directory / "notes.txt").write_text("mine")
    disk.close()
    again = open_manager(RealDisk(str(tmp_path)))
    assert len(again) == 1
    assert (directory / "notes.txt").read_text() == "mine"


def test_log_is_not_created_over_existing_data(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    directory = tmp_path / log_directory(TopicPartition("orders", 0), TOPIC_ID)
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"data")
    with pytest.raises(StorageError, match="not loaded"):
        the_log(manager)


def test_offsets_continue_after_all_records_were_deleted(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    manager = open_manager(disk)
    log = the_log(manager)
    for number in range(10):
        append(log, b"%d" % number)
    flush(log)
    log.advance_log_start(Offset(10))
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    assert log.size_bytes == 0
    disk.close()  # a crash, before any checkpoint
    for copy in tmp_path.glob("checkpoint.*"):
        copy.unlink()
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log, b"next").base_offset == 10


@pytest.mark.parametrize("topic", ["a", "with-dashes-12", "x" * 249, "Case", "a.b_c-"])
def test_directory_names_are_parsed_to_their_partition(topic: str) -> None:
    for number in range(50):
        topic_id = TopicId(UUID(int=(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128))
        directory = log_directory(TopicPartition(topic, number), topic_id)
        name = directory.removeprefix("logs/")
        assert len(name) + len(".deleted") <= 255
        assert parse_log_directory(name) == (TopicPartition(topic[:200], number), topic_id)


@pytest.mark.parametrize(
    "name", ["", "lost+found", "a-0", "-0-" + "A" * 22, "a-x-" + "A" * 22, "a-0-" + "!" * 22]
)
def test_invalid_directory_names_are_not_parsed(name: str) -> None:
    assert parse_log_directory(name) is None


def test_a_stop_checkpoints_a_few_logs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once would need more open files than are allowed."""
    monkeypatch.setattr(log_manager, "_LOGS_AT_A_TIME", 6)
    manager = open_manager(RealDisk(str(tmp_path)))
    manager.create("many", TOPIC_ID, range(20), LogConfig())
    for log in manager:
        append(log, b"x")
    manager.close(BrokerEpoch(3))
    again = open_manager(RealDisk(str(tmp_path)))
    assert (again.was_clean, again.reports) == (3, [])
    assert all(read_all(log) == [(0, b"x")] for log in again)


def test_stop_with_a_failed_checkpoint_is_not_clean(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager)
    append(log, b"x")
    assert log.jobs.begin_checkpoint() is not None  # and nobody finishes it
    manager.close(BrokerEpoch(3))
    assert open_manager(RealDisk(str(tmp_path))).was_clean is None


def test_retry_is_recognised_after_deletion_and_restart(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, SMALL)
    for number in range(30):
        append(log, b"%d" % number, producer_id=1, producer_epoch=0, base_sequence=number)
    flush(log)
    log.advance_log_start(Offset(30))
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    manager.close(BrokerEpoch(1))
    log = the_log(open_manager(RealDisk(str(tmp_path))))
    again = append(log, b"29", producer_id=1, producer_epoch=0, base_sequence=29)
    assert (again.base_offset, again.duplicate) == (29, True)
    assert append(log, b"30", producer_id=1, producer_epoch=0, base_sequence=30).base_offset == 30


def test_logs_can_be_created_after_a_failed_attempt(tmp_path: Path) -> None:
    class FailingDisk(RealDisk):
        fails = True

        def replace(self, path: str, content: bytes) -> None:
            if self.fails and path.startswith("logs/t-1-"):
                raise OSError(errno.EIO, "it cannot be written")
            super().replace(path, content)

    disk = FailingDisk(str(tmp_path))
    manager = open_manager(disk)
    with pytest.raises(StorageError, match="the logs of topic t could not be created"):
        manager.create("t", TOPIC_ID, [0, 1], LogConfig())
    disk.fails = False
    manager.create("t", TOPIC_ID, [0, 1], LogConfig())
    assert len(manager) == 2
