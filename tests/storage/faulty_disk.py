"""A real disk on which the nth changing call fails, on request after half of a write."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from typing_extensions import Buffer

from penstock.storage.disk import RealDisk, RealFile


class FaultyFile(RealFile):
    __slots__ = ("_faults",)

    def __init__(self, fd: int, faults: FaultyDisk) -> None:
        super().__init__(fd)
        self._faults = faults

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        if self._faults.strikes("pwrite"):
            if self._faults.partial:
                content = b"".join(bytes(buffer) for buffer in buffers)
                super().pwrite(position, (content[: len(content) // 2],))
            self._faults.fail()
        return super().pwrite(position, buffers)

    def truncate(self, length: int) -> None:
        self._faults.pass_or_fail("truncate")
        super().truncate(length)

    def sync(self) -> None:
        """Sync nothing: these tests are about errors, and run hundreds of times."""
        self._faults.pass_or_fail("sync")


class FaultyDisk(RealDisk):
    def __init__(
        self, root: str, *, fail_at: int = -1, error: int = errno.EIO, partial: bool = False
    ) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.partial = partial
        self._error = error

    @property
    def struck(self) -> str | None:
        """The call that failed, if any did."""
        return self.calls[self.fail_at] if 0 <= self.fail_at < len(self.calls) else None

    def strikes(self, call: str) -> bool:
        self.calls.append(call)
        return len(self.calls) - 1 == self.fail_at

    def fail(self) -> None:
        raise OSError(self._error, os.strerror(self._error))

    def pass_or_fail(self, call: str) -> None:
        if self.strikes(call):
            self.fail()

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create:
            self.pass_or_fail("create")
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return FaultyFile(os.open(self._locate(path), flags, 0o644), self)

    def make_dir(self, path: str) -> None:
        self.pass_or_fail("make_dir")
        super().make_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.pass_or_fail("rename")
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.pass_or_fail("remove")
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.pass_or_fail("sync_dir")

    def sync_all(self) -> bool:
        self.pass_or_fail("sync_all")
        return True
