"""Crashes, power losses and faults of the simulated disk; see test_disk_contract.py for what both disks do."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from simulation.machine.disk import SimulatedDisk
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace

TRIES = 300


def outcomes(
    trace: Trace, prepare: Callable[[SimulatedDisk], None], read: Callable[[SimulatedDisk], object]
) -> set[object]:
    """Return every state that is found after a power loss, over many seeds."""
    found = set()
    for seed in range(TRIES):
        disk = SimulatedDisk(random.Random(seed), trace)
        prepare(disk)
        found.add(read(disk.power_loss(random.Random(seed))))
    return found


def _read_or_none(path: str) -> Callable[[SimulatedDisk], object]:
    return lambda disk: disk.read(path) if disk.exists(path) else None


def _durable_file(disk: SimulatedDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(0, [content])
    file.sync()
    disk.sync_dir("")


def test_synced_bytes_survive_a_power_loss(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"kept" * 100)

    assert outcomes(trace, prepare, _read_or_none("log")) == {b"kept" * 100}


def test_sync_all_makes_bytes_and_names_durable(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_dir("a/b")
        disk.open("a/b/log", create=True).pwrite(0, [b"kept"])
        assert disk.sync_all()

    assert outcomes(trace, prepare, _read_or_none("a/b/log")) == {b"kept"}


def test_replace_is_durable_when_it_returns(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.replace("checkpoint", b"1")
        disk.replace("checkpoint", b"2")

    assert outcomes(trace, prepare, _read_or_none("checkpoint")) == {b"2"}


def test_unsynced_bytes_survive_in_part_torn_zeroed_or_not_at_all(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"a" * 100)
        file = disk.open("log")
        for position in range(100, 1000, 100):
            file.pwrite(position, [b"b" * 100])

    found = outcomes(trace, prepare, _read_or_none("log"))
    whole = b"a" * 100 + b"b" * 900
    assert b"a" * 100 in found
    assert whole in found
    texts = [content for content in found if isinstance(content, bytes)]
    assert all(content.startswith(b"a" * 100) for content in texts)
    assert any(len(content) % 100 for content in texts), "a write was cut in its middle"
    assert any(0 in content for content in texts), "the size moved without the data"
    assert any(b"\0" in content and content.endswith(b"b") for content in texts), (
        "a later write without an earlier"
    )


def test_overwritten_block_survives_in_any_of_its_versions(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"0")
        file = disk.open("log")
        for version in (b"1", b"2", b"3"):
            file.pwrite(0, [version])

    assert outcomes(trace, prepare, _read_or_none("log")) == {b"0", b"1", b"2", b"3"}


def test_unsynced_truncation_may_not_have_happened(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"abcd")
        disk.open("log").truncate(2)

    found = outcomes(trace, prepare, _read_or_none("log"))
    assert {b"ab", b"abcd"} <= found


def test_new_name_is_durable_only_after_a_sync_of_its_directory(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        file = disk.open("log", create=True)
        file.pwrite(0, [b"data"])
        file.sync()

    assert outcomes(trace, prepare, _read_or_none("log")) == {None, b"data"}


def test_synced_directory_is_lost_with_its_unsynced_parent(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_dir("logs")
        _durable_file(disk, "logs/log", b"data")
        disk.sync_dir("logs")

    def list_logs(disk: SimulatedDisk) -> object:
        return tuple(disk.list("logs"))

    def forget_parent(disk: SimulatedDisk) -> None:
        disk.make_dir("logs")
        file = disk.open("logs/log", create=True)
        file.sync()
        disk.sync_dir("logs")

    assert outcomes(trace, prepare, list_logs) == {("log",)}
    assert outcomes(trace, forget_parent, list_logs) == {(), ("log",)}


def test_removal_may_come_back_until_its_directory_is_synced(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"data")
        disk.remove("log")

    def prepare_durably(disk: SimulatedDisk) -> None:
        prepare(disk)
        disk.sync_dir("")

    assert outcomes(trace, prepare, _read_or_none("log")) == {None, b"data"}
    assert outcomes(trace, prepare_durably, _read_or_none("log")) == {None}


def test_rename_happens_whole_or_not_at_all_and_out_of_order(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "old", b"1")
        _durable_file(disk, "target", b"0")
        disk.rename("old", "target")
        disk.rename("target", "newest")

    def names(disk: SimulatedDisk) -> object:
        return tuple((name, disk.read(name)) for name in disk.list(""))

    found = outcomes(trace, prepare, names)
    assert (("old", b"1"), ("target", b"0")) in found
    assert (("target", b"1"),) in found
    assert (("newest", b"1"),) in found


def test_change_time_of_a_rename_survives_only_with_the_new_name(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        disk.make_dir("old")
        disk.sync_dir("")
        disk.rename("old", "new")

    def is_changed(disk: SimulatedDisk) -> object:
        (name,) = disk.list("")
        status = disk.status(name)
        return name, status.modified_ns < status.changed_ns

    assert outcomes(trace, prepare, is_changed) == {("old", False), ("new", True)}


def test_process_crash_keeps_the_page_cache(disk: SimulatedDisk) -> None:
    disk.open("log", create=True).pwrite(0, [b"unsynced"])
    assert disk.process_crash().read("log") == b"unsynced"


def test_disk_of_a_dead_process_is_dead(disk: SimulatedDisk) -> None:
    file = disk.open("log", create=True)
    survivor = disk.process_crash()
    with pytest.raises(SimulatedCrash):
        file.pwrite(0, [b"late"])
    with pytest.raises(SimulatedCrash):
        disk.exists("log")
    assert survivor.read("log") == b""


def test_failed_sync_is_not_repaired_by_the_next_one(trace: Trace) -> None:
    lost = 0
    for seed in range(TRIES):
        disk = SimulatedDisk(random.Random(seed), trace)
        _durable_file(disk, "log", b"")
        file = disk.open("log")
        file.pwrite(0, [b"x" * 50])
        disk.faults.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        assert disk.read("log") == b"x" * 50, "the cache still shows it"
        file.sync()
        lost += disk.power_loss(random.Random(seed)).read("log") != b"x" * 50
    assert 0 < lost < TRIES


def test_no_sync_of_a_process_succeeds_after_a_failed_sync_of_the_whole_disk(disk: SimulatedDisk) -> None:
    file = disk.open("log", create=True)
    disk.faults.fail("sync_all")
    syncs = (disk.sync_all, file.sync, disk.sync_all, lambda: disk.sync_dir(""))
    for sync in syncs:
        with pytest.raises(OSError, match="Input/output"):
            sync()
    restarted = disk.process_crash()
    assert restarted.sync_all()


def test_after_a_failed_sync_a_restarted_process_may_read_what_is_on_disk(trace: Trace) -> None:
    found = set()
    for seed in range(TRIES):
        disk = SimulatedDisk(random.Random(seed), trace)
        _durable_file(disk, "log", b"")
        file = disk.open("log")
        file.pwrite(0, [b"x" * 50])
        disk.faults.fail("sync")
        with pytest.raises(OSError):
            file.sync()
        found.add(disk.process_crash().read("log"))
    assert {b"", b"x" * 50} <= found


def test_writing_the_bytes_again_after_a_failed_sync_saves_them(trace: Trace) -> None:
    def prepare(disk: SimulatedDisk) -> None:
        _durable_file(disk, "log", b"")
        file = disk.open("log")
        file.pwrite(0, [b"data"])
        disk.faults.fail("sync")
        with pytest.raises(OSError):
            file.sync()
        file.pwrite(0, [b"data"])
        file.sync()

    assert outcomes(trace, prepare, _read_or_none("log")) == {b"data"}


def test_full_disk_writes_only_a_part(disk: SimulatedDisk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"a" * 90])
    disk.faults.capacity_bytes = 100
    assert disk.free_bytes() == 10
    with pytest.raises(OSError) as raised:
        file.pwrite(90, [b"b" * 20])
    assert raised.value.errno == errno.ENOSPC
    assert 90 <= file.size() <= 100
    file.pwrite(0, [b"c" * 90])
    disk.faults.heal()
    file.pwrite(90, [b"b" * 20])


def test_armed_error_strikes_the_nth_operation_only(disk: SimulatedDisk) -> None:
    file = disk.open("log", create=True)
    disk.faults.fail("pwrite", errno.EIO, skip=1)
    file.pwrite(0, [b"first"])
    with pytest.raises(OSError, match="Input/output"):
        file.pwrite(5, [b"second"])
    file.pwrite(5, [b"third"])


def test_process_can_die_in_the_middle_of_a_write(trace: Trace) -> None:
    sizes = set()
    for seed in range(TRIES):
        disk = SimulatedDisk(random.Random(seed), trace)
        file = disk.open("log", create=True)
        disk.faults.crash_after(2)
        file.pwrite(0, [b"a"])
        with pytest.raises(SimulatedCrash):
            file.pwrite(1, [b"bcd"])
        sizes.add(disk.process_crash().size("log"))
    assert sizes == {1, 2, 3, 4}


def test_cold_pages_are_not_served_without_waiting(disk: SimulatedDisk) -> None:
    file = disk.open("log", create=True)
    file.pwrite(0, [b"data"])
    disk.faults.cold_reads = 1.0
    assert file.pread_cached(0, 4) is None
    assert not file.is_cached(0, 4)
    assert file.pread(0, 4) == b"data"


def test_copy_has_the_content_and_another_status(trace: Trace) -> None:
    disk = SimulatedDisk(random.Random(1), trace)
    disk.make_dir("logs")
    disk.replace("logs/log", b"first")
    copy = disk.copy()
    disk.replace("logs/log", b"second")
    assert (disk.read("logs/log"), copy.read("logs/log")) == (b"second", b"first")
    for path in ("logs", "logs/log"):
        assert copy.status(path).inode != disk.status(path).inode
        assert copy.status(path).changed_ns > copy.status(path).modified_ns
    assert copy.power_loss(random.Random(1)).read("logs/log") == b"first"


def test_damaged_and_swapped_files_survive_a_power_loss(disk: SimulatedDisk) -> None:
    for name in ("a", "b", "c", "d"):
        disk.replace(name, name.encode())
    disk.damage("a", b"x")
    disk.damage("b", None)
    disk.swap("c", "d")
    disk = disk.power_loss(random.Random(1))
    assert disk.names("") == ["a", "c", "d"]
    assert [disk.read(name) for name in ("a", "c", "d")] == [b"x", b"d", b"c"]
