"""A file of zeros that the broker removes when it starts, so that the start can write files on a full disk."""

from __future__ import annotations

from contextlib import suppress

from penstock.storage.disk import Disk

RESERVE_FILE = "reserve"
RESERVE_BYTES = 512 * 1024


def release_reserve(disk: Disk) -> None:
    """Remove the file, so that the start can use the space."""
    disk.remove(RESERVE_FILE)


def keep_reserve(disk: Disk) -> None:
    """Write the file again for the next start, unless the disk is full. The file need not be durable."""
    try:
        disk.open(RESERVE_FILE, create=True).pwrite(0, (bytes(RESERVE_BYTES),))
    except OSError:
        with suppress(OSError):
            disk.remove(RESERVE_FILE)
