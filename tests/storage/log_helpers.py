"""Logs in a directory of the test, and their records as plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, TimestampType
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.records.validation import check_batch
from penstock.storage.disk import Disk, RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.storage.log_state import StorageContext

NOW_MS = 1_700_000_000_000
TOPIC_ID = TopicId(UUID(int=0x1234567890ABCDEF))
NAME = TopicPartition("orders", 0)
NODE = BrokerId(1)
DIRECTORY_ID = UUID(int=99)
EPOCH = LeaderEpoch(3)


def make_batch(
    values: Sequence[bytes],
    *,
    timestamp: int = NOW_MS,
    timestamps: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> memoryview:
    times = timestamps if timestamps is not None else [timestamp] * len(values)
    records = [NewRecord(b"k", value, time) for value, time in zip(values, times, strict=True)]
    return memoryview(
        build_batch(
            records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
    )


def header_of(batch: memoryview) -> BatchHeader:
    return check_batch(batch, max_bytes=len(batch))


def append(
    log: Log, *values: bytes, epoch: LeaderEpoch = EPOCH, now_ms: int = NOW_MS, **options: Any
) -> AppendInfo:
    batch = make_batch(values, **options)
    return log.append(batch, header_of(batch), epoch, now_ms)


def append_batch(log: Log, batch: memoryview, now_ms: int = NOW_MS) -> AppendInfo:
    return log.append(batch, header_of(batch), EPOCH, now_ms)


def read_all(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from `start` (default: the log start) on, by repeated reads."""
    offset = log.log_start_offset if start is None else Offset(start)
    found: list[tuple[int, bytes]] = []
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes, below=log.log_end_offset, at_least_one=True, wait=True).read()
        batches = list(read_batches(memoryview(content)))
        if not batches:
            break
        for header, batch in batches:
            assert header.timestamp_type in TimestampType
            found += [
                (record.offset, record.value or b"")
                for record in iterate(batch, header)
                if record.offset >= offset
            ]
        offset = batches[-1][0].next_offset
    return found


def flush(log: Log) -> None:
    job = log.jobs.begin_flush()
    job.work()
    log.jobs.finish_flush(job)


def checkpoint(log: Log) -> None:
    job = log.jobs.begin_checkpoint()
    if job is not None:
        job.work()
        log.jobs.finish_checkpoint(job)


def make_context(path: Path) -> StorageContext:
    disk = RealDisk(str(path))
    return StorageContext(disk, FileCache(disk))


def make_log(context: StorageContext, config: LogConfig | None = None) -> Log:
    return Log.create(context, "logs/orders-0", NAME, TOPIC_ID, config or LogConfig())


def open_manager(disk: Disk, boot_id: str = "") -> LogManager:
    manager = LogManager(disk, NODE)
    manager.open(NOW_MS, DIRECTORY_ID, boot_id)
    return manager


def the_log(manager: LogManager, config: LogConfig | None = None) -> Log:
    """The only log of a manager, created if it does not exist."""
    log = manager.get(TOPIC_ID, 0)
    if log is None:
        manager.create(NAME.topic, TOPIC_ID, [0], config or LogConfig())
        log = manager.get(TOPIC_ID, 0)
        assert log is not None
    if config is not None:
        log.config = config
    return log
