"""Delayed messages through a whole broker, with a clock that the test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.iteration import read_batches
from support.delayed_partition import HOUR_MS, TOPIC, Header, Partition, run
from support.eventually import eventually_async
from support.manual_clock import START_MS, ManualClock
from support.transaction_wire import Producer


def test_delayed_message_is_delivered_when_it_is_due(tmp_path: Path) -> None:
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
def test_batches_of_every_codec_may_mix_delayed_and_other_messages(tmp_path: Path, codec: Codec) -> None:
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


def test_delay_header_accepts_absolute_and_past_times(tmp_path: Path) -> None:
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
def test_batch_with_a_malformed_delay_header_is_refused(
    tmp_path: Path, headers: list[Header], codec: Codec
) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        result = await partition.send((b"fine", []), (b"wrong", headers), codec=codec)
        assert result.error_code == ErrorCode.invalid_record
        assert result.error_message
        assert partition.broker.context.replicas.get(TOPIC, 0).log.log_end_offset == 0

    run(tmp_path, scenario)


def test_topics_without_delay_ignore_delay_headers(tmp_path: Path) -> None:
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


def test_a_restart_delivers_pending_messages_once(tmp_path: Path) -> None:
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
def test_delayed_messages_of_a_transaction_are_pending_after_its_commit(tmp_path: Path, version: int) -> None:
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


def test_pending_message_is_cancelled_once(tmp_path: Path) -> None:
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


def test_many_messages_due_at_once_are_delivered_in_order(tmp_path: Path) -> None:
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


def test_a_view_shows_no_expired_message(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        await partition.broker.create("view", view_of=TOPIC, view_filter='value != "b"')
        ttl = ("penstock-ttl-ms", b"100")
        await partition.send((b"a", [ttl]), (b"b", []), (b"c", [("penstock-delay-ms", b"50"), ttl]))
        await partition.send((b"d", [ttl]), (b"e", [ttl]), codec=Codec.LZ4)
        await partition.send((b"f", []), (b"g", [("penstock-expires-at", b"%d" % (START_MS + 60))]))
        assert await partition.values("view") == [b"a", b"d", b"e", b"f", b"g"]
        await partition.pass_time(60)
        assert await partition.values("view") == [b"a", b"d", b"e", b"f", b"c"]
        await partition.pass_time(40)
        assert await partition.values("view") == [b"f", b"c"]
        await partition.pass_time(50)
        assert await partition.values("view") == [b"f"]
        assert await partition.values() == [b"a", b"b", b"d", b"e", b"f", b"g", b"c"]

    run(tmp_path, scenario)


def test_the_first_of_many_due_messages_do_not_wait_for_the_others(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create()
        records: list[tuple[bytes, list[Header]]] = [
            (b"%d" % number, [("penstock-delay-ms", b"100")]) for number in range(1_500)
        ]
        await partition.send(*records, codec=Codec.LZ4)
        await partition.settle()
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        delayed_end = log.log_end_offset
        await partition.pass_time(100)
        assert await partition.values() == [value for value, _ in records]
        content = log.read(
            delayed_end, 1 << 20, below=log.high_watermark, at_least_one=True, wait=True
        ).read()
        sizes = [header.record_count for header, _ in read_batches(memoryview(content))]
        assert sizes == [64, 256, 1_000, 180]

    run(tmp_path, scenario)


def test_messages_of_one_batch_are_read_in_any_order(tmp_path: Path) -> None:
    """Due times that go backwards, and messages of several batches in turn."""

    async def scenario(partition: Partition) -> None:
        await partition.create()
        expected: list[tuple[int, int, bytes]] = []
        for batch in range(3):
            delays = [(number * 7_919 + batch) % 150 for number in range(150)]
            await partition.send(
                *[
                    (b"%d-%d" % (batch, number), [("penstock-delay-ms", b"%d" % delay)])
                    for number, delay in enumerate(delays)
                ]
            )
            expected += [
                (delay, 150 * batch + number, b"%d-%d" % (batch, number))
                for number, delay in enumerate(delays)
            ]
        await partition.settle()
        shown_before = len(await partition.values())
        await partition.pass_time(200)
        due_later = [value for delay, _, value in sorted(expected) if delay]
        assert (await partition.values())[shown_before:] == due_later[-(450 - shown_before) :]

    run(tmp_path, scenario)
