"""Long polls of a view are woken by a match and by a change of the replica or the view, and by nothing else."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from penstock.clock import SystemClock
from penstock.filters.matching import Filter
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.replication import projected_log
from penstock.replication.projected_log import MatchWait, ProjectedLog, ScanSlots
from penstock.replication.projections import Projection, Projections
from penstock.replication.waiting import DataWaiters
from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import StorageContext
from penstock.storage.projection.reading import ProjectedQuery
from penstock.threads import ThreadPools

FILTER = 'key == "wanted"'
NOW_MS = 1_700_000_000_000


class Stage:
    """A log with a view and one waiting reader."""

    def __init__(self, path: Path) -> None:
        disk = RealDisk(str(path))
        context = StorageContext(disk, FileCache(disk, 10))
        self.log = Log.create(
            context, "orders-0", TopicPartition("orders", 0), TopicId(UUID(int=1)), LogConfig()
        )
        self.waiters = DataWaiters()
        self.threads = ThreadPools()
        self.view = ProjectedLog(
            self.log, self.waiters, ScanSlots(self.threads, SystemClock()), Filter(FILTER, 0)
        )
        self.woken = 0

    def append(self, key: bytes) -> None:
        batch = memoryview(build_batch([NewRecord(key, b"v", NOW_MS)]))
        self.log.append(batch, read_header(batch), LeaderEpoch(0), NOW_MS)
        self.log.high_watermark = self.log.log_end_offset
        self.waiters.wake()

    def wait(self) -> None:
        self.view.wait(self.wake, MatchWait(self.log.high_watermark, is_committed=False))

    def wake(self) -> None:
        self.woken += 1

    async def settle(self) -> None:
        while self.view._is_running:
            await asyncio.sleep(0.001)


async def check_wakes(stage: Stage) -> None:
    stage.wait()
    for _ in range(3):
        stage.append(b"other")
        await stage.settle()
        assert stage.woken == 0, "records that do not match end no long poll"
    stage.append(b"wanted")
    await stage.settle()
    assert stage.woken == 1
    stage.append(b"wanted")
    await stage.settle()
    assert stage.woken == 1, "a waiter is called once"


async def test_a_projection_without_readers_is_forgotten(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    projections = Projections(stage.log, stage.waiters, ScanSlots(stage.threads, SystemClock()))
    projection = Projection(TopicId(UUID(int=2)), Filter(FILTER, 0).identity, partial(Filter, FILTER))
    projected = projections.get(projection)
    projected.wait(stage.wake, MatchWait(stage.log.high_watermark, is_committed=False))
    projections.drop_unread(0.0)
    assert projections.find(projection.topic_id) is projected, "it has a reader"
    projected.stop_waiting(stage.wake)
    projections.drop_unread(60.0)
    assert projections.find(projection.topic_id) is projected, "its reader may come back"
    projections.drop_unread(0.0)
    assert projections.find(projection.topic_id) is None


async def test_only_matching_records_wake_a_waiting_reader(tmp_path: Path) -> None:
    await check_wakes(Stage(tmp_path))


async def test_a_long_poll_that_ends_with_every_append_is_noticed(tmp_path: Path) -> None:
    with patch.object(projected_log, "first_match", lambda *_: (True, 0)), pytest.raises(AssertionError):
        await check_wakes(Stage(tmp_path))


async def test_change_of_the_replica_wakes_a_waiting_reader(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.append(b"other")
    stage.wait()
    stage.waiters.wake()  # as when the replica stops leading
    assert stage.woken == 1


async def test_retired_view_wakes_its_waiting_readers(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.wait()
    stage.view.retire()
    assert (stage.woken, stage.view.is_retired) == (1, True)


async def test_reads_are_served_in_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for key in (b"wanted", b"other", b"wanted"):
        stage.append(key)
    reads = [
        stage.view.read(ProjectedQuery(Offset(offset), 1 << 20, stage.log.high_watermark, True))
        for offset in range(3)
    ]
    found = await asyncio.gather(*reads)
    assert [each.is_due for each in found] == [True, True, True]
    assert len(found[0].records) > len(found[1].records) > len(found[2].records)
    await stage.settle()
    assert stage.view._slots.scanned == 3, "each record is evaluated once"
