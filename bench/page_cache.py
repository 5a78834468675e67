"""Removes files from the page cache, so that the next read waits for the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def drop(paths: Iterable[Path]) -> None:
    """Write the files to disk first, because dirty pages stay in the cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
