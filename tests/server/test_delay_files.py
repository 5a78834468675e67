"""Files of delayed messages: a broker that starts reads them in place of the records, unless they are not valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.model import Offset
from penstock.server import delay_filing
from penstock.storage import delayed_records
from penstock.storage.delay_files import DelayFileJob
from penstock.storage.segment import DELAYS_SUFFIX
from support.delayed_partition import HOUR_MS, TOPIC, Partition, run
from support.eventually import eventually_async
from support.manual_clock import ManualClock

MESSAGES = 60


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offsets from which records are read for their events."""
    found: list[int] = []
    scan = delayed_records.scan

    def noted(log: Any, offset: Any, below: Any) -> Any:
        found.append(offset)
        return scan(log, offset, below)

    monkeypatch.setattr(delayed_records, "scan", noted)
    return found


async def fill(partition: Partition) -> None:
    """Store delayed messages in several segments; the first ten are delivered, the next one is cancelled."""
    for number in range(MESSAGES):
        await partition.delay(b"%d" % number, 10 if number < 10 else HOUR_MS)
    await partition.pass_time(10)
    assert (await partition.send((b"", [("penstock-cancel", b"10")]))).error_code == 0
    await partition.settle()
    log = partition.broker.context.replicas.get(TOPIC, 0).log
    assert len(log.segments) > 3
    await eventually_async(
        lambda: all(DELAYS_SUFFIX in segment.derived for segment in log.segments), "all segments have files"
    )


async def expect_rest(partition: Partition) -> None:
    await partition.settle()
    assert len(partition.delayed.pending) == MESSAGES - 11
    await partition.pass_time(HOUR_MS)
    expected = [*range(10), *range(11, MESSAGES)]
    assert sorted(int(value or b"") for value in await partition.values()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["none", "content", "head", "missing", "other order"])
def test_restarted_broker_reads_delay_files(
    tmp_path: Path, scans: list[int], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(delay_filing, "ACTIVE_BYTES", 1)
    clock, ensemble = ManualClock(), MemoryEnsemble()

    async def before(partition: Partition) -> None:
        await partition.create(segment_bytes="1024")
        await fill(partition)

    async def after(partition: Partition) -> None:
        await partition.settle()
        assert (0 in scans) is (damage != "none")
        await expect_rest(partition)

    run(tmp_path, before, clock, ensemble)
    scans.clear()
    for path in tmp_path.rglob("*" + DELAYS_SUFFIX):
        content = bytearray(path.read_bytes())
        if damage == "missing":
            path.unlink()
        elif damage == "other order":
            path.write_bytes(content[3::-1] + content[4:])
        elif damage != "none":
            content[-1 if damage == "content" else 20] ^= 1
            path.write_bytes(content)
    run(tmp_path, after, clock, ensemble)


def test_delay_file_that_covers_no_record_is_skipped(tmp_path: Path) -> None:
    clock, ensemble = ManualClock(), MemoryEnsemble()

    async def before(partition: Partition) -> None:
        await partition.create()
        await partition.delay(b"later", 10)
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        segment = log.segments[0]
        job = DelayFileJob(log.files.disk, segment, segment.size, Offset(0), 1 << 20, lambda: True)
        assert job.write()
        assert job.place().end_offset == 0

    async def after(partition: Partition) -> None:
        await partition.pass_time(10)
        assert await partition.values() == [b"later"]

    run(tmp_path, before, clock, ensemble)
    run(tmp_path, after, clock, ensemble)


@pytest.mark.slow
def test_delay_files_are_removed_with_their_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_filing, "ACTIVE_BYTES", 1)

    async def scenario(partition: Partition) -> None:
        await partition.create(segment_bytes="1024")
        await fill(partition)
        end = partition.broker.context.replicas.get(TOPIC, 0).log.high_watermark
        wanted = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": end}]}
        answer = await partition.broker.ask(21, 2, {"topics": [wanted], "timeout": 5_000})
        assert answer.topics[0].partitions[0].removed_pending == MESSAGES - 11
        await eventually_async(lambda: len(list(tmp_path.rglob("*" + DELAYS_SUFFIX))) <= 1)

    run(tmp_path, scenario)
