"""Checkpoints: log start, recovery mark and high watermark of every log, for the next start.

    magic 4 | version 2 | generation 8 | crc32c of the rest 4 | entries as MessagePack           little endian

One file for all logs, kept in two copies that are written in turn; the newest readable copy is used. A change that
must survive the loss of one copy (DeleteRecords, a truncation) is written to both before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

import msgspec
from crc32c import crc32c

from penstock.errors import StorageError
from penstock.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from penstock.storage.disk import Disk

COPIES = ("checkpoint.0", "checkpoint.1")
_MAGIC = b"PCKP"
_VERSION = 1
_HEAD = Struct("<4sHQI")


class RecoveryMark(msgspec.Struct, frozen=True, array_like=True):
    """The point below which log, index and snapshot are durable: `offset`, at `position` of segment `base_offset`.

    The other fields are the state of that segment at `position`, so that a start need not read the segment below it.
    """

    offset: Offset = Offset(0)
    base_offset: int = 0
    position: int = 0
    max_timestamp: int = -1
    created_ms: int = 0
    index_entries: int = 0


class LogCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    topic_id: bytes
    partition: int
    log_start_offset: Offset
    high_watermark: Offset
    cleaned_offset: Offset
    mark: RecoveryMark
    committed_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """See `Log.committed_epoch`; unknown in files of earlier versions."""


class Checkpoints:
    """The checkpoint files. One thread at a time writes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.problems: list[str] = []
        self.intact = True
        """True if both copies were readable."""
        self._generation = 0

    def load(self) -> list[LogCheckpoint] | None:
        """The entries of the newest copy; None if none can be read."""
        newest: list[LogCheckpoint] | None = None
        missing = 0
        for name in COPIES:
            try:
                generation, entries = _decode(self._disk.read(name))
            except FileNotFoundError:
                missing += 1
                continue
            except (OSError, StorageError) as problem:
                self.problems.append(f"{name}: {problem}")
                continue
            if newest is None or generation > self._generation:
                self._generation, newest = generation, entries
        self.intact = not self.problems and not missing
        return newest

    def write(self, entries: Sequence[LogCheckpoint], *, both: bool = False) -> None:
        """Write the entries durably; after an OSError the other copy is still valid."""
        for _ in COPIES if both else COPIES[:1]:
            generation = self._generation + 1
            self._disk.replace(COPIES[generation % 2], _encode(generation, entries))
            self._generation = generation


def _encode(generation: int, entries: Sequence[LogCheckpoint]) -> bytes:
    body = msgspec.msgpack.encode(entries)
    return _HEAD.pack(_MAGIC, _VERSION, generation, _checksum(generation, body)) + body


def _decode(content: bytes) -> tuple[int, list[LogCheckpoint]]:
    try:
        magic, version, generation, crc = _HEAD.unpack_from(content)
    except error:
        raise StorageError("the file is too short") from None
    body = content[_HEAD.size :]
    if magic != _MAGIC or _checksum(generation, body) != crc:
        raise StorageError("the checksum does not match")
    if version != _VERSION:
        raise StorageError(f"version {version} is not supported, only {_VERSION}")
    try:
        return generation, msgspec.msgpack.decode(body, type=list[LogCheckpoint])
    except msgspec.MsgspecError as problem:
        raise StorageError(str(problem)) from None


def _checksum(generation: int, body: bytes) -> int:
    return crc32c(body, crc32c(generation.to_bytes(8, "little")))
