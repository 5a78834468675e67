"""The state of a simulated disk's faults: armed errors, an armed crash, its capacity and how cold its cache
is.

The faults belong to the machine and outlive its processes.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Literal

Operation = Literal[
    "open", "pread", "pwrite", "truncate", "sync", "make_dir", "rename", "remove", "sync_dir", "sync_all"
]
UNLIMITED_BYTES = 1 << 40


@dataclass(slots=True)
class _Failure:
    error: int
    skip: int
    times: int


class DiskFaults:
    def __init__(self) -> None:
        self.capacity_bytes = UNLIMITED_BYTES
        self.cold_reads = 0.0
        """The likelihood that `pread_cached` and `is_cached` find a range not in memory."""
        self.failed_syncs = 0
        self._failures: dict[Operation, _Failure] = {}
        self._operations_to_crash: int | None = None

    def fail(self, operation: Operation, error: int = errno.EIO, *, skip: int = 0, times: int = 1) -> None:
        """Arm errors: the next `times` of an operation fail, after `skip` of them have passed."""
        self._failures[operation] = _Failure(error, skip, times)

    def crash_after(self, operations: int) -> None:
        """Arm a crash within an operation, `operations` from now."""
        self._operations_to_crash = operations

    def heal(self) -> None:
        """Disarm everything; what a failed fsync has lost stays lost."""
        self._failures.clear()
        self._operations_to_crash = None
        self.capacity_bytes = UNLIMITED_BYTES

    def is_last_operation(self) -> bool:
        """Count one operation, and return whether the process dies in it."""
        if self._operations_to_crash is None:
            return False
        self._operations_to_crash -= 1
        if self._operations_to_crash > 0:
            return False
        self._operations_to_crash = None
        return True

    def check(self, operation: Operation, path: str) -> None:
        """Raise the error that is armed for this operation, if it is due."""
        failure = self._failures.get(operation)
        if failure is None:
            return
        if failure.skip > 0:
            failure.skip -= 1
            return
        failure.times -= 1
        if failure.times == 0:
            del self._failures[operation]
        raise disk_error(failure.error, path)


def disk_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
