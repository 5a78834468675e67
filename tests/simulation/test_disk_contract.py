"""The contract of disks: the same tests on the real and on the simulated disk."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from penstock.storage.disk import Disk, RealDisk
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return RealDisk(str(tmp_path))
    return SimulatedDisk(random.Random(1), Trace(lambda: 0.0))


def test_opening_needs_a_file_unless_it_may_be_created(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("log")
    with pytest.raises(FileNotFoundError):
        disk.open("directory/log", create=True)
    assert disk.open("log", create=True).size() == 0
    assert disk.exists("log")


def test_opening_a_directory_is_refused(disk: Disk) -> None:
    disk.make_dir("directory")
    with pytest.raises(IsADirectoryError):
        disk.open("directory")


def test_handles_of_one_file_see_each_other(disk: Disk) -> None:
    one, other = disk.open("log", create=True), disk.open("log", create=True)
    assert one.pwrite(0, [b"ab", memoryview(b"cd"), bytearray(b"e")]) == 5
    assert other.pread(0, 100) == b"abcde"
    assert disk.read("log") == b"abcde"
    assert disk.size("log") == other.size() == 5


def test_reads_are_short_only_at_the_end(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"abcde"])
    assert file.pread(1, 3) == b"bcd"
    assert file.pread(3, 10) == b"de"
    assert file.pread(5, 1) == b""
    assert file.pread(50, 1) == b""
    assert file.pread_cached(3, 10) in (b"de", None)


def test_gap_reads_as_zeros(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(3, [b"x"])
    assert disk.read("log") == b"\0\0\0x"


def test_overwriting_keeps_what_is_beside_it(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"abcde"])
    file.pwrite(1, [b"XY"])
    assert disk.read("log") == b"aXYde"


def test_truncation_shortens_and_extends_with_zeros(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"abcde"])
    file.truncate(2)
    assert disk.read("log") == b"ab"
    file.truncate(4)
    assert disk.read("log") == b"ab\0\0"


def test_closed_file_refuses_operations(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError) as raised:
        file.pwrite(0, [b"x"])
    assert raised.value.errno == errno.EBADF


def test_open_file_outlives_its_name(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"data"])
    disk.rename("log", "log.deleted")
    disk.remove("log.deleted")
    assert file.pread(0, 4) == b"data"
    assert not disk.exists("log.deleted")


def test_replacing_puts_a_whole_file_in_place_and_leaves_nothing_else(disk: Disk) -> None:
    disk.make_dir("meta")
    disk.replace("meta/checkpoint", b"longer than the next")
    disk.replace("meta/checkpoint", b"next")
    assert disk.read("meta/checkpoint") == b"next"
    assert disk.list("meta") == ["checkpoint"]


def test_lists_are_sorted_and_empty_where_there_is_no_directory(disk: Disk) -> None:
    disk.make_dir("logs/b")
    disk.make_dir("logs/a")
    disk.open("logs/c", create=True)
    assert disk.list("logs") == ["a", "b", "c"]
    assert disk.list("logs/a") == []
    assert disk.list("nowhere") == []
    assert "logs" in disk.list("")


def test_making_a_directory_twice_is_fine_and_over_a_file_is_not(disk: Disk) -> None:
    disk.make_dir("a/b/c")
    disk.make_dir("a/b")
    assert disk.list("a/b") == ["c"]
    disk.open("file", create=True)
    with pytest.raises(FileExistsError):
        disk.make_dir("file")


def test_renaming_replaces_a_file_and_needs_a_source(disk: Disk) -> None:
    disk.open("one", create=True).pwrite(0, [b"1"])
    disk.open("two", create=True).pwrite(0, [b"2"])
    disk.rename("one", "two")
    assert disk.read("two") == b"1"
    assert not disk.exists("one")
    with pytest.raises(FileNotFoundError):
        disk.rename("one", "two")
    with pytest.raises(FileNotFoundError):
        disk.rename("two", "nowhere/two")


def test_renaming_a_directory_takes_its_files_along(disk: Disk) -> None:
    disk.make_dir("topic-0")
    disk.open("topic-0/log", create=True).pwrite(0, [b"data"])
    disk.rename("topic-0", "topic-0.deleted")
    assert disk.read("topic-0.deleted/log") == b"data"
    assert disk.list("topic-0") == []
    disk.make_dir("other")
    disk.open("other/file", create=True)
    with pytest.raises(OSError) as raised:
        disk.rename("topic-0.deleted", "other")
    assert raised.value.errno == errno.ENOTEMPTY


def test_removing_what_is_not_there_does_nothing(disk: Disk) -> None:
    disk.remove("nothing")
    disk.remove_tree("nothing")


def test_removing_a_directory_takes_remove_tree(disk: Disk) -> None:
    disk.make_dir("a/b")
    disk.open("a/b/file", create=True)
    with pytest.raises(IsADirectoryError):
        disk.remove("a")
    disk.remove_tree("a")
    assert not disk.exists("a")


def test_syncing_works_on_files_directories_and_everything(disk: Disk) -> None:
    disk.make_dir("logs")
    file = disk.open("logs/log", create=True)
    file.pwrite(0, [b"data"])
    file.start_writeback(0, 4)
    file.sync()
    disk.sync_dir("logs")
    disk.sync_dir("")
    disk.sync_all()
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("nowhere")


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_paths_that_lead_out_are_refused(disk: Disk, path: str) -> None:
    with pytest.raises(ValueError):
        disk.open(path, create=True)
    with pytest.raises(ValueError):
        disk.remove_tree(path)


def test_disk_has_free_space_and_a_lock(disk: Disk) -> None:
    assert disk.free_bytes() > 0
    assert disk.lock()
    assert disk.lock()
    disk.close()


def test_status_stays_the_same_until_the_file_changes(disk: Disk) -> None:
    disk.replace("marker", b"1")
    first = disk.status("marker")
    assert disk.status("marker") == first
    disk.replace("other", b"2")
    assert disk.status("marker") == first
    assert disk.status("other").inode != first.inode
    disk.replace("marker", b"1")
    assert disk.status("marker") != first


def test_written_file_and_its_directory_were_changed_when_modified(disk: Disk) -> None:
    disk.make_dir("logs/orders")
    disk.open("logs/orders/log", create=True).pwrite(0, [b"records"])
    for path in ("logs", "logs/orders", "logs/orders/log"):
        assert disk.status(path).changed_ns == disk.status(path).modified_ns


def test_missing_file_has_no_status(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.status("marker")
