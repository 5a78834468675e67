"""Time of one append and of one read: `python bench/storage_append.py [record bytes]`."""

from __future__ import annotations

import sys
import tempfile
import time
from uuid import UUID

from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.building import NewRecord, build_batch
from penstock.records.validation import check_batch
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext

APPENDS = 50_000
ROUNDS = 5
NOW_MS = 1_700_000_000_000


def _measure(log: Log, batch: memoryview, producer_id: int) -> tuple[float, float]:
    header = check_batch(batch, max_bytes=len(batch))._replace(producer_id=producer_id, producer_epoch=0)
    started = time.perf_counter()
    for number in range(APPENDS):
        log.append(batch, header._replace(base_sequence=number), LeaderEpoch(0), NOW_MS)
    appended = time.perf_counter()
    end = log.log_end_offset
    for offset in range(end - APPENDS, end):
        log.read(Offset(offset), 1 << 20, below=end, at_least_one=True)
    return (appended - started) / APPENDS * 1e6, (time.perf_counter() - appended) / APPENDS * 1e6


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    batch = memoryview(build_batch([NewRecord(None, b"x" * size, NOW_MS)]))
    with tempfile.TemporaryDirectory() as root:
        disk = RealDisk(root)
        context = StorageContext(disk, FileCache(disk))
        for name, producer_id in (("plain", -1), ("idempotent", 7)):
            log = Log.create(
                context, f"logs/{name}", TopicPartition(name, 0), TopicId(UUID(int=1)), LogConfig()
            )
            if producer_id >= 0:
                rounds = [_measure(log, batch, producer_id)]
            else:
                rounds = [_measure(log, batch, producer_id) for _ in range(ROUNDS)]
            append_us, read_us = min(rounds)
            print(f"{name:12} {size} B: append {append_us:.1f} us, read {read_us:.1f} us")


if __name__ == "__main__":
    main()
