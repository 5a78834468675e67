"""Topics with `archive.required`: no record is removed before it is archived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_cleaning import put, values

from penstock.errors import ErrorCode
from support.harness import Harness, serve

MINUTE_MS = 60_000


async def set_config(broker: Harness, topic: str, name: str, value: str) -> int:
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    answer = await broker.ask(44, 1, {"resources": [resource], "validate_only": False})
    return int(answer.responses[0].error_code)


async def delete_records(broker: Harness, topic: str, offset: int) -> Any:
    partitions = [{"partition_index": 0, "offset": offset}]
    fields = {"topics": [{"name": topic, "partitions": partitions}], "timeout": 5_000}
    return (await broker.ask(21, 2, fields)).topics[0].partitions[0]


def fill(broker: Harness, topic: str) -> None:
    """Ten old records, one in each segment, and a new one."""
    old_ms = broker.context.clock.now_ms() - 5 * MINUTE_MS
    for number in range(10):
        put(broker, topic, b"k%d" % number, b"%d" % number + b"x" * 1_000, old_ms)
    put(broker, topic, b"k", b"new")


def test_retention_stops_at_the_archived_offset_and_reports_it(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_bytes="1024", retention_ms="1000", archive_required="true")
        fill(broker, "a")
        cleaning = broker._broker._maintenance._cleaning
        replica = broker.context.replicas.get("a", 0)
        await cleaning.retain()
        assert replica.log.log_start_offset == 0
        assert cleaning.held == {replica: 10}
        assert await set_config(broker, "a", "archive.offsets", "0:4,7:1") == 0
        await cleaning.retain()
        assert replica.log.log_start_offset == 4
        assert cleaning.held == {replica: 6}
        assert await set_config(broker, "a", "archive.offsets", "0:11") == 0
        await cleaning.retain()
        assert replica.log.log_start_offset == 10
        assert cleaning.held == {}
        assert values(replica.log) == [b"new"]

    serve(tmp_path, scenario)


def test_retention_continues_when_archiving_is_no_longer_required(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_bytes="1024", retention_ms="1000", archive_required="true")
        fill(broker, "a")
        assert await set_config(broker, "a", "archive.required", "false") == 0
        await broker._broker._maintenance._cleaning.retain()
        assert broker.context.replicas.get("a", 0).log.log_start_offset == 10

    serve(tmp_path, scenario)


def test_records_that_are_not_archived_are_not_deleted_by_request_either(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", archive_required="true", archive_offsets="0:4")
        fill(broker, "a")
        for offset in (5, -1):
            assert (await delete_records(broker, "a", offset)).error_code == ErrorCode.policy_violation
        assert (await delete_records(broker, "a", 4)).low_watermark == 4

    serve(tmp_path, scenario)


def test_compaction_keeps_unarchived_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(
            "a",
            cleanup_policy="compact",
            segment_bytes="1024",
            min_cleanable_dirty_ratio="0",
            archive_required="true",
        )
        for number in range(4):
            put(broker, "a", b"same", b"%d" % number + b"x" * 1_000)
        maintenance = broker._broker._maintenance
        await maintenance._checkpoint_logs()
        await maintenance._cleaning.compact()
        log = broker.context.replicas.get("a", 0).log
        assert len(values(log)) == 4
        assert await set_config(broker, "a", "archive.offsets", "0:4") == 0
        await maintenance._cleaning.compact()
        assert len(values(log)) < 4

    serve(tmp_path, scenario)


def test_invalid_offsets_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        for wrong in ("0", "0:-1", "0:1,0:2", "x:1", f"0:{1 << 63}"):
            assert await set_config(broker, "a", "archive.offsets", wrong) == ErrorCode.invalid_config

    serve(tmp_path, scenario)
