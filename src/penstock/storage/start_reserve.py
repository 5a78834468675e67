"""A file of zeros whose space a broker frees when it starts, so that a start can write on a full disk."""

from __future__ import annotations

from contextlib import suppress

from penstock.storage.disk import Disk

RESERVE_FILE = "reserve"
RESERVE_BYTES = 512 * 1024


def release_reserve(disk: Disk) -> None:
    """Free the space for the start that is under way."""
    disk.remove(RESERVE_FILE)


def keep_reserve(disk: Disk) -> None:
    """Take the space again for the next start, if there is any; it need not be durable."""
    try:
        disk.open(RESERVE_FILE, create=True).pwrite(0, (bytes(RESERVE_BYTES),))
    except OSError:
        with suppress(OSError):
            disk.remove(RESERVE_FILE)
