"""A data directory that was restored from a copy proves nothing about the last writes of its broker."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest
from log_helpers import DIRECTORY_ID, NODE, NOW_MS, append, open_manager, the_log

from penstock.model import BrokerEpoch
from penstock.storage.data_directory import BOOT_FILE, DIRECTORY_MARKER_FILE, distrust_boot
from penstock.storage.disk import RealDisk
from penstock.storage.log_manager import LogManager
from support.directory_copies import (
    RESTORES,
    Restore,
    copy_back,
    copy_directory,
    move_in_place,
    synchronize,
)

EPOCH = BrokerEpoch(7)
BOOT = "boot"
NEW_ID = UUID(int=4711)


def use(data: Path, epoch: BrokerEpoch, *values: bytes) -> tuple[RealDisk, LogManager]:
    """A broker that has registered with the directory and appends."""
    disk = RealDisk(str(data))
    manager = open_manager(disk, BOOT)
    log = the_log(manager)
    manager.record_use(epoch)
    for value in values:
        append(log, value)
    return disk, manager


def reopen(data: Path, boot_id: str = BOOT) -> LogManager:
    manager = LogManager(RealDisk(str(data)), NODE)
    manager.open(NOW_MS, NEW_ID, boot_id)
    return manager


@pytest.mark.parametrize("restore", RESTORES, ids=lambda restore: restore.__name__)
def test_copy_of_a_running_broker_counts_as_another_disk(tmp_path: Path, restore: Restore) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    disk, manager = use(data, EPOCH, b"before")
    copy_directory(data, copy)
    append(the_log(manager), b"after")
    disk.close()
    restore(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    assert (restored.kept_epoch, restored.was_clean) == (None, None)
    assert restored.directory_id == NEW_ID
    assert the_log(restored).log_end_offset == 1


@pytest.mark.parametrize("restore", RESTORES, ids=lambda restore: restore.__name__)
def test_copy_of_a_stopped_broker_counts_as_another_disk(tmp_path: Path, restore: Restore) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    _, manager = use(data, EPOCH, b"before")
    manager.close(EPOCH)
    copy_directory(data, copy)
    disk, _ = use(data, BrokerEpoch(8), b"after")
    disk.close()
    restore(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    assert (restored.kept_epoch, restored.was_clean) == (None, None)
    assert restored.directory_id == NEW_ID


@pytest.mark.parametrize("restore", RESTORES, ids=lambda restore: restore.__name__)
def test_logs_restored_after_a_clean_stop_are_not_trusted(tmp_path: Path, restore: Restore) -> None:
    """The file of the clean stop remains if the tool removes nothing, or is copied after the logs."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    _, manager = use(data, EPOCH, b"before")
    copy_directory(data, copy)
    append(the_log(manager), b"after")
    manager.close(EPOCH)
    (copy / "clean-stop").write_bytes((data / "clean-stop").read_bytes())
    restore(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    assert restored.was_clean is None


def test_moved_directory_is_the_same_disk(tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    disk, _ = use(data, EPOCH, b"kept")
    disk.close()
    data.rename(moved)
    manager = reopen(moved)
    assert not manager.is_copy
    assert manager.kept_epoch == EPOCH
    assert manager.directory_id == DIRECTORY_ID


def test_changed_owner_or_mode_counts_as_another_disk(tmp_path: Path) -> None:
    disk, _ = use(tmp_path, EPOCH, b"kept")
    disk.close()
    for path in tmp_path.rglob("*"):
        os.chown(path, os.getuid(), os.getgid())
    # The times of files have a resolution of some milliseconds.
    [marker] = (tmp_path / "logs").glob("marker-*")
    os.utime(marker, (0, 0))
    assert reopen(tmp_path).is_copy


def test_another_boot_keeps_the_clean_stop_and_the_directory_id(tmp_path: Path) -> None:
    _, manager = use(tmp_path, EPOCH, b"kept")
    manager.close(EPOCH)
    again = reopen(tmp_path, "another boot")
    assert (again.is_copy, again.was_clean, again.kept_epoch) == (False, EPOCH, None)
    assert again.directory_id == DIRECTORY_ID


def test_crash_before_a_registration_is_recorded_keeps_the_former(tmp_path: Path) -> None:
    class CrashingDisk(RealDisk):
        def replace(self, path: str, content: bytes) -> None:
            if path == BOOT_FILE:
                raise KeyboardInterrupt
            super().replace(path, content)

    disk, _ = use(tmp_path, EPOCH, b"kept")
    disk.close()
    disk = CrashingDisk(str(tmp_path))
    manager = open_manager(disk, BOOT)
    with pytest.raises(KeyboardInterrupt):
        manager.record_use(BrokerEpoch(8))
    disk.close()
    again = reopen(tmp_path)
    assert (again.is_copy, again.kept_epoch) == (False, EPOCH)


def test_directory_of_a_version_without_markers_is_no_copy(tmp_path: Path) -> None:
    """An earlier version wrote the boot id alone. Its clean stop counts; without one nothing is proven."""
    _, manager = use(tmp_path, EPOCH, b"kept")
    manager.close(EPOCH)
    (tmp_path / BOOT_FILE).write_bytes(BOOT.encode())
    (tmp_path / DIRECTORY_MARKER_FILE).unlink()
    for marker in (tmp_path / "logs").glob("marker-*"):
        marker.unlink()
    again = reopen(tmp_path)
    assert (again.is_copy, again.was_clean, again.kept_epoch) == (False, EPOCH, None)


def test_one_marker_is_left_after_several_registrations(tmp_path: Path) -> None:
    for epoch in (7, 8, 9):
        disk, _ = use(tmp_path, BrokerEpoch(epoch))
        disk.close()
    assert [path.name for path in (tmp_path / "logs").glob("marker-*")] == ["marker-9"]


@pytest.mark.parametrize("restore", RESTORES, ids=lambda restore: restore.__name__)
def test_a_restored_directory_is_the_original_after_the_next_registration(
    tmp_path: Path, restore: Restore
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    disk, _ = use(data, EPOCH, b"before")
    copy_directory(data, copy)
    disk.close()
    restore(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    restored.record_use(BrokerEpoch(8))
    restored.context.disk.close()
    killed = reopen(data)
    assert not killed.is_copy
    assert killed.kept_epoch == 8


def test_a_log_that_is_restored_a_second_time_is_found(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    disk, _ = use(data, EPOCH, b"before")
    copy_directory(data, copy)
    disk.close()
    for epoch in (8, 9):
        synchronize(copy, data)
        restored = reopen(data)
        assert restored.is_copy
        restored.record_use(BrokerEpoch(epoch))
        append(the_log(restored), b"after")
        restored.context.disk.close()


@pytest.mark.parametrize("restore", [move_in_place, copy_back, synchronize])
def test_copy_taken_before_the_first_registration_counts_as_another_disk(
    tmp_path: Path, restore: Restore
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    disk = RealDisk(str(data))
    manager = open_manager(disk, BOOT)
    copy_directory(data, copy)
    log = the_log(manager)
    manager.record_use(EPOCH)
    append(log, b"after")
    disk.close()
    restore(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    assert restored.directory_id == NEW_ID


def test_copy_taken_while_the_boot_is_distrusted_counts_as_another_disk(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    disk, manager = use(data, EPOCH, b"before")
    distrust_boot(disk)
    copy_directory(data, copy)
    append(the_log(manager), b"after")
    disk.close()
    copy_back(copy, data)
    assert reopen(data).is_copy


def test_copy_of_a_restored_directory_counts_as_another_disk_before_it_registers(tmp_path: Path) -> None:
    data, copy, second = tmp_path / "data", tmp_path / "copy", tmp_path / "second"
    disk, _ = use(data, EPOCH, b"before")
    copy_directory(data, copy)
    disk.close()
    copy_back(copy, data)
    restored = reopen(data)
    assert restored.is_copy
    copy_directory(data, second)
    restored.record_use(BrokerEpoch(8))
    restored.close(BrokerEpoch(8))
    copy_back(second, data)
    again = LogManager(RealDisk(str(data)), NODE)
    again.open(NOW_MS, UUID(int=4712), BOOT)
    assert again.is_copy
    assert again.directory_id == UUID(int=4712)


def test_distrusted_boot_leaves_the_original_directory_its_id(tmp_path: Path) -> None:
    disk, _ = use(tmp_path, EPOCH, b"kept")
    distrust_boot(disk)
    disk.close()
    again = reopen(tmp_path)
    assert (again.is_copy, again.kept_epoch) == (False, None)
    assert again.directory_id == DIRECTORY_ID
