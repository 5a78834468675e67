"""File with the quiet times of draining partitions, so that a restart does not begin them anew. A hint: a lost or
damaged file makes draining slower.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.server.draining.quiet_times import QuietTime
from penstock.storage.disk import Disk

PATH = "draining-quiet-times.json"


def read_quiet_times(disk: Disk) -> list[QuietTime]:
    """Times in the file; an empty list if it does not exist or cannot be read. Waits for the disk."""
    try:
        return msgspec.json.decode(disk.read(PATH), type=list[QuietTime])
    except (OSError, msgspec.MsgspecError):
        return []


def write_quiet_times(disk: Disk, times: Iterable[QuietTime]) -> None:
    """Replace the file, or remove it without any times. OSError if the disk refuses. Waits for the disk."""
    content = list(times)
    if content:
        disk.replace(PATH, msgspec.json.encode(content))
    else:
        disk.remove(PATH)
