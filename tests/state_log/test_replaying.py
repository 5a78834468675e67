"""Replaying a log into a state: which records are applied, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from penstock.model import LeaderEpoch, TopicId, TopicPartition
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.state_log.replaying import Replaying
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.threads import Pool

T = TypeVar("T")


class Inline:
    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(work())
        return future

    def close(self) -> None: ...


def log_of(directory: Path, *batches: list[tuple[bytes, bytes | None]]) -> Log:
    disk = RealDisk(str(directory))
    name = TopicPartition("__states", 0)
    context = StorageContext(disk, FileCache(disk, 10))
    log = Log.create(context, "logs/states-0", name, TopicId(UUID(int=1)), LogConfig())
    log.assign_epoch(LeaderEpoch(0))
    for records in batches:
        batch = memoryview(build_batch([NewRecord(key, value, 1) for key, value in records]))
        log.append(batch, read_header(batch), LeaderEpoch(0), 1)
    return log


@pytest.mark.parametrize("newest_only", [False, True])
async def test_every_record_is_applied_unless_only_the_newest_counts(
    tmp_path: Path, newest_only: bool
) -> None:
    written: list[list[tuple[bytes, bytes | None]]] = [
        [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")],
        [(b"a", None), (b"c", b"4"), (b"b", b"5")],
    ]
    replica: Any = type("FakeReplica", (), {"log": log_of(tmp_path, *written)})()
    applied: list[tuple[bytes, bytes | None]] = []
    decode = cast("Callable[[bytes, bytes | None], tuple[bytes, bytes | None]]", lambda *pair: pair)
    replaying = Replaying(replica, Inline(), decode, applied.append, newest_only=newest_only)
    await replaying.run()
    everything = [record for batch in written for record in batch]
    assert applied == (everything[3:] if newest_only else everything)
    assert (replaying.unknown, replaying.damaged_parts) == (0, 0)
