"""Lookups by key in a replica's log: waiting, waking and ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.replication import keyed_log
from penstock.replication.held_appends import HeldAppend, HeldAppends
from penstock.replication.keyed_log import KeyedLog, Outcome
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.keys.lookup import KeyQuery, KeyRecords
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.threads import Pool

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
WAIT_MS = 60_000


class HeldThreads:
    """Threads whose work is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def run(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.jobs.append((future, work))
        return future

    async def finish(self) -> None:
        while self.jobs:
            future, work = self.jobs.pop(0)
            future.set_result(work())
            await asyncio.sleep(0)

    def close(self) -> None: ...


class Bench:
    def __init__(self, path: Path) -> None:
        disk = RealDisk(str(path))
        context = StorageContext(disk, FileCache(disk))
        config = LogConfig(index_by_key=True)
        self.log = Log.create(context, "logs/mail-0", TopicPartition("mail", 0), TopicId(UUID(int=1)), config)
        self.threads = HeldThreads()
        self.keyed = KeyedLog(self.log, self.threads)
        self.outcomes: dict[bytes, Outcome] = {}

    def look_up(self, key: bytes, wait_ms: int = WAIT_MS) -> None:
        def note(outcome: Outcome) -> None:
            assert key not in self.outcomes, "answered twice"
            self.outcomes[key] = outcome

        self.keyed.look_up(KeyQuery(key, Offset(0), 10, 1_000), wait_ms, note)

    def append(self, *keys: bytes, is_committed: bool = True) -> None:
        batch = memoryview(build_batch([NewRecord(key, b"value", NOW_MS) for key in keys]))
        self.log.append(batch, read_header(batch), LeaderEpoch(1), NOW_MS)
        if is_committed:
            self.commit()

    def commit(self) -> None:
        self.log.high_watermark = self.log.log_end_offset
        self.keyed.on_high_watermark()


async def test_committed_record_wakes_lookups_of_its_key(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for key in (b"ann", b"bob"):
        bench.look_up(key)
    await bench.threads.finish()
    bench.append(b"ann", b"carl", is_committed=False)
    bench.look_up(b"carl")
    await bench.threads.finish()
    assert bench.outcomes == {}, "nothing is committed"
    bench.commit()
    await bench.threads.finish()
    assert bench.outcomes.keys() == {b"ann", b"carl"}
    assert all(isinstance(each, KeyRecords) and len(each.batches) == 1 for each in bench.outcomes.values())
    bench.append(b"ann")
    await bench.threads.finish()
    assert b"bob" not in bench.outcomes


async def test_appends_cost_nothing_while_no_lookup_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"ann")
    bench.append(b"bob")
    assert bench.threads.jobs == []


async def test_key_lookup_waiters_fail_when_the_replica_stops_leading(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.look_up(b"waits")
    await bench.threads.finish()
    bench.look_up(b"is looked up")
    bench.look_up(b"is queued")
    batch = memoryview(build_batch([NewRecord(b"k", b"v", NOW_MS)]))
    originals: list[object] = []
    bench.keyed.find_original(batch, read_header(batch), originals.append)
    error = BrokerError(ErrorCode.not_leader_or_follower)
    bench.keyed.fail(error)
    assert bench.outcomes == {b"waits": error, b"is looked up": error, b"is queued": error}
    assert originals == [error]
    await bench.threads.finish()
    bench.append(b"waits", b"is looked up", b"is queued")
    await bench.threads.finish()
    assert bench.threads.jobs == []


async def test_lookup_without_a_wait_returns_no_record(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"ann")
    bench.look_up(b"bob", wait_ms=0)
    await bench.threads.finish()
    outcome = bench.outcomes[b"bob"]
    assert isinstance(outcome, KeyRecords)
    assert (outcome.batches, outcome.is_complete, outcome.next_offset) == ([], True, 1)


async def test_abandoned_lookup_is_not_called_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    called: list[object] = []
    wait = bench.keyed.look_up(KeyQuery(b"ann", Offset(0), 10, 1_000), WAIT_MS, called.append)
    await bench.threads.finish()
    bench.keyed.give_up(wait)
    bench.append(b"ann")
    await bench.threads.finish()
    assert called == []


# --- back-pressure


class Producer:
    """Appends as the admission of a replica makes them."""

    def __init__(self, bench: Bench) -> None:
        self.appended: list[bytes] = []
        self.results: list[object] = []
        self._bench = bench
        self.held = HeldAppends(bench.log, bench.threads, self._append)
        self.held.keyed = bench.keyed

    def produce(self, *keys: bytes) -> None:
        batch = memoryview(build_batch([NewRecord(key, b"value", NOW_MS) for key in keys]))
        append = HeldAppend(batch, read_header(batch), NOW_MS, self.results.append)
        if self.held.must_hold:
            self.held.hold(append)
        else:
            self.results.append(self._append(append))

    def _append(self, held: HeldAppend) -> AppendInfo:
        return self._bench.log.append(held.batch, held.header, LeaderEpoch(1), held.now_ms)


async def test_producer_waits_while_the_index_is_far_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_log, "MAX_LAG_RECORDS", 4)
    bench = Bench(tmp_path)
    producer = Producer(bench)
    for _ in range(5):
        producer.produce(b"k")
    assert len(producer.results) == 5
    assert len(bench.threads.jobs) == 1, "the index starts to catch up before a producer has to wait"
    for _ in range(3):
        producer.produce(b"k")
    assert (len(producer.results), bench.log.log_end_offset) == (5, 5)
    await bench.threads.finish()
    offsets = [each.base_offset for each in producer.results if isinstance(each, AppendInfo)]
    assert offsets == list(range(8)), "held batches are appended in order"


async def test_producer_does_not_wait_for_records_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_log, "MAX_LAG_RECORDS", 4)
    bench = Bench(tmp_path)
    bench.append(*[b"k"] * 100)
    bench.keyed = KeyedLog(bench.log, bench.threads)
    producer = Producer(bench)
    producer.produce(b"k")
    assert len(producer.results) == 1


async def test_producer_continues_when_the_index_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_log, "MAX_LAG_RECORDS", 4)
    bench = Bench(tmp_path)
    producer = Producer(bench)
    producer.produce(*[b"k"] * 10)
    producer.produce(b"k")
    assert len(producer.results) == 1
    [(job, _)] = bench.threads.jobs
    bench.threads.jobs.clear()
    job.set_exception(OSError("the disk cannot be read"))
    await asyncio.sleep(0)
    assert len(producer.results) == 2


async def test_refused_batch_is_not_appended_when_the_index_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_log, "MAX_LAG_RECORDS", 4)
    bench = Bench(tmp_path)
    producer = Producer(bench)
    producer.produce(*[b"k"] * 10)
    producer.produce(b"k")
    refusal = BrokerError(ErrorCode.not_leader_or_follower)
    producer.held.give_up(refusal)
    await bench.threads.finish()
    assert producer.results[1:] == [refusal]
    assert bench.log.log_end_offset == 10
