"""Delayed messages through a whole broker, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record, iterate, read_batches
from penstock.replication.delayed_log import DelayedLog
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness, new_topic, serve
from support.manual_clock import START_MS, ManualClock
from support.transaction_wire import READ_UNCOMMITTED, Producer, ask_raw, fetch, seen

HOUR_MS = 3_600_000
TOPIC = "reminders"
Header = tuple[str, bytes]


class Partition:
    """One partition of a topic with delayed messages, and the clock of its broker."""

    def __init__(self, broker: Harness, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock

    async def create(self, **configs: str) -> None:
        await self.broker.create(TOPIC, 1, delivery_delay="true", **configs)

    @property
    def delayed(self) -> DelayedLog:
        delayed = self.broker.context.replicas.get(TOPIC, 0).delayed
        assert delayed is not None
        return delayed

    async def send(self, *records: tuple[bytes, list[Header]], topic: str = TOPIC, **batch: Any) -> Any:
        """Produce one batch; the result of its partition."""
        made = [NewRecord(b"k", value, 1_000, tuple(headers)) for value, headers in records]
        content = memoryview(build_batch(made, **batch))
        data = [ProduceTopic(topic, None, [ProducePartition(0, content)])]
        frame = encode_produce_request(7, 9, "test", ProduceRequest(None, -1, 5_000, data))
        return decode_produce_response(await ask_raw(self.broker, frame), 9).topics[0].partitions[0]

    async def delay(self, value: bytes, ms: int, **batch: Any) -> int:
        result = await self.send((value, [("penstock-delay-ms", b"%d" % ms)]), **batch)
        assert result.error_code == 0, result.error_message
        return int(result.base_offset)

    async def seen(self, topic: str = TOPIC) -> list[Record]:
        """Every record that a reader sees, from the start of the log."""
        records: list[Record] = []
        position = self.broker.context.replicas.get(TOPIC, 0).log.log_start_offset
        while position < self.broker.context.replicas.get(TOPIC, 0).log.high_watermark:
            found = await fetch(self.broker, topic, position, isolation=READ_UNCOMMITTED)
            assert isinstance(found.records, bytes | bytearray | memoryview)
            batches = list(read_batches(memoryview(found.records)))
            assert batches, f"the reader does not get behind offset {position}"
            for header, batch in batches:
                if not header.is_control:
                    records += [each for each in iterate(batch, header) if each.offset >= position]
                position = header.next_offset
        return records

    async def values(self, topic: str = TOPIC) -> list[bytes | None]:
        return [record.value for record in await self.seen(topic)]

    async def pass_time(self, ms: int) -> None:
        """Move the clock, and wait until everything that is due was delivered."""
        self.clock.advance(ms)
        await self.settle()

    async def settle(self) -> None:
        delayed = self.delayed
        log = self.broker.context.replicas.get(TOPIC, 0).log

        def is_settled() -> bool:
            delayed.on_high_watermark()
            first = delayed.pending.first()
            is_due = first is not None and first.due_ms <= self.clock.now_ms()
            return (
                not is_due and delayed.applied_offset == log.high_watermark and not delayed.pending.in_flight
            )

        await eventually_async(is_settled, "all due messages are delivered")


def run(
    tmp_path: Path,
    scenario: Callable[[Partition], Awaitable[None]],
    clock: ManualClock | None = None,
    ensemble: MemoryEnsemble | None = None,
) -> None:
    clock = clock or ManualClock()

    async def body(broker: Harness) -> None:
        await scenario(Partition(broker, clock))

    serve(tmp_path, body, ensemble=ensemble, clock=clock)


def test_shows_a_message_when_it_is_due(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        offset = await partition.delay(b"later", 500)
        await partition.send((b"now", []))
        await partition.settle()
        assert await partition.values() == [b"now"]
        await partition.pass_time(499)
        assert await partition.values() == [b"now"]
        await partition.pass_time(1)
        [_, later] = await partition.seen()
        assert (later.value, later.timestamp, later.key) == (b"later", START_MS + 500, b"k")
        assert later.headers == (
            ("penstock-origin-offset", b"%d" % offset),
            ("penstock-origin-timestamp", b"%d" % START_MS),
        )

    run(tmp_path, scenario)


@pytest.mark.parametrize("codec", list(Codec))
def test_mixed_batches_of_every_codec(tmp_path: Path, codec: Codec) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        records = [
            (b"%d" % place, [("penstock-delay-ms", b"%d" % (100 - place))] if place % 3 else [])
            for place in range(30)
        ]
        result = await partition.send(*records, codec=codec)
        assert result.error_code == 0
        await partition.pass_time(100)
        delayed = [b"%d" % place for place in range(29, 0, -1) if place % 3]
        assert await partition.values() == [b"%d" % place for place in range(0, 30, 3)] + delayed

    run(tmp_path, scenario)


def test_absolute_times_and_times_in_the_past(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        for text in (b"%d" % (START_MS + 50), b"2023-11-14T22:13:20.030Z", b"2001-01-01T00:00:00Z"):
            assert (await partition.send((text, [("penstock-deliver-at", text)]))).error_code == 0
        await partition.pass_time(60)
        seen = await partition.seen()
        assert [each.timestamp - START_MS for each in seen] == [0, 30, 50]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "headers",
    [
        [("penstock-delay-ms", b"soon")],
        [("penstock-delay-ms", b"1"), ("penstock-delay-ms", b"1")],
        [("penstock-delay-ms", b"1"), ("penstock-deliver-at", b"1")],
        [("penstock-deliver-at", b"2030-01-01T00:00:00")],
        [("penstock-delay-ms", b"31536000001")],
        [("penstock-origin-offset", b"1")],
        [("penstock-cancel", b"7")],
        [("penstock-cancel", b"x")],
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_refuses_a_batch_with_a_wrong_header(tmp_path: Path, headers: list[Header], codec: Codec) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        result = await partition.send((b"fine", []), (b"wrong", headers), codec=codec)
        assert result.error_code == ErrorCode.invalid_record
        assert result.error_message
        assert partition.broker.context.replicas.get(TOPIC, 0).log.log_end_offset == 0

    run(tmp_path, scenario)


def test_other_topics_ignore_the_headers(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.broker.create(TOPIC)
        result = await partition.send(
            (b"now", [("penstock-delay-ms", b"soon"), ("penstock-origin-offset", b"1")])
        )
        assert result.error_code == 0
        assert await partition.values() == [b"now"]

    run(tmp_path, scenario)


def test_default_delay_of_a_topic_is_kept_in_the_record(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(delivery_delay_default_ms="100")
        await partition.send((b"default", []), (b"own", [("penstock-delay-ms", b"10")]), codec=Codec.GZIP)
        change = {"name": "delivery.delay.default.ms", "config_operation": 0, "value": "-1"}
        asked = {"resource_type": 2, "resource_name": TOPIC, "configs": [change]}
        await partition.broker.ask(44, 1, {"resources": [asked], "validate_only": False})
        await partition.pass_time(10)
        assert await partition.values() == [b"own"]
        await partition.pass_time(90)
        assert await partition.values() == [b"own", b"default"]

    run(tmp_path, scenario)


def test_a_restart_delivers_what_is_pending_once(tmp_path: Path) -> None:
    clock, ensemble = ManualClock(), MemoryEnsemble()

    async def before(partition: Partition) -> None:
        await partition.create()
        await partition.delay(b"early", 10)
        await partition.delay(b"late", 100)
        cancelled = await partition.delay(b"cancelled", 50)
        await partition.pass_time(10)
        assert (await partition.send((b"", [("penstock-cancel", b"%d" % cancelled)]))).error_code == 0

    async def after(partition: Partition) -> None:
        await partition.settle()
        assert await partition.values() == [b"early"]
        await partition.pass_time(90)
        assert await partition.values() == [b"early", b"late"]

    run(tmp_path, before, clock, ensemble)
    run(tmp_path, after, clock, ensemble)


def test_a_clock_that_is_set_back_makes_no_message_early(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        await partition.delay(b"later", 100)
        await partition.pass_time(50)
        partition.clock.wall -= HOUR_MS
        await partition.pass_time(60)
        assert await partition.values() == []
        partition.clock.wall += HOUR_MS
        await partition.settle()
        assert await partition.values() == [b"later"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_counts_records_of_a_transaction_when_it_is_committed(tmp_path: Path, version: int) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(delivery_delay_default_ms="10")
        producer = Producer(partition.broker, version=version)
        await producer.init()
        await producer.write(TOPIC, b"committed")
        await partition.pass_time(20)
        assert await partition.values() == []
        await producer.end(commit=True)
        await eventually_async(partition.values, "the committed message is delivered")
        await producer.write(TOPIC, b"aborted")
        await producer.end(commit=False)
        await partition.pass_time(20)
        await partition.delay(b"last", 1)
        await partition.pass_time(20)
        assert await partition.values() == [b"committed", b"last"]

    run(tmp_path, scenario)


def test_cancels_a_pending_message_once(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        offset = await partition.delay(b"later", 100)
        cancel = (b"", [("penstock-cancel", b"%d" % offset)])
        assert (await partition.send(cancel)).error_code == 0
        again = await partition.send(cancel)
        assert again.error_code == ErrorCode.invalid_record
        assert "not pending" in again.error_message
        await partition.pass_time(100)
        assert await partition.values() == []

    run(tmp_path, scenario)


def test_a_retry_of_a_stored_cancellation_succeeds(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        offset = await partition.delay(b"later", 100)
        cancel = (b"", [("penstock-cancel", b"%d" % offset)])
        producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        first = await partition.send(cancel, **producer)
        second = await partition.send(cancel, **producer)
        assert (first.error_code, second.error_code) == (0, 0)
        assert first.base_offset == second.base_offset

    run(tmp_path, scenario)


def test_a_delivered_message_cannot_be_cancelled(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        offset = await partition.delay(b"later", 100)
        await partition.pass_time(100)
        result = await partition.send((b"", [("penstock-cancel", b"%d" % offset)]))
        assert result.error_code == ErrorCode.invalid_record
        assert await partition.values() == [b"later"]

    run(tmp_path, scenario)


def test_many_messages_that_are_due_at_once(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        for start in range(0, 3_000, 500):
            batch = [(b"%d" % place, [("penstock-delay-ms", b"5")]) for place in range(start, start + 500)]
            assert (await partition.send(*batch)).error_code == 0
        await partition.pass_time(5)
        assert await partition.values() == [b"%d" % place for place in range(3_000)]

    run(tmp_path, scenario)


def test_a_view_of_the_topic_shows_no_pending_message(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        await partition.broker.create("view", view_of=TOPIC, view_filter='value != "b"')
        await partition.delay(b"a", 10)
        await partition.delay(b"b", 10)
        await partition.send((b"c", []))
        await partition.settle()
        assert await partition.values("view") == [b"c"]
        await partition.pass_time(10)
        assert await partition.values("view") == [b"c", b"a"]

    run(tmp_path, scenario)


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
def test_refuses_contradicting_configs(tmp_path: Path, configs: dict[str, str | None], problem: str) -> None:
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
def test_refuses_to_change_what_readers_depend_on(tmp_path: Path, name: str, value: str) -> None:
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


def test_retention_stores_pending_messages_again(tmp_path: Path) -> None:
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
