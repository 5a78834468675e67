"""Reads of committed records in pool threads while transactions end, segments are compacted and the log start moves."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from compaction_helpers import compact, compacting, roll
from log_helpers import NOW_MS, make_context, make_log
from transaction_helpers import Writer, commit_all

from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.records.control import read_marker
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import Log

TRANSACTIONS = 120


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Reader(threading.Thread):
    def __init__(self, log: Log, seed: int, stable: list[Offset], done: threading.Event) -> None:
        super().__init__()
        self.log = log
        self.random = random.Random(seed)
        self.stable = stable
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
        log, below, start = self.log, self.stable[0], self.log.log_start_offset
        if start >= below:
            return
        offset = Offset(self.random.choice((start, self.random.randrange(start, below))))
        max_bytes = self.random.choice((1, 500, 5_000))
        try:
            records, aborted = log.read_committed(
                offset, max_bytes, below=below, at_least_one=True, wait=True
            )
            content = records.read()
        except BrokerError as refused:
            if refused.code is ErrorCode.offset_out_of_range and offset < log.log_start_offset:
                return
            raise
        left_out = set[int]()
        for header, batch in read_batches(memoryview(content)):
            assert header.last_offset < below
            while aborted and aborted[0].first_offset <= header.last_offset:
                left_out.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(batch, header)
                if marker is not None and not marker.is_commit:
                    left_out.discard(marker.producer_id)
                continue
            values = [record.value for record in iterate(batch, header) if record.key != b"filler"]
            if header.producer_id in left_out:
                assert not any(value == b"committed" for value in values), "left out, but committed"
            else:
                assert not any(value == b"aborted" for value in values), "shown, but aborted"


@pytest.mark.slow
def test_concurrent_readers_see_exactly_the_committed_records(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    log = make_log(context, compacting(segment_bytes=2_000, delete_retention_ms=0))
    stable = [Offset(0)]
    done = threading.Event()
    readers = [Reader(log, seed, stable, done) for seed in range(3)]
    for reader in readers:
        reader.start()
    writers = [Writer(log, producer_id) for producer_id in range(4)]
    choose = random.Random(7)
    for number in range(TRANSACTIONS):
        some = choose.sample(writers, 2)
        outcomes = [choose.random() < 0.5 for _ in some]
        for writer, commit in zip(some, outcomes, strict=True):
            for _ in range(choose.randrange(1, 4)):
                writer.write(b"committed" if commit else b"aborted", keys=[b"key-%d" % choose.randrange(20)])
        for writer, commit in zip(some, outcomes, strict=True):
            writer.end(commit=commit, bump=choose.random() < 0.3)
        commit_all(log)
        stable[0] = log.last_stable_offset
        if number % 20 == 19:
            roll(log)
            commit_all(log)
            compact(log, context.files, now_ms=NOW_MS + number)
        if number % 40 == 39:
            log.advance_log_start(Offset(log.log_start_offset + 50))
    done.set()
    for reader in readers:
        reader.join()
    assert [reader.error for reader in readers] == [None] * 3
    assert min(reader.reads for reader in readers) > 20
