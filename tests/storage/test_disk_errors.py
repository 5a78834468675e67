"""One failing call, at every call there is: the log stays consistent, and acknowledged records survive."""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path

import pytest
from faulty_disk import FaultyDisk
from log_helpers import NOW_MS, append, header_of, make_batch, open_manager, read_all, the_log

from penstock.errors import BrokerError, ConfigError, ErrorCode, PenstockError, StorageError
from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)
FAULTS = [
    pytest.param(errno.ENOSPC, False, id="no space"),
    pytest.param(errno.ENOSPC, True, id="no space after half"),
    pytest.param(errno.EIO, False, id="I/O error"),
    pytest.param(errno.EIO, True, id="I/O error after half"),
]


class Server:
    """Operations of a broker on a log, and the results that it may rely on."""

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.accepted: list[bytes] = []
        self.acknowledged = 0
        """Number of accepted values that were flushed."""
        self.log_start = 0
        self.kept_log_start = 0
        """Log start that was acknowledged."""

    def run(self) -> None:
        try:
            self.log = the_log(self.manager, CONFIG)
        except StorageError:
            return
        for number in range(24):
            self.append(b"value %02d" % number, number)
            if number % 4 == 3:
                self.flush()
            if number % 8 == 7:
                self.checkpoint()
            if number == 12:
                self.delete_records()
        self.verify()

    def append(self, value: bytes, number: int) -> bool:
        try:
            info = append(self.log, value, producer_id=7, producer_epoch=0, base_sequence=len(self.accepted))
        except BrokerError as refused:
            code = refused.code
        else:
            assert info.base_offset == len(self.accepted)
            self.accepted.append(value)
            return True
        assert code is ErrorCode.kafka_storage_error
        return False

    def flush(self) -> None:
        job = self.log.jobs.begin_flush()
        try:
            job.work()
        except OSError as error:
            self.log.fail(error)
        else:
            self.log.jobs.finish_flush(job)
        self.acknowledged = self.log.flushed_offset

    def checkpoint(self) -> None:
        job = self.log.jobs.begin_checkpoint()
        if job is not None:
            try:
                job.work()
            except OSError as error:
                self.log.jobs.abandon_checkpoint(job, error)
            else:
                self.log.jobs.finish_checkpoint(job)
        with contextlib.suppress(OSError):
            self.manager.write_checkpoints()

    def delete_records(self) -> None:
        offset = Offset(min(8, self.log.flushed_offset))
        self.log.advance_log_start(offset)
        self.log_start = offset
        try:
            self.manager.write_checkpoints(both=True)
            self.kept_log_start = offset
        except OSError:
            return
        try:
            job = self.log.jobs.begin_delete()
        except StorageError:
            return
        if job is not None:
            with contextlib.suppress(OSError):
                job.work()
            self.log.jobs.finish_delete(job)

    def verify(self) -> None:
        """Check that the readable records are exactly the accepted ones, from the log start on."""
        assert self.log.log_end_offset == len(self.accepted)
        assert self.log.flushed_offset <= self.log.log_end_offset
        assert read_all(self.log) == list(enumerate(self.accepted))[self.log_start :]


def count_calls(path: Path) -> int:
    disk = FaultyDisk(str(path))
    server = Server(open_manager(disk))
    server.run()
    server.manager.close(BrokerEpoch(1))
    disk.close()
    return len(disk.calls)


def check_after_restart(path: Path, server: Server) -> None:
    """Check that acknowledged records and a prefix of the rest are there, in order, and that appends go on."""
    for _ in range(2):
        disk = RealDisk(str(path))
        log = the_log(open_manager(disk), CONFIG)
        found = read_all(log)
        assert server.acknowledged <= log.log_end_offset <= len(server.accepted)
        assert server.kept_log_start <= log.log_start_offset <= server.log_start
        start = log.log_start_offset
        assert found == list(enumerate(server.accepted))[start : log.log_end_offset]
        disk.close()
    disk = RealDisk(str(path))
    log = the_log(open_manager(disk), CONFIG)
    server.log, server.accepted = log, server.accepted[: log.log_end_offset]
    assert server.append(b"after", 0)
    disk.close()


@pytest.mark.slow
@pytest.mark.parametrize(("error", "partial"), FAULTS)
def test_failure_of_any_disk_call_keeps_acknowledged_records(
    tmp_path: Path, error: int, partial: bool
) -> None:
    calls = count_calls(tmp_path / "count")
    for fail_at in range(calls):
        path = tmp_path / str(fail_at)
        disk = FaultyDisk(str(path), fail_at=fail_at, error=error, partial=partial)
        try:
            server = Server(open_manager(disk))
        except (OSError, PenstockError):
            disk.close()
            open_manager(RealDisk(str(path)))
            shutil.rmtree(path)
            continue
        server.run()
        if disk.struck is None:
            with contextlib.suppress(OSError):
                server.manager.close(BrokerEpoch(1))
        elif hasattr(server, "log") and not server.log.failed:
            assert server.append(b"space is back", 0), disk.struck
            server.verify()
        disk.close()
        if hasattr(server, "log"):
            check_after_restart(path, server)
        shutil.rmtree(path)


@pytest.mark.parametrize(("error", "partial"), FAULTS)
def test_failed_recovery_can_be_repeated(tmp_path: Path, error: int, partial: bool) -> None:
    origin = tmp_path / "origin"
    disk = RealDisk(str(origin))
    server = Server(open_manager(disk))
    server.run()
    disk.close()
    with max((origin / "logs").glob("*/*.log")).open("ab") as file:
        file.write(b"torn")
    fail_at = 0
    while True:
        path = tmp_path / str(fail_at)
        shutil.copytree(origin, path)
        disk = FaultyDisk(str(path), fail_at=fail_at, error=error, partial=partial)
        with contextlib.suppress(OSError, StorageError, ConfigError):
            open_manager(disk)
        disk.close()
        check_after_restart(path, server)
        server.accepted = server.accepted[:24]
        shutil.rmtree(path)
        if disk.struck is None:
            break
        fail_at += 1
    assert fail_at > 5


def make_faulty_log(path: Path) -> tuple[FaultyDisk, Log]:
    disk = FaultyDisk(str(path))
    return disk, the_log(open_manager(disk), CONFIG)


def test_failed_fsync_is_never_tried_again(tmp_path: Path) -> None:
    disk, log = make_faulty_log(tmp_path)
    append(log, b"a")
    job = log.jobs.begin_flush()
    disk.fail_at = len(disk.calls)
    with pytest.raises(OSError, match="Input/output"):
        job.work()
    log.fail(OSError(errno.EIO, "Input/output error"))
    log.jobs.finish_flush(job)
    assert (log.failed, log.flushed_offset) == (True, 0)
    again = log.jobs.begin_flush()
    again.work()
    log.jobs.finish_flush(again)
    assert log.flushed_offset == 0
    with pytest.raises(BrokerError) as refused:
        append(log, b"b")
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert read_all(log) == [(0, b"a")]


def test_checkpoint_without_space_is_repeated_later(tmp_path: Path) -> None:
    disk, log = make_faulty_log(tmp_path)
    append(log, b"a")
    job = log.jobs.begin_checkpoint()
    assert job is not None
    disk.fail_at, disk._error = disk.calls.index("create") + 10_000, errno.ENOSPC
    job.sync_log()
    disk.fail_at = len(disk.calls)
    with pytest.raises(OSError, match="No space"):
        job.write()
    log.jobs.abandon_checkpoint(job, OSError(errno.ENOSPC, "No space"))
    assert not log.failed
    assert log.recovery_point == 0
    job = log.jobs.begin_checkpoint()
    assert job is not None
    job.work()
    log.jobs.finish_checkpoint(job)
    assert log.recovery_point == 1


def test_log_runs_one_file_changing_job_at_a_time(tmp_path: Path) -> None:
    _, log = make_faulty_log(tmp_path)
    for number in range(30):
        append(log, b"%d" % number)
    log.advance_log_start(Offset(20))
    job = log.jobs.begin_checkpoint()
    assert job is not None
    assert log.jobs.begin_checkpoint() is None
    assert log.jobs.begin_delete() is None
    job.work()
    log.jobs.finish_checkpoint(job)
    assert log.jobs.begin_delete() is not None
    assert log.jobs.begin_checkpoint() is None


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_after_an_io_error_nothing_is_appended_and_everything_is_read(tmp_path: Path, error: int) -> None:
    disk, log = make_faulty_log(tmp_path)
    append(log, b"a")
    disk.fail_at, disk._error = len(disk.calls), error
    for _ in range(3):
        with pytest.raises(BrokerError) as refused:
            append(log, b"b")
        assert refused.value.code is ErrorCode.kafka_storage_error
    assert log.failed
    assert read_all(log) == [(0, b"a")]


def test_the_batch_of_a_failed_append_can_be_sent_again(tmp_path: Path) -> None:
    disk, log = make_faulty_log(tmp_path)
    batch = make_batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0)
    disk.fail_at, disk._error = len(disk.calls), errno.ENOSPC
    with pytest.raises(BrokerError):
        log.append(batch, header_of(batch), LeaderEpoch(0), NOW_MS)
    info = log.append(batch, header_of(batch), LeaderEpoch(0), NOW_MS)
    assert (info.base_offset, info.duplicate) == (0, False)
    assert log.append(batch, header_of(batch), LeaderEpoch(0), NOW_MS).duplicate
