"""Few descriptors shared among many files."""

from __future__ import annotations

import os
from pathlib import Path

from log_helpers import EPOCH, NOW_MS, TOPIC_ID, header_of, make_batch

from penstock.model import Offset, TopicPartition
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import CachedFile, FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else len(os.listdir("/dev/fd"))


def make_files(path: Path, count: int, max_open: int) -> tuple[FileCache, list[CachedFile]]:
    disk = RealDisk(str(path))
    cache = FileCache(disk, max_open)
    files = [CachedFile(cache, f"f{number}") for number in range(count)]
    return cache, files


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    before = open_descriptors()
    cache, files = make_files(tmp_path, 20, 5)
    for file in files:
        file.get(create=True)
    assert cache.open_count == 5
    assert open_descriptors() - before <= 6  # and the root directory


def test_recently_used_file_stays_open(tmp_path: Path) -> None:
    _, files = make_files(tmp_path, 20, 5)
    kept = files[0].get(create=True)
    for file in files[1:]:
        file.get(create=True)
        assert files[0].get() is kept


def test_evicted_file_is_readable_by_its_holder(tmp_path: Path) -> None:
    _, files = make_files(tmp_path, 10, 1)
    held = files[0].get(create=True)
    held.pwrite(0, (b"here",))
    for file in files[1:]:
        file.get(create=True)
    assert files[0].file is None
    assert held.pread(0, 4) == b"here"


def test_retired_file_is_readable_after_its_name_was_reused(tmp_path: Path) -> None:
    cache, (file, _) = make_files(tmp_path, 2, 5)
    file.get(create=True).pwrite(0, (b"old",))
    file.retire()
    cache.disk.remove("f0")
    cache.disk.open("f0", create=True).pwrite(0, (b"new",))
    file.discard()
    assert file.get().pread(0, 3) == b"old"


def test_discarded_file_frees_its_place_in_the_cache(tmp_path: Path) -> None:
    cache, files = make_files(tmp_path, 3, 5)
    for file in files:
        file.get(create=True)
    files[1].discard()
    assert cache.open_count == 2


def test_hundreds_of_logs_share_a_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    context = StorageContext(disk, FileCache(disk, 20))
    logs = [
        Log.create(context, f"logs/t-{number}", TopicPartition("t", number), TOPIC_ID, LogConfig())
        for number in range(200)
    ]
    before = open_descriptors()
    for turn in range(3):
        for log in logs:
            batch = make_batch([b"%d" % turn])
            log.append(batch, header_of(batch), EPOCH, NOW_MS)
            job = log.jobs.begin_flush()
            job.work()
            log.jobs.finish_flush(job)
    assert open_descriptors() - before <= 21
    for log in logs:
        assert log.read(Offset(2), 1000, below=Offset(3), at_least_one=True, wait=True).length > 0


def test_unsynced_files_stay_open_beyond_the_limit_and_are_reported(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    context = StorageContext(disk, FileCache(disk, 5))
    for number in range(10):
        log = Log.create(context, f"logs/t-{number}", TopicPartition("t", number), TOPIC_ID, LogConfig())
        batch = make_batch([b"x"])
        log.append(batch, header_of(batch), EPOCH, NOW_MS)
    assert context.files.pinned == 10
    assert context.files.crowded
