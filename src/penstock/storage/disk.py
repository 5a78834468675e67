"""Interface to the file system, which tests replace: all files of a broker are accessed through a `Disk`.

Paths are relative to the data directory, with forward slashes. Writes go to the operating system's cache; only
`File.sync`, `Disk.sync_all`, `Disk.sync_dir` and `Disk.replace` make anything durable, and a name (created, renamed or
removed) is durable only after `sync_dir` of its directory. Any thread may call.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

SYNC_ALL_ABOVE = 4
"""Number of dirty logs above which one `Disk.sync_all` costs less than a sync of each log; see docs/decisions/0002."""
_LINUX = sys.platform == "linux"
_LOCK_FILE = "lock"
_CACHE_PROBE_BYTES = 256 * 1024
_MAX_BUFFERS = 1024  # IOV_MAX of all supported systems
_SYNC_FILE_RANGE_WRITE = 2


class FileStatus(NamedTuple):
    """Status of a file or directory in the file system.

    A copy of a file has another inode or a later `changed_ns`, whatever tool made it, except a copy of the whole block
    device. In a copy whose modification time was preserved, `modified_ns` is older than `changed_ns`.
    """

    device: int
    inode: int
    changed_ns: int
    """Time of the last change of content, name, owner, mode or times. Programs cannot set this time."""
    modified_ns: int
    """Time of the last change of content, unless a program has set it."""
    size: int = 0


class File(Protocol):
    """An open file. Closed by `close` or with its last reference."""

    def size(self) -> int: ...

    def pread(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file. May wait for the disk."""
        ...

    def pread_cached(self, position: int, length: int) -> bytes | None:
        """Read as `pread` does, or return None if that would wait for the disk."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """True if the range is (very likely) in memory, so that sendfile does not stall the loop."""

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at `position`. After an OSError it is unknown how much was written."""

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Make all written bytes and the size durable. Waits for the disk."""
        ...

    def start_writeback(self, position: int, length: int) -> None:
        """Ask the kernel to begin writing the range to the disk; does not wait, and makes nothing durable."""
        ...

    def fileno(self) -> int | None:
        """Descriptor for sendfile; None if the file has none."""

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""
        ...

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, content: bytes) -> None:
        """Put a whole file in place durably: temporary file, sync, rename, sync of the directory."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""
        ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def status(self, path: str) -> FileStatus:
        """The status of a file or directory; FileNotFoundError if there is none."""
        ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents; durable after sync_dir of each parent."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self) -> bool:
        """Make everything written so far durable with one call; False if the system has no such call. After an OSError
        no sync of this disk or its files succeeds again, because any file may have lost pages that count as clean.
        """
        ...

    def free_bytes(self) -> int: ...

    def lock(self) -> bool:
        """Claim the whole disk for this process until `close`; False if another process has it."""
        ...

    def close(self) -> None:
        """Give up the lock; open files stay usable."""
        ...


class RealFile:
    """A file descriptor, closed with its last reference, so that a slice that is being sent survives an eviction."""

    __slots__ = ("_failures", "_fd")

    def __init__(self, fd: int, failures: Sequence[OSError] = ()) -> None:
        self._fd, self._failures = fd, failures

    def __del__(self) -> None:
        self.close()

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, position: int, length: int) -> bytes:
        content = os.pread(self._fd, length, position)
        if len(content) == length or not content:
            return content
        parts = [content]
        while content and (length := length - len(content)):
            position += len(content)
            content = os.pread(self._fd, length, position)
            parts.append(content)
        return b"".join(parts)

    def pread_cached(self, position: int, length: int) -> bytes | None:
        if not _LINUX:
            return self.pread(position, length)
        if (no_wait := _no_wait_flag()) is None:
            return None
        buffer = bytearray(length)
        view = memoryview(buffer)
        done = 0
        try:
            while done < length and (count := os.preadv(self._fd, (view[done:],), position + done, no_wait)):
                done += count
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            return self.pread(position, length)
        return bytes(view[:done])

    def is_cached(self, position: int, length: int) -> bool:
        if length <= 0 or not _LINUX:
            return True
        if (no_wait := _no_wait_flag()) is None:
            return False
        probe = (bytearray(1),)
        try:
            for place in range(position, position + length, _CACHE_PROBE_BYTES):
                os.preadv(self._fd, probe, place, no_wait)
            os.preadv(self._fd, probe, position + length - 1, no_wait)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise
        return True

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        if len(buffers) == 1:
            view = memoryview(buffers[0])
            total = view.nbytes
            written = os.pwrite(self._fd, view, position)
            if written == total:
                return total
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        if len(views) > 1:
            total = sum(map(len, views))
            written = os.pwritev(self._fd, views[:_MAX_BUFFERS], position)
        if written < total:
            self._write_rest(position, views, written)
        return total

    def _write_rest(self, position: int, views: list[memoryview], written: int) -> None:
        """Write the remaining bytes after a short write, or if there are more buffers than one call can take."""
        for view in views:
            skipped = min(written, len(view))
            written -= skipped
            position += skipped
            rest = view[skipped:]
            while rest:
                count = os.pwrite(self._fd, rest, position)
                position += count
                rest = rest[count:]

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        _sync_fd(self._fd)
        _raise_first(self._failures)

    def start_writeback(self, position: int, length: int) -> None:
        if _LIBC is not None:
            _LIBC.sync_file_range(
                self._fd,
                ctypes.c_int64(position),
                ctypes.c_int64(length),
                ctypes.c_uint(_SYNC_FILE_RANGE_WRITE),
            )

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """A directory of the file system. ValueError for a path that leads out of it."""

    def __init__(self, root: str) -> None:
        os.makedirs(root, exist_ok=True)
        self._root = os.path.abspath(root)
        # Opened once and kept: the kernel reports write errors to a descriptor only if it was open when they happened.
        self._root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        self._lock_fd, self._failures = -1, list[OSError]()
        self._temporary = itertools.count()

    def __del__(self) -> None:
        self.close()
        if (fd := getattr(self, "_root_fd", -1)) >= 0:
            os.close(fd)

    def _locate(self, path: str) -> str:
        if path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path inside the data directory")
        return f"{self._root}/{path}"

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._locate(path), flags, 0o644), self._failures)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(0, file.size())

    def replace(self, path: str, content: bytes) -> None:
        temporary = f"{path}.{next(self._temporary)}.tmp"
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
        try:
            return sorted(os.listdir(self._locate(path)))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        return os.stat(self._locate(path)).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(self._locate(path))

    def status(self, path: str) -> FileStatus:
        found = os.stat(self._locate(path), follow_symlinks=False)
        return FileStatus(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)

    def make_dir(self, path: str) -> None:
        os.makedirs(self._locate(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(self._locate(source), self._locate(target))

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._locate(path))

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._locate(path))

    def sync_dir(self, path: str) -> None:
        fd = os.open(self._locate(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        _raise_first(self._failures)

    def sync_all(self) -> bool:
        if _LIBC is None or not _SYNCFS_REPORTS_ERRORS:
            return False
        if _LIBC.syncfs(self._root_fd) != 0:
            number = ctypes.get_errno()
            self._failures.append(OSError(number, os.strerror(number), self._root))
        _raise_first(self._failures)
        return True

    def free_bytes(self) -> int:
        status = os.fstatvfs(self._root_fd)
        return status.f_bavail * status.f_frsize

    def lock(self) -> bool:
        if self._lock_fd >= 0:
            return True
        fd = os.open(f"{self._root}/{_LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._lock_fd = fd
        return True

    def close(self) -> None:
        fd, self._lock_fd = getattr(self, "_lock_fd", -1), -1
        if fd >= 0:
            os.close(fd)


def _no_wait_flag() -> int | None:
    """The flag of preadv2 for reads that never wait; None if Python was built without it.

    Python builds against an old libc, such as python-build-standalone, lack the flag. Whether bytes are in memory is
    then unknown, so they count as not cached: callers read them in a pool, and the event loop never waits for the disk.
    """
    return getattr(os, "RWF_NOWAIT", None)


def _raise_first(failures: Sequence[OSError]) -> None:
    if failures:
        raise OSError(*failures[0].args)


def _sync_fd(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync alone leaves the bytes in the drive's own cache
    else:
        os.fdatasync(fd)


def _load_libc() -> ctypes.CDLL | None:
    if not _LINUX:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "syncfs") and hasattr(libc, "sync_file_range") else None


def _syncfs_reports_errors() -> bool:
    """True if syncfs reports failed writes, as it does from Linux 5.8 on."""
    version = os.uname().release.split(".")
    try:
        return (int(version[0]), int(version[1])) >= (5, 8)
    except (IndexError, ValueError):
        return False


_LIBC = _load_libc()
_SYNCFS_REPORTS_ERRORS = _LINUX and _syncfs_reports_errors()
