"""Location of a table: a directory, or an object store supported by deltalake. Files are named by relative paths.

A store is a plain value that Spark sends to tasks, with the driver's environment variables for the object store. A file
is on stable storage when `make_durable` has returned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, PyFileSystem

_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")
_LOG = "_delta_log"
_MAX_SINGLE_LOOKUPS = 10
"""Maximum number of files in a directory of an object store to look up one by one. Above it, the directory is
listed.
"""


@dataclass(frozen=True, slots=True)
class Store:
    uri: str
    """Absolute path, or URI of the object store."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @property
    def is_file_system(self) -> bool:
        """True if Spark can store checkpoints in this location without additional packages."""
        return self.is_local or self.uri.startswith("hdfs://")

    def path_of(self, name: str) -> str:
        return os.path.join(self.uri, name)

    @contextmanager
    def create(self, name: str) -> Iterator[pa.NativeFile]:
        """Create a file. A local file is removed if writing fails."""
        if not self.is_local:
            with self._file_system().open_output_stream(name) as file:
                yield file
            return
        path = self.path_of(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with pa.OSFile(path, "wb") as file:
                yield file
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise

    @contextmanager
    def open(self, name: str) -> Iterator[pa.NativeFile]:
        if self.is_local:
            with pa.OSFile(self.path_of(name)) as file:
                yield file
        else:
            with self._file_system().open_input_file(name) as file:
                yield file

    def make_durable(self, names: Iterable[str]) -> None:
        """Fsync these files and their parent directories. Object stores need no fsync."""
        if not self.is_local:
            return
        directories: dict[str, None] = {}
        for name in names:
            _sync(self.path_of(name))
            parent = os.path.dirname(name)
            while parent not in directories:
                directories[parent] = None
                parent = os.path.dirname(parent)
        for directory in directories:
            _sync(self.path_of(directory))
        _sync(os.path.dirname(self.uri))

    def make_versions_durable(self, first: int, last: int) -> None:
        """Fsync the log entries of these versions of a table."""
        names = [f"{_LOG}/{version:020}.json" for version in range(first, last + 1)]
        self.make_durable(name for name in names if self.has(name))

    def has(self, name: str) -> bool:
        """Return True if this file exists in a local store."""
        return self.is_local and os.path.exists(self.path_of(name))

    def problem_with(self, sizes: Mapping[str, int]) -> str | None:
        """Description of the first file that is missing or has the wrong size, as seen by this process; None if all
        files are correct. The driver uses it to check files written by tasks, because a worker may have written to a
        directory of the same name that the driver does not share.
        """
        found = self._sizes_of(sizes)
        for name, size in sizes.items():
            if name not in found:
                return f"there is no file {self.path_of(name)} of {size:,} bytes"
            if found[name] != size:
                return f"the file {self.path_of(name)} has {found[name]:,} bytes, not {size:,}"
        return None

    def _sizes_of(self, names: Iterable[str]) -> dict[str, int]:
        """Sizes in bytes of the files that exist."""
        if self.is_local:
            found = {}
            for name in names:
                with suppress(FileNotFoundError, NotADirectoryError):
                    found[name] = os.stat(self.path_of(name)).st_size
            return found
        by_directory: dict[str, list[str]] = {}
        for name in names:
            by_directory.setdefault(os.path.dirname(name), []).append(name)
        infos = [info for directory, each in by_directory.items() for info in self._look_up(directory, each)]
        return {info.path: info.size for info in infos if info.is_file}

    def _look_up(self, directory: str, names: list[str]) -> list[FileInfo]:
        is_listed = len(names) > _MAX_SINGLE_LOOKUPS
        wanted = FileSelector(directory, allow_not_found=True) if is_listed else names
        found: list[FileInfo] = self._file_system().get_file_info(wanted)
        return found

    def modified(self, name: str, before: float) -> bool:
        """Return True if a file was last written before a time in seconds since 1970."""
        if self.is_local:
            with suppress(FileNotFoundError):
                return os.stat(self.path_of(name)).st_mtime < before
            return False
        [found] = self._file_system().get_file_info([name])
        return found.is_file and (found.mtime is None or found.mtime.timestamp() < before)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with suppress(FileNotFoundError):
            if self.is_local:
                os.unlink(self.path_of(name))
            else:
                self._file_system().delete_file(name)

    def is_occupied(self) -> bool:
        """True if the location contains files. A table log without a version does not count: a killed creation of a
        table leaves one behind.
        """
        return self._holds("", _is_foreign) or self._holds(_LOG, _is_version)

    def _holds(self, directory: str, counts: Callable[[str], bool]) -> bool:
        if self.is_local:
            with suppress(FileNotFoundError):
                return any(map(counts, os.listdir(self.path_of(directory))))
            return False
        found = self._file_system().get_file_info(FileSelector(directory, allow_not_found=True))
        return any(counts(os.path.basename(info.path)) for info in found)

    def _file_system(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options) or None))


def store_at(place: str, environment: Mapping[str, str] = os.environ) -> Store:
    """Store for a path or URI. A path or `file:` URI is a local directory; deltalake interprets all other URIs."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return Store(os.path.abspath(unquote(parts.path) if parts.scheme else place))
    options = {name: value for name, value in environment.items() if name.startswith(_OF_STORES)}
    endpoint = (
        options.get("AWS_ENDPOINT_URL_S3") or options.get("AWS_ENDPOINT_URL") or options.get("AWS_ENDPOINT")
    )
    if endpoint is not None and endpoint.startswith("http://"):
        options.setdefault("AWS_ALLOW_HTTP", "true")  # delta-rs refuses plain HTTP endpoints without it
    return Store(place.rstrip("/"), options)


def storage_options(store: Store) -> dict[str, Any] | None:
    """Storage options for deltalake."""
    return dict(store.options) or None


def _is_foreign(name: str) -> bool:
    return name != _LOG


def _is_version(name: str) -> bool:
    return name[:20].isdigit()


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
