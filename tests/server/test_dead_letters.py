"""Dead letters of share groups: written once, with reason and origin, before the record counts as settled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.config_changes import ConfigAlteration, ConfigChange
from penstock.cluster.memory import MemoryEnsemble
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.records.iteration import Record, iterate, read_batches
from penstock.server.dead_letter_sink import DeadLetterTopics
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.queue_wire import QueueClient
from support.share_wire import (
    ACCEPT,
    INCREMENTAL_ALTER_CONFIGS,
    REJECT,
    RELEASE,
    SETTINGS,
    ShareMember,
    configure,
    first_take,
    run,
)

GROUP_RESOURCE, SET = 32, 0


async def set_topic(broker: Harness, topic: str = "dead", **more: str) -> None:
    configs = {"errors.deadletterqueue.topic.name": topic} | {
        "errors.deadletterqueue." + name.replace("_", "."): value for name, value in more.items()
    }
    alterations = [{"name": name, "config_operation": SET, "value": value} for name, value in configs.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": "g", "configs": alterations}
    answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def letters(broker: Harness, topic: str = "dead", partition: int = 0) -> list[Record]:
    log = broker.context.replicas.get(topic, partition).log
    if log.high_watermark == 0:
        return []
    content = log.read(Offset(0), 1 << 24, below=log.high_watermark, at_least_one=True).read()
    return [
        record for header, batch in read_batches(memoryview(content)) for record in iterate(batch, header)
    ]


def headers_of(letter: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in letter.headers}


def offsets(found: list[Record]) -> list[int]:
    return [int(headers_of(each)["__dlq.errors.offset"]) for each in found]


def test_rejected_record_becomes_a_dead_letter_with_its_content(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        queue = QueueClient(broker)
        given = await queue.receive(3)
        assert await queue.settle(given[1], REJECT, reason="no such customer") is ErrorCode.none
        await eventually_async(lambda: len(letters(broker)) == 1)
        (letter,) = letters(broker)
        assert (letter.key, letter.value) == (b"k", b"value")
        shown = headers_of(letter)
        assert shown["__dlq.errors.topic"] == "t"
        assert (shown["__dlq.errors.partition"], shown["__dlq.errors.offset"]) == ("0", "1")
        assert (shown["__dlq.errors.group"], shown["__dlq.errors.delivery.count"]) == ("g", "1")
        assert (shown["penstock-dead-reason"], shown["__dlq.errors.message"]) == (
            "rejected",
            "no such customer",
        )
        assert int(shown["penstock-dead-at"]) > 0
        await queue.settle(given[0], ACCEPT)
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        await eventually_async(lambda: leader.partition is not None and leader.partition.start_offset == 2)
        assert leader.partition.archiving == 0

    run(tmp_path, scenario)


def test_record_that_exhausts_its_attempts_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker, copy_record_enable="false")
        assert await first_take(member) == [(0, 9, 1)]
        await member.acknowledge("t", [(0, 9, [RELEASE])])
        assert await member.take("t") == [(0, 9, 2)]
        await member.acknowledge("t", [(0, 9, [RELEASE])])
        await eventually_async(lambda: len(letters(broker)) == 10)
        assert offsets(letters(broker)) == list(range(10))
        shown = headers_of(letters(broker)[0])
        assert (shown["penstock-dead-reason"], shown["penstock-dead-attempts"]) == ("attempts", "2")
        assert letters(broker)[0].value is None

    run(tmp_path, scenario, delivery_count_limit=2)


def test_records_wait_while_the_topic_is_missing_and_others_continue(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await set_topic(broker)
        queue = QueueClient(broker)
        first, second = await queue.receive(2)
        assert await queue.settle(first, REJECT) is ErrorCode.none
        assert await queue.settle(second, ACCEPT) is ErrorCode.none
        assert len(await queue.receive(100)) == 8
        (leader,) = broker.context.share.partitions.all
        await eventually_async(lambda: bool(leader.letters.problem))
        assert "does not exist" in leader.letters.problem
        assert leader.partition is not None
        assert leader.partition.archiving == 1
        assert leader.partition.start_offset == 0
        await broker.create("dead", 3)
        await eventually_async(lambda: len(letters(broker)) == 1)
        await eventually_async(lambda: leader.partition is not None and leader.partition.start_offset == 2)

    run(tmp_path, scenario)


def test_leader_writes_no_dead_letter_to_the_topic_itself(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        # As if the topic had been named before the group began to read it.
        named = ConfigAlteration("errors.deadletterqueue.topic.name", "t")
        change = ConfigChange(ConfigResourceType.GROUP, "g", [named])
        assert await broker.context.administration.alter_configs([change]) == [None]
        queue = QueueClient(broker)
        (given,) = await queue.receive(1)
        assert await queue.settle(given, REJECT) is ErrorCode.none
        (leader,) = broker.context.share.partitions.all
        await eventually_async(lambda: "the message comes from this topic" in leader.letters.problem)
        assert broker.context.replicas.get("t", 0).log.high_watermark == 10

    run(tmp_path, scenario)


def test_group_cannot_name_a_topic_that_it_reads(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        with pytest.raises(AssertionError, match="the group reads it"):
            await set_topic(broker, "t")
        await broker.create("dead", 1)
        await set_topic(broker, "dead")
        answer = await member.heartbeat(subscribed_topic_names=["t", "dead"])
        assert answer.error_code == ErrorCode.invalid_request
        assert "dead-letter topic" in answer.error_message

    run(tmp_path, scenario)


def test_dead_letter_is_written_once_when_its_response_was_lost(tmp_path: Path, monkeypatch: Any) -> None:
    real = DeadLetterTopics.write
    attempts: list[tuple[int, int]] = []

    async def write(
        self: Any, topic: str, source: Any, records: Any, producer_id: int, sequence: int
    ) -> None:
        await real(self, topic, source, records, producer_id, sequence)
        attempts.append((producer_id, sequence))
        if len(attempts) < 3:
            raise BrokerError(ErrorCode.request_timed_out, "lost")

    monkeypatch.setattr(DeadLetterTopics, "write", write)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        queue = QueueClient(broker)
        for given in await queue.receive(10):
            await queue.settle(given, REJECT)
        await eventually_async(lambda: not _leader(broker).archiving)
        assert sorted(offsets(letters(broker))) == list(range(10))
        assert attempts[0] == attempts[1] == attempts[2]

    run(tmp_path, scenario)


def _leader(broker: Harness) -> Any:
    (leader,) = broker.context.share.partitions.all
    return leader.partition


def test_dead_letter_in_progress_is_written_once_after_a_restart(tmp_path: Path, monkeypatch: Any) -> None:
    real = DeadLetterTopics.write
    is_stuck = True

    async def write(self: Any, *arguments: Any) -> None:
        await real(self, *arguments)
        if is_stuck:
            await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(DeadLetterTopics, "write", write)

    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await broker.create("dead", 1)
        await configure(broker, auto_offset_reset="earliest")
        await set_topic(broker)
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", *[b"value"] * 10)
        assert await first_take(member) == [(0, 9, 1)]
        await member.acknowledge("t", [(3, 5, [REJECT])])
        await eventually_async(lambda: len(letters(broker)) == 3)

    async def after(broker: Harness) -> None:
        nonlocal is_stuck
        is_stuck = False
        member = ShareMember(broker, "m2")
        await member.join("t")
        assert await first_take(member) == [(0, 2, 1), (6, 9, 1)]
        await eventually_async(lambda: not _leader(broker).archiving)
        assert offsets(letters(broker)) == [3, 4, 5]
        await member.acknowledge("t", [(0, 0, [REJECT])])
        await eventually_async(lambda: len(letters(broker)) == 4)
        assert offsets(letters(broker)) == [3, 4, 5, 0]

    ensemble = MemoryEnsemble()
    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)


def test_dead_letter_batch_that_is_too_large_is_divided(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1, max_message_bytes="1200")
        await set_topic(broker)
        await broker.append("t", b"x" * 5_000)
        taken = await first_take(member)
        await member.acknowledge("t", [(first, last, [REJECT]) for first, last, _ in taken])
        await eventually_async(lambda: len(letters(broker)) == 11)
        assert sorted(offsets(letters(broker))) == list(range(11))
        large = next(each for each in letters(broker) if offsets([each]) == [10])
        assert large.value is None

    run(tmp_path, scenario)
