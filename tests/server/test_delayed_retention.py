"""Settings, retention and deletion of topics with delayed messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from support.delayed_partition import HOUR_MS, TOPIC, Partition, run
from support.harness import Harness, new_topic, serve
from support.manual_clock import START_MS, ManualClock
from support.transaction_wire import fetch, seen


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({"delivery.delay": "true", "cleanup.policy": "compact"}, "cannot be compacted"),
        ({"delivery.delay": "true", "message.timestamp.type": "CreateTime"}, "LogAppendTime"),
        ({"delivery.delay.default.ms": "5"}, "needs delivery.delay=true"),
        (
            {"delivery.delay": "true", "delivery.delay.default.ms": "5", "delivery.delay.max.ms": "4"},
            "more than",
        ),
        ({"delivery.delay": "maybe"}, "true or false"),
    ],
)
def test_contradicting_delay_configs_are_refused(
    tmp_path: Path, configs: dict[str, str | None], problem: str
) -> None:
    async def scenario(broker: Harness) -> None:
        asked = {"topics": [new_topic("a", 1, configs=configs)], "timeout": 5_000, "validate_only": False}
        [created] = (await broker.ask(19, 7, asked)).topics
        assert created.error_code == ErrorCode.invalid_config
        assert problem in created.error_message

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [("delivery.delay", "false"), ("message.timestamp.type", "CreateTime"), ("cleanup.policy", "compact")],
)
def test_delay_configs_that_readers_depend_on_cannot_be_changed(
    tmp_path: Path, name: str, value: str
) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        change = {"name": name, "config_operation": 0, "value": value}
        asked = {"resource_type": 2, "resource_name": TOPIC, "configs": [change]}
        answer = await partition.broker.ask(44, 1, {"resources": [asked], "validate_only": False})
        assert answer.responses[0].error_code == ErrorCode.invalid_config

    run(tmp_path, scenario)


async def fill(partition: Partition, segments: int) -> None:
    """Append ordinary records until some segments are closed."""
    log = partition.broker.context.replicas.get(TOPIC, 0).log
    wanted = len(log.segments) + segments
    while len(log.segments) < wanted:
        assert (await partition.send((b"x" * 200, []))).error_code == 0


def test_retention_appends_pending_messages_again(tmp_path: Path) -> None:
    clock, ensemble = ManualClock(), MemoryEnsemble()
    configs = {"segment_bytes": "1024", "retention_ms": "60000"}

    async def before(partition: Partition) -> None:
        await partition.create(**configs)
        await partition.delay(b"late", 2 * HOUR_MS)
        await partition.delay(b"early", 10)
        cancelled = await partition.delay(b"cancelled", HOUR_MS)
        await partition.send((b"", [("penstock-cancel", b"%d" % cancelled)]))
        await fill(partition, 3)
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        for _ in range(3):
            await partition.pass_time(100_000)
            await fill(partition, 1)
            start = log.log_start_offset
            await partition.broker._broker._maintenance._cleaning.retain()
            assert log.log_start_offset > start
            assert len(partition.delayed.pending) == 1

    async def after(partition: Partition) -> None:
        await partition.settle()
        assert len(partition.delayed.pending) == 1
        await partition.pass_time(2 * HOUR_MS)
        late = [each for each in await partition.seen() if each.value != b"x" * 200]
        assert [(each.value, each.timestamp) for each in late] == [(b"late", START_MS + 2 * HOUR_MS)]
        assert dict(late[0].headers) == {
            "penstock-origin-offset": b"0",
            "penstock-origin-timestamp": b"%d" % START_MS,
        }

    run(tmp_path, before, clock, ensemble)
    run(tmp_path, after, clock, ensemble)


def test_retention_by_size_keeps_segments_of_pending_messages(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(segment_bytes="1024", retention_bytes="3000")
        for _ in range(40):
            await partition.delay(b"x" * 200, HOUR_MS)
        await partition.settle()
        await partition.broker._broker._maintenance._cleaning.retain()
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        assert (log.log_start_offset, log.log_end_offset) == (0, 40)
        assert partition.broker.context.replicas.delay_counts.held_segments > 0
        await partition.pass_time(HOUR_MS)
        await partition.broker._broker._maintenance._cleaning.retain()
        assert log.log_start_offset >= 40

    run(tmp_path, scenario)


def test_delete_records_removes_pending_messages(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        batch = [(b"%d" % place, [("penstock-delay-ms", b"50")]) for place in range(10)]
        assert (await partition.send(*batch)).error_code == 0
        await partition.settle()
        asked = {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 4}]}],
            "timeout": 5_000,
        }
        await partition.broker.ask(21, 2, asked)
        assert len(partition.delayed.pending) == 6
        await partition.pass_time(50)
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        found = await fetch(partition.broker, TOPIC, log.log_start_offset)
        assert seen(found) == [b"%d" % place for place in range(4, 10)]

    run(tmp_path, scenario)


def test_delete_records_returns_the_number_of_removed_pending_messages(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        for place in range(5):
            await partition.delay(b"%d" % place, HOUR_MS)
        await partition.send((b"now", []))
        wanted = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 3}]}
        for removed in (3, 0):
            answer = await partition.broker.ask(21, 2, {"topics": [wanted], "timeout": 5_000})
            [result] = answer.topics[0].partitions
            assert (result.error_code, result.low_watermark, result.removed_pending) == (0, 3, removed)
        older = await partition.broker.ask(21, 1, {"topics": [wanted], "timeout": 5_000})
        assert older.topics[0].partitions[0].low_watermark == 3
        await partition.pass_time(HOUR_MS)
        assert await partition.values() == [b"now", b"3", b"4"]

    run(tmp_path, scenario)
