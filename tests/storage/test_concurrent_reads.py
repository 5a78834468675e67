"""Reads in pool threads while the loop thread appends, rolls, flushes, checkpoints and deletes."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_helpers import NOW_MS, append, make_context, make_log

from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.records.iteration import iterate, read_batches
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig

APPENDS = 1500


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Reader(threading.Thread):
    def __init__(self, log: Log, seed: int, done: threading.Event) -> None:
        super().__init__()
        self.log = log
        self.random = random.Random(seed)
        self.done = done
        self.reads = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.read_once()
                self.reads += 1
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    def read_once(self) -> None:
        log = self.log
        below = log.log_end_offset
        start = log.log_start_offset
        if below == start:
            return
        offset = self.random.choice((below - 1, self.random.randrange(start, below), start))
        try:
            content = log.read(Offset(offset), 2000, below=below, at_least_one=True, wait=True).read()
        except BrokerError as refused:
            if refused.code is ErrorCode.offset_out_of_range and offset < log.log_start_offset:
                return
            raise
        batches = list(read_batches(memoryview(content)))
        if not batches and offset < log.log_start_offset:
            return
        assert batches[0][0].base_offset <= offset <= batches[0][0].last_offset
        for header, batch in batches:
            assert header.last_offset < below
            for record in iterate(batch, header):
                assert record.value == b"%06d" % record.offset
        found = log.find_timestamp(NOW_MS + offset, below)
        assert found is None or found.offset >= offset


@pytest.mark.slow
def test_concurrent_readers_see_whole_batches_below_their_bound(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    context.files = FileCache(context.disk, 8)
    log = make_log(context, LogConfig(segment_bytes=3000, index_interval_bytes=300))
    done = threading.Event()
    readers = [Reader(log, seed, done) for seed in range(3)]
    for reader in readers:
        reader.start()
    try:
        for number in range(APPENDS):
            offset = log.log_end_offset
            values = [b"%06d" % (offset + place) for place in range(number % 3 + 1)]
            append(log, *values, timestamp=NOW_MS + offset, now_ms=NOW_MS + offset)
            maintain(log, number)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    for reader in readers:
        if reader.error is not None:
            raise reader.error
        assert reader.reads > 20


def maintain(log: Log, number: int) -> None:
    if number % 20 == 0:
        flush = log.jobs.begin_flush()
        flush.work()
        log.jobs.finish_flush(flush)
    if number % 70 == 0:
        checkpoint = log.jobs.begin_checkpoint()
        if checkpoint is not None:
            checkpoint.work()
            log.jobs.finish_checkpoint(checkpoint)
    if number % 150 == 149:
        log.advance_log_start(Offset(log.log_start_offset + (log.log_end_offset - log.log_start_offset) // 2))
        deletion = log.jobs.begin_delete()
        if deletion is not None:
            deletion.work()
            log.jobs.finish_delete(deletion)
