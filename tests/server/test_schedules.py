"""Schedules on a broker: firings, catch-up, requests, refusals, and intents that survive restarts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.schedules import NewSchedule, ScheduleCalls
from penstock.records.iteration import Record, iterate, read_batches
from penstock.schedules.message import SCHEDULE, SCHEDULED_FOR
from penstock.security.acl import Operation, ResourceType
from penstock.server.topic_writer import TopicWriter
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.manual_clock import START_MS, ManualClock

Scenario = Callable[[Harness, ScheduleCalls], Awaitable[None]]


def records_of(broker: Harness, topic: str = "t", partition: int = 0) -> list[Record]:
    log = broker.context.replicas.get(topic, partition).log
    content = log.read(
        log.log_start_offset, 1 << 24, below=log.high_watermark, at_least_one=True, wait=True
    ).read()
    return [
        record
        for header, batch in read_batches(memoryview(content))
        if not header.is_control
        for record in iterate(batch, header)
    ]


def times_of(broker: Harness, topic: str = "t", partition: int = 0) -> list[int]:
    """The times for which schedules have fired, in the order of the log."""
    return [int(dict(each.headers)[SCHEDULED_FOR] or 0) for each in records_of(broker, topic, partition)]


def run(path: Path, scenario: Scenario, clock: ManualClock, **options: Any) -> None:
    async def body(broker: Harness) -> None:
        async with InternalClient.to(f"127.0.0.1:{broker._broker.port}", "test", 20.0) as client:
            await scenario(broker, client.schedules)

    serve(path, body, clock=clock, **options)


async def refusal(work: Awaitable[Any]) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value


@pytest.mark.slow
def test_schedule_fires_with_its_message_and_headers(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        new = NewSchedule("s", "@every 90s", "t", key=b"k", value=b"v", headers=(("a", b"b"),))
        details = await schedules.create(new)
        assert details.next_times_ms == tuple(START_MS + 90_000 * n for n in range(1, 6))
        assert details.message is not None
        assert details.message.headers == (("a", b"b"),)
        clock.advance(90_000)
        await eventually_async(lambda: times_of(broker) == [START_MS + 90_000], "one firing")
        (record,) = records_of(broker)
        assert (bytes(record.key or b""), bytes(record.value or b"")) == (b"k", b"v")
        assert dict(record.headers) == {
            "a": b"b",
            SCHEDULE: b"s",
            SCHEDULED_FOR: str(START_MS + 90_000).encode(),
        }
        (summary,) = await schedules.all()
        assert (summary.fired, summary.missed, summary.last_ms) == (1, 0, START_MS + 90_000)
        clock.advance(90_000)
        await eventually_async(lambda: len(times_of(broker)) == 2, "the next firing")

    run(tmp_path, scenario, clock)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("catch_up", "expected"), [("none", []), ("one", [5]), ("all", [1, 2, 3, 4, 5])], ids=str
)
def test_schedule_catches_up_after_a_pause_of_the_broker(
    tmp_path: Path, catch_up: str, expected: list[int]
) -> None:
    clock, ensemble = ManualClock(), MemoryEnsemble()

    async def before(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t", catch_up=catch_up))

    async def after(broker: Harness, schedules: ScheduleCalls) -> None:
        await eventually_async(lambda: times_of(broker) == [START_MS + 10_000 * n for n in expected])
        clock.advance(5_000)
        await eventually_async(
            lambda: times_of(broker)[-1:] == [START_MS + 60_000], "the next regular firing"
        )
        details = await eventually_async(lambda: schedules.describe("s"))
        assert details.summary.missed == 5 - len(expected)

    run(tmp_path, before, clock, ensemble=ensemble)
    clock.advance(55_000)
    run(tmp_path, after, clock, ensemble=ensemble)


@pytest.mark.slow
def test_schedule_repeats_no_firing_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t", catch_up="all"))
        clock.advance(30_000)
        await eventually_async(lambda: len(times_of(broker)) == 3)
        clock.wall -= 25_000
        await schedules.run("s")
        await eventually_async(lambda: len(times_of(broker)) == 4)
        clock.wall += 35_000
        await eventually_async(lambda: len(times_of(broker)) == 5)
        regular = [
            each for each in times_of(broker) if (each - START_MS) % 10_000 == 0 and each > START_MS + 5_000
        ]
        assert regular == [START_MS + 10_000 * n for n in range(1, 5)]

    run(tmp_path, scenario, clock)


@pytest.mark.slow
def test_paused_schedule_fires_only_on_request(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t", catch_up="all"))
        assert (await schedules.pause("s")).summary.paused
        clock.advance(35_000)
        scheduled_for = await schedules.run("s")
        await eventually_async(lambda: times_of(broker) == [scheduled_for])
        resumed = await schedules.resume("s")
        assert resumed.summary.next_ms == START_MS + 40_000
        clock.advance(5_000)
        await eventually_async(lambda: times_of(broker) == [scheduled_for, START_MS + 40_000])
        assert (await schedules.describe("s")).summary.missed == 0
        await schedules.delete("s")
        assert await schedules.all() == []
        assert (await refusal(schedules.describe("s"))).code is ErrorCode.resource_not_found

    run(tmp_path, scenario, clock)


@pytest.mark.slow
def test_lost_acknowledgement_does_not_repeat_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real, attempts = ManualClock(), TopicWriter.write, []

    async def write(self: TopicWriter, *arguments: Any) -> None:
        await real(self, *arguments)
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionResetError("the response is lost")

    monkeypatch.setattr(TopicWriter, "write", write)

    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t", catch_up="all"))
        clock.advance(10_000)
        await eventually_async(lambda: len(attempts) == 3)
        clock.advance(10_000)
        await eventually_async(lambda: len(attempts) == 4)
        assert times_of(broker) == [START_MS + 10_000, START_MS + 20_000]

    run(tmp_path, scenario, clock)


@pytest.mark.slow
@pytest.mark.parametrize("pause_ms", [5_000, 10 * 86_400_000 + 5_000], ids=["soon", "after-expiration"])
def test_firing_in_flight_at_a_stop_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause_ms: int
) -> None:
    clock, ensemble, real = ManualClock(), MemoryEnsemble(), TopicWriter.write
    written = []

    async def write(self: TopicWriter, *arguments: Any) -> None:
        await real(self, *arguments)
        written.append(1)
        raise ConnectionResetError("the response is lost")

    async def before(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t", catch_up="none"))
        clock.advance(10_000)
        await eventually_async(lambda: written)

    async def after(broker: Harness, schedules: ScheduleCalls) -> None:
        # The partition forgets silent producers when another one writes.
        await broker.append("t", b"other")
        await eventually_async(lambda: _is_idle(schedules), "the firing is completed")
        firings = [each for each in records_of(broker) if each.headers]
        assert [dict(each.headers)[SCHEDULED_FOR] for each in firings] == [str(START_MS + 10_000).encode()]

    with monkeypatch.context() as patched:
        patched.setattr(TopicWriter, "write", write)
        run(tmp_path, before, clock, ensemble=ensemble)
    clock.advance(pause_ms)
    run(tmp_path, after, clock, ensemble=ensemble)


async def _is_idle(schedules: ScheduleCalls) -> bool:
    return (await schedules.describe("s")).in_flight_ms is None


@pytest.mark.slow
def test_deleted_topic_is_a_problem_until_it_is_created_again(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@every 10s", "t"))
        await broker.ask(20, 6, {"topics": [{"name": "t", "topic_id": None}], "timeout": 5_000})
        clock.advance(10_000)

        async def problem() -> str:
            return (await schedules.describe("s")).problem

        await eventually_async(problem)
        assert "penstock topic create t" in await problem()
        await broker.create("t", 1)
        await eventually_async(lambda: times_of(broker) == [START_MS + 10_000])
        assert not await problem()

    run(tmp_path, scenario, clock)


WRONG = [
    (NewSchedule("s", "0 0 30 2 *", "t"), ErrorCode.invalid_request, "can fire"),
    (NewSchedule("s", "* * *", "t"), ErrorCode.invalid_request, "3 fields"),
    (NewSchedule("s", "@every 0s", "t"), ErrorCode.invalid_request, "one second"),
    (NewSchedule("s", "@daily", "t", "Mars/Base"), ErrorCode.invalid_request, "time zone"),
    (NewSchedule("s", "@daily", "nope"), ErrorCode.unknown_topic_or_partition, "does not exist"),
    (NewSchedule("s", "@daily", "__schedules"), ErrorCode.invalid_topic_exception, "internal topic"),
    (NewSchedule("s", "@daily", "compacted"), ErrorCode.invalid_record, "key"),
    (NewSchedule("s", "@daily", "t", value=bytes(2_000_000)), ErrorCode.message_too_large, "2000000"),
    (NewSchedule("s", "@daily", "small", value=bytes(2_000)), ErrorCode.message_too_large, ""),
    (NewSchedule("a/b", "@daily", "t"), ErrorCode.invalid_request, "name"),
    (
        NewSchedule("s", "@daily", "t", headers=((SCHEDULE, b"x"),)),
        ErrorCode.invalid_request,
        "set by the schedule",
    ),
    (NewSchedule("s", "@daily", "t", catch_up="some"), ErrorCode.invalid_request, "catch-up"),
    (
        NewSchedule("s", "@daily", "delayed", headers=(("penstock-delay-ms", b"x"),)),
        ErrorCode.invalid_record,
        "penstock-delay-ms",
    ),
]


def test_wrong_schedules_are_refused_with_a_reason(tmp_path: Path) -> None:
    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await broker.create("compacted", 1, cleanup_policy="compact")
        await broker.create("small", 1, max_message_bytes="1000")
        await broker.create("delayed", 1, delivery_delay="true")
        for wrong, code, reason in WRONG:
            error = await refusal(schedules.create(wrong))
            assert error.code is code, (wrong, error)
            assert reason in str(error)
        assert await schedules.all() == []
        await schedules.create(NewSchedule("s", "@daily", "t"))
        assert (
            await refusal(schedules.create(NewSchedule("s", "@daily", "t")))
        ).code is ErrorCode.duplicate_resource

    run(tmp_path, scenario, ManualClock())


def test_schedule_requests_need_rights_on_the_topic(tmp_path: Path) -> None:
    async def scenario(broker: Harness, schedules: ScheduleCalls) -> None:
        await broker.create("t", 1)
        await schedules.create(NewSchedule("s", "@daily", "t", value=b"v"))
        broker.deny((Operation.WRITE, ResourceType.TOPIC, "t"), (Operation.READ, ResourceType.TOPIC, "t"))
        for work in (
            schedules.create(NewSchedule("other", "@daily", "t")),
            schedules.pause("s"),
            schedules.resume("s"),
            schedules.run("s"),
            schedules.delete("s"),
        ):
            assert (await refusal(work)).code is ErrorCode.topic_authorization_failed
        assert (await schedules.describe("s")).message is None
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "t"))
        assert await schedules.all() == []
        assert (await refusal(schedules.describe("s"))).code is ErrorCode.resource_not_found
        assert (await refusal(schedules.delete("s"))).code is ErrorCode.resource_not_found

    run(tmp_path, scenario, ManualClock())
