"""Properties of the real disk alone; tests/simulation/test_disk_contract.py has those of both disks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.storage import disk as disk_module
from penstock.storage.disk import RealDisk

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path / "data"))


@pytest.mark.parametrize("path", ["../escape", "a/../../escape", "/etc/passwd", "..", "a\0b"])
def test_paths_outside_the_data_directory_are_refused(disk: RealDisk, path: str) -> None:
    for operation in (
        disk.open,
        disk.read,
        disk.list,
        disk.remove,
        disk.remove_tree,
        disk.make_dir,
        disk.sync_dir,
    ):
        with pytest.raises(ValueError, match="not a path inside"):
            operation(path)
    with pytest.raises(ValueError, match="not a path inside"):
        disk.rename("a", path)


def test_a_symbolic_link_is_not_followed(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="link"):
        disk.open("link")


def test_more_buffers_than_one_call_takes_are_all_written(disk: RealDisk) -> None:
    file = disk.open("log", create=True)
    buffers = [b"%04d" % number for number in range(3000)]
    assert file.pwrite(2, buffers) == 12_000
    assert file.pread(2, 20_000) == b"".join(buffers)


@pytest.mark.parametrize("at_most", [1, 3, 5])
def test_short_writes_are_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch, at_most: int) -> None:
    file = disk.open("log", create=True)
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:at_most], position))
    monkeypatch.setattr(
        os, "pwritev", lambda fd, views, position: pwritev(fd, [views[0][:at_most]], position)
    )
    file.pwrite(0, (b"hello world",))
    file.pwrite(11, (b"and", b"", b"more words"))
    assert file.pread(0, 100) == b"hello worldandmore words"


def test_short_reads_are_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (b"hello world",))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 3), position))
    assert file.pread(0, 11) == b"hello world"
    assert file.pread(6, 100) == b"world"


@linux_only
def test_bytes_just_written_are_read_from_the_page_cache(disk: RealDisk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (bytes(3_000_000),))
    assert file.pread_cached(100, 50) == bytes(50)
    assert file.pread_cached(2_999_990, 50) == bytes(10)
    assert file.is_cached(0, 3_000_000)
    assert file.is_cached(0, 0)


@linux_only
def test_cached_read_does_not_wait_for_the_disk(disk: RealDisk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (os.urandom(4_000_000),))
    file.sync()
    descriptor = file.fileno()
    assert descriptor is not None
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.pread_cached(2_000_000, 10) is not None:
        pytest.skip("this file system keeps its pages")
    assert not file.is_cached(0, 4_000_000)
    assert len(file.pread(2_000_000, 10)) == 10
    assert file.pread_cached(2_000_000, 10) is not None


@linux_only
def test_files_are_read_on_file_systems_without_nowait(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (b"hello",))

    def refuse(*arguments: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.pread_cached(0, 5) == b"hello"
    assert file.is_cached(0, 5)


@linux_only
def test_reads_without_the_no_wait_flag_do_not_count_as_cached(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (b"hello",))
    monkeypatch.delattr(os, "RWF_NOWAIT")
    assert file.pread_cached(0, 5) is None
    assert not file.is_cached(0, 5)
    assert file.is_cached(0, 0)
    assert file.pread(0, 5) == b"hello"


@linux_only
def test_read_error_is_not_a_cache_miss(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("log", create=True)

    def refuse(*arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(OSError, match="Input/output"):
        file.pread_cached(0, 5)
    with pytest.raises(OSError, match="Input/output"):
        file.is_cached(0, 5)


def test_failed_replace_keeps_the_old_content_and_no_other_file(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace("file", b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_module, "_sync_fd", refuse)
    with pytest.raises(OSError, match="Input/output"):
        disk.replace("file", b"new")
    assert disk.read("file") == b"old"
    assert disk.list("") == ["file"]


@linux_only
def test_syncfs_is_used_if_it_reports_errors(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk.sync_all() is disk_module._SYNCFS_REPORTS_ERRORS
    monkeypatch.setattr(disk_module, "_SYNCFS_REPORTS_ERRORS", False)
    assert disk.sync_all() is False


@linux_only
def test_no_sync_succeeds_after_a_failed_sync_of_the_whole_disk(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_before = disk.open("before", create=True)
    with monkeypatch.context() as patch:
        patch.setattr(disk_module, "_LIBC", SimpleNamespace(syncfs=lambda descriptor: -1))
        with pytest.raises(OSError):
            disk.sync_all()
    syncs = (
        disk.sync_all,
        opened_before.sync,
        disk.open("after", create=True).sync,
        lambda: disk.sync_dir(""),
    )
    for sync in syncs:
        with pytest.raises(OSError):
            sync()
    assert disk.open("before").size() == 0


@pytest.mark.parametrize(
    ("release", "reports"), [("5.7.19", False), ("5.8.0-rc1", True), ("6.18.44-fc", True), ("strange", False)]
)
def test_syncfs_reports_errors_on_newer_kernels_only(
    monkeypatch: pytest.MonkeyPatch, release: str, reports: bool
) -> None:
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": release}))
    assert disk_module._syncfs_reports_errors() is reports


def test_data_directory_is_locked_by_one_disk_at_a_time(disk: RealDisk, tmp_path: Path) -> None:
    other = RealDisk(str(tmp_path / "data"))
    assert disk.lock()
    assert disk.lock()
    assert not other.lock()
    disk.close()
    assert other.lock()


def test_a_file_is_closed_with_its_last_reference(disk: RealDisk) -> None:
    file = disk.open("log", create=True)
    descriptor = file.fileno()
    assert descriptor is not None
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_write_back_does_not_change_the_file(disk: RealDisk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, (b"x" * 10_000,))
    file.start_writeback(0, 10_000)
    assert file.size() == 10_000
    assert disk.free_bytes() > 0
