"""File with the quiet times of draining partitions, so that they do not begin anew after a restart. The file is only a
hint: if it is lost or damaged, draining takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.server.draining.quiet_times import QuietTime
from penstock.storage.disk import Disk

PATH = "draining-quiet-times.json"


def read_quiet_times(disk: Disk) -> list[QuietTime]:
    """Read the quiet times; returns an empty list if the file does not exist or cannot be read. Waits for the disk."""
    try:
        return msgspec.json.decode(disk.read(PATH), type=list[QuietTime])
    except (OSError, msgspec.MsgspecError):
        return []


def write_quiet_times(disk: Disk, times: Iterable[QuietTime]) -> None:
    """Replace the file, or remove it if `times` is empty. Raises OSError. Waits for the disk."""
    content = list(times)
    if content:
        disk.replace(PATH, msgspec.json.encode(content))
    else:
        disk.remove(PATH)
