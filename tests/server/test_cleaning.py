from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import Log
from support.harness import Harness, serve


def put(broker: Harness, topic: str, key: bytes, value: bytes, timestamp: int | None = None) -> None:
    now_ms = broker.context.clock.now_ms()
    batch = memoryview(build_batch([NewRecord(key, value, now_ms if timestamp is None else timestamp)]))
    broker.context.replicas.get(topic, 0).append_as_leader(batch, read_header(batch), now_ms)


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, 1 << 20, below=log.log_end_offset, at_least_one=True, wait=True).read()
        batches = list(read_batches(memoryview(content)))
        found += [record.value for header, batch in batches for record in iterate(batch, header)]
        offset = batches[-1][0].next_offset
    return found


def test_compacted_topics_are_compacted_in_the_background(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(
            "a", cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0"
        )
        for number in range(50):
            put(broker, "a", b"k%d" % (number % 2), b"%d" % number)
        put(broker, "a", b"last", b"x" * 1_000)
        maintenance = broker._broker._maintenance
        await maintenance._checkpoint_logs()
        await maintenance._cleaning.compact()
        log = broker.context.replicas.get("a", 0).log
        assert values(log) == [b"48", b"49", b"x" * 1_000]
        assert log.cleaned_offset == 50
        await maintenance._cleaning.compact()
        assert values(log) == [b"48", b"49", b"x" * 1_000]

    serve(tmp_path, scenario)


def test_compaction_does_not_wait_for_the_periodic_checkpoint(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(
            "a", cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0"
        )
        for number in range(50):
            put(broker, "a", b"k%d" % (number % 2), b"%d" % number)
        put(broker, "a", b"last", b"x" * 1_000)
        await broker._broker._maintenance._compact()
        log = broker.context.replicas.get("a", 0).log
        assert values(log) == [b"48", b"49", b"x" * 1_000]

    serve(tmp_path, scenario)


def test_a_log_without_a_new_closed_segment_gets_no_checkpoint_for_compaction(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        put(broker, "a", b"k", b"1")
        await broker._broker._maintenance._compact()
        assert broker.context.replicas.get("a", 0).log.recovery_point == 0

    serve(tmp_path, scenario)


def test_topic_can_be_deleted_during_its_compaction(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        for name in ("a", "b"):
            await broker.create(
                name, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0"
            )
            for number in range(50):
                put(broker, name, b"k", b"%d" % number)
            put(broker, name, b"last", b"x" * 1_000)
        maintenance = broker._broker._maintenance
        await maintenance._checkpoint_logs()
        compaction = maintenance._cleaning.compact()
        deletion = broker.ask(20, 1, {"topic_names": ["a"], "timeout": 5_000})
        answer, _ = await asyncio.gather(deletion, compaction)
        assert answer.responses[0].error_code == 0
        assert values(broker.context.replicas.get("b", 0).log) == [b"49", b"x" * 1_000]

    serve(tmp_path, scenario)
    assert not list(tmp_path.glob("logs/a-*"))


def test_retention_frees_files_in_the_background(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_bytes="1024", retention_ms="1000")
        old_ms = broker.context.clock.now_ms() - 5_000
        for _ in range(5):
            put(broker, "a", b"k", b"x" * 1_000, old_ms)
        put(broker, "a", b"k", b"new")
        await broker._broker._maintenance._cleaning.retain()
        log = broker.context.replicas.get("a", 0).log
        assert values(log) == [b"new"]

    serve(tmp_path, scenario)
    assert len(list(tmp_path.glob("logs/a-*/*.log"))) == 1
