"""`Disk` in memory, with all the failures of a real disk.

Written and durable state are kept apart, for bytes and for names. A disk serves one process: after
`process_crash` or `power_loss` it is dead, and the disk that they return holds what survived.
"""

from __future__ import annotations

import errno
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from typing_extensions import Buffer

from penstock.storage.disk import FileStatus
from simulation.machine.disk_faults import UNLIMITED_BYTES, DiskFaults, Operation, disk_error
from simulation.machine.inode import Inode
from simulation.machine.namespace import Directory, Namespace
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace


class SimulatedDisk:
    def __init__(
        self,
        random: random.Random,
        trace: Trace,
        namespace: Namespace | None = None,
        faults: DiskFaults | None = None,
    ) -> None:
        self.faults = faults or DiskFaults()
        self.on_crash: Callable[[], None] = lambda: None
        """Called when an armed crash happens, before the operation raises."""
        self._random = random
        self._trace = trace
        self._namespace = namespace or Namespace()
        self._dead = False
        self._failure: OSError | None = None
        """The first failed sync of the whole disk: no later sync of this process succeeds."""

    # --- the end of a process

    def process_crash(self) -> SimulatedDisk:
        """Return the disk after the end of the process: the page cache stays, except for pages that a failed
        fsync left clean.
        """
        self._dead = True
        for inode in self._namespace.files():
            if self._random.random() < 0.5:
                inode.forget_clean_pages()
        return self._successor()

    def power_loss(self, random: random.Random) -> SimulatedDisk:
        """Return the disk after a power loss: synced state is there, and of the rest whatever `random`
        leaves.
        """
        self._dead = True
        self._namespace.power_loss(random)
        for inode in self._namespace.files():
            inode.power_loss(random)
        return self._successor()

    def copy(self) -> SimulatedDisk:
        """Return a disk with a copy of every file, as `cp -a` of the data directory makes it; this disk stays
        in use.
        """
        return SimulatedDisk(self._random, self._trace, self._namespace.copy(), self.faults)

    # --- changes from outside of the broker, which never fail

    def has(self, path: str) -> bool:
        return self._namespace.find(path) is not None

    def names(self, path: str) -> list[str]:
        return sorted(self._namespace.directory(path).entries) if self.has(path) else []

    def content(self, path: str) -> bytes:
        return bytes(self._namespace.file(path).cached)

    def damage(self, path: str, content: bytes | None) -> None:
        """Replace the bytes of a file, or remove the file."""
        self._trace.record("damage", path, -1 if content is None else zlib.crc32(content))
        if content is None:
            self._namespace.replace(path, None)
        else:
            self._namespace.file(path).damage(content)

    def swap(self, one: str, other: str) -> None:
        self._trace.record("swap", one, other)
        self._namespace.swap(one, other)

    def _successor(self) -> SimulatedDisk:
        return SimulatedDisk(self._random, self._trace, self._namespace, self.faults)

    # --- Disk

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.operate("open", path)
        node = self._namespace.find(path)
        if node is None and create:
            self._need_space(path)
            return SimulatedFile(self, self._namespace.make_file(path), path)
        return SimulatedFile(self, self._namespace.file(path), path)

    def read(self, path: str) -> bytes:
        self.operate("pread", path)
        return bytes(self._namespace.file(path).cached)

    def replace(self, path: str, content: bytes) -> None:
        temporary = path + ".tmp"
        try:
            file = self.open(temporary, create=True)
            file.truncate(0)
            file.pwrite(0, (content,))
            file.sync()
            self.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise
        self.sync_dir(path.rpartition("/")[0])

    def list(self, path: str) -> list[str]:
        self.operate("pread", path)
        return sorted(self._namespace.directory(path).entries) if self._namespace.find(path) else []

    def size(self, path: str) -> int:
        self.operate("pread", path)
        return len(self._namespace.file(path).cached)

    def exists(self, path: str) -> bool:
        self.operate("pread", path)
        return self._namespace.find(path) is not None

    def status(self, path: str) -> FileStatus:
        self.operate("pread", path)
        node = self._namespace.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        size = 0 if isinstance(node, Directory) else len(node.cached)
        return FileStatus(0, node.stamp.number, node.stamp.changed, node.stamp.modified, size)

    def make_dir(self, path: str) -> None:
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            directory = "/".join(names[:depth])
            if self._namespace.find(directory) is None:
                self.operate("make_dir", directory)
                self._need_space(directory)
            self._namespace.make_dir(directory)

    def rename(self, source: str, target: str) -> None:
        self.operate("rename", source, target)
        self._namespace.rename(source, target)

    def remove(self, path: str) -> None:
        self.operate("remove", path)
        if self._namespace.find(path) is not None:
            self._namespace.file(path)
            self._namespace.remove(path)

    def remove_tree(self, path: str) -> None:
        node = self._namespace.find(path)
        if node is None:
            return
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                self.remove_tree(f"{path}/{name}")
        self.operate("remove", path)
        self._namespace.remove(path)

    def sync_dir(self, path: str) -> None:
        self.operate("sync_dir", path)
        self._raise_failure()
        self._namespace.sync_dir(path)

    def sync_all(self) -> bool:
        try:
            self.operate("sync_all", "")
            self._raise_failure()
        except OSError as error:
            self._failure = self._failure or error
            self.faults.failed_syncs += 1
            for inode in self._namespace.files():
                inode.fail_sync(self._random)
            raise
        self._namespace.sync_all()
        for inode in self._namespace.files():
            inode.sync()
        return True

    def free_bytes(self) -> int:
        if self.faults.capacity_bytes == UNLIMITED_BYTES:
            return UNLIMITED_BYTES
        return max(0, self.faults.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        return sum(len(inode.cached) for inode in self._namespace.files())

    def lock(self) -> bool:
        """Succeed: a simulated machine has one process at a time on a directory."""
        return True

    def close(self) -> None:
        """Release nothing."""

    # --- checks before every operation

    def operate(self, operation: Operation, path: str, *details: object) -> None:
        """Pass a check for an operation that happens as a whole or not at all."""
        if self._is_fatal(operation, path, *details):
            self._die()
        self._check(operation, path)

    def write(self, inode: Inode, path: str, position: int, data: bytes) -> None:
        """Return how many bytes are written: a write may end early by a crash, an error or a full disk."""
        if self._is_fatal("pwrite", path, position, len(data), zlib.crc32(data)):
            inode.write(position, data[: self._random.randrange(len(data) + 1)])
            self._die()
        room = max(0, len(inode.cached) + self.free_bytes() - position)
        try:
            self._check("pwrite", path)
            if room < len(data):
                raise disk_error(errno.ENOSPC, path)
        except OSError:
            inode.write(position, data[: self._random.randrange(min(room, len(data)) + 1)])
            raise
        inode.write(position, data)

    def sync(self, inode: Inode, path: str) -> None:
        try:
            self.operate("sync", path)
            self._raise_failure()
        except OSError:
            self.faults.failed_syncs += 1
            inode.fail_sync(self._random)
            raise
        inode.sync()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise disk_error(self._failure.errno or errno.EIO, "")

    def is_cold(self) -> bool:
        return self._random.random() < self.faults.cold_reads

    def _is_fatal(self, operation: Operation, path: str, *details: object) -> bool:
        if self._dead:
            raise SimulatedCrash
        self._trace.record("disk", operation, path, *details)
        return self.faults.is_last_operation()

    def _check(self, operation: Operation, path: str) -> None:
        try:
            self.faults.check(operation, path)
        except OSError as error:
            self._trace.record("disk-error", operation, path, error.errno)
            raise

    def _die(self) -> None:
        self._dead = True
        self.on_crash()
        raise SimulatedCrash

    def _need_space(self, path: str) -> None:
        if self.free_bytes() == 0:
            raise disk_error(errno.ENOSPC, path)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._closed = False

    def size(self) -> int:
        self._check_open()
        return len(self._inode.cached)

    def pread(self, position: int, length: int) -> bytes:
        self._check_open()
        self._disk.operate("pread", self._path, position, length)
        return bytes(self._inode.cached[position : position + length])

    def pread_cached(self, position: int, length: int) -> bytes | None:
        return None if self._disk.is_cold() else self.pread(position, length)

    def is_cached(self, position: int, length: int) -> bool:
        return not self._disk.is_cold()

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._check_open()
        data = b"".join(buffers)
        self._disk.write(self._inode, self._path, position, data)
        return len(data)

    def truncate(self, length: int) -> None:
        self._check_open()
        self._disk.operate("truncate", self._path, length)
        self._inode.truncate(length)

    def sync(self) -> None:
        self._check_open()
        self._disk.sync(self._inode, self._path)

    def start_writeback(self, position: int, length: int) -> None:
        """Do nothing: a power loss takes or leaves any part of unsynced bytes anyway."""

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise disk_error(errno.EBADF, self._path)
