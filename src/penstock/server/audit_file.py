"""File of the audit log with its own rotation: `FILE` (current), `FILE.1` (newest rotated file) to `FILE.N` (oldest).
Called in a thread pool.
"""

from __future__ import annotations

import os
import sys


class AuditFile:
    def __init__(self, path: str, max_bytes: int, kept_files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files

    def write(self, lines: bytes) -> None:
        """Append lines. If the file ends in an incomplete line, after a full disk or a crash, a line break is written
        first. Raises OSError.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                os.write(descriptor, b"\n")
            written = 0
            while written < len(lines):
                written += os.write(descriptor, lines[written:])
            is_full = size + len(lines) >= self._max_bytes
        finally:
            os.close(descriptor)
        if is_full:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(self._kept_files, 1, -1):
            older = f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.replace(self._path, f"{self._path}.1")


def write_to_standard_error(lines: bytes) -> None:
    sys.stderr.buffer.write(lines)
    sys.stderr.buffer.flush()
