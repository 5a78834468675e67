"""A smaller partition count on whole brokers: drain, seal, remove, undo, and create again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cluster.image import PartitionPhase, TopicImage
from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import PendingResponse
from penstock.server.draining import draining
from penstock.server.security import Operation, ResourceType
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.inspect import InspectRequest, decode_inspect_response, encode_inspect_request
from support.eventually import eventually_async
from support.harness import Harness, content_of
from support.whole_brokers import Brokers, run

ORDERS = "orders"
QUICK = {"partition_drain_quiet_ms": "200"}
ACTIVE, DRAINING, SEALED = PartitionPhase.ACTIVE, PartitionPhase.DRAINING, PartitionPhase.SEALED


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.05)


async def ask(harness: Harness, question: str, **arguments: Any) -> Any:
    request = InspectRequest(question, msgspec.msgpack.encode(arguments))
    frame = encode_inspect_request(7, "test", request)
    answer = harness._broker._dispatcher.dispatch(harness.session, memoryview(frame)[SIZE_PREFIX:])
    assert isinstance(answer, PendingResponse)
    done = asyncio.Event()
    answer.when_done(done.set)
    await done.wait()
    assert answer.parts is not None, answer.error
    response = decode_inspect_response(memoryview(content_of(answer.parts))[SIZE_PREFIX:])
    if response.error_code:
        raise BrokerError(ErrorCode(response.error_code), response.error_message)
    return msgspec.msgpack.decode(response.answer, strict=False)


async def set_count(harness: Harness, count: int, **arguments: Any) -> Any:
    return await ask(harness, "set_partition_count", topic=ORDERS, count=count, **arguments)


def topic(harness: Harness) -> TopicImage:
    return harness.context.image.topics[ORDERS]


def phases(harness: Harness) -> list[PartitionPhase]:
    return [state.phase for state in topic(harness).partitions]


async def metadata(harness: Harness, client_id: str = "test") -> int:
    """Number of partitions that a client is shown."""
    fields = {"topics": [{"topic_id": None, "name": ORDERS}], "allow_auto_topic_creation": False}
    response = await harness.ask(3, 12, fields, client_id=client_id)
    assert [each.partition_index for each in response.topics[0].partitions] == list(
        range(len(response.topics[0].partitions))
    )
    return len(response.topics[0].partitions)


async def commit(harness: Harness, group: str, offsets: Mapping[int, int]) -> None:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index, offset in offsets.items()
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": ORDERS, "partitions": partitions}],
    }

    await harness.ask(10, 4, {"key_type": 0, "coordinator_keys": [group]})

    async def is_stored() -> bool:
        response = await harness.ask(8, 7, fields)
        return all(each.error_code == 0 for each in response.topics[0].partitions)

    while not await is_stored():
        await asyncio.sleep(0.05)


def test_quiet_partitions_are_sealed_and_removed_when_their_records_have_expired(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4, retention_ms="3600000", **QUICK)
        now_ms = harness.context.clock.now_ms()
        await harness.append(ORDERS, b"kept", partition=2, timestamp=now_ms)
        await set_count(harness, 2)
        await eventually_async(lambda: phases(harness)[2:3] == [SEALED])
        with pytest.raises(BrokerError, match="refuses records") as caught:
            await harness.append(ORDERS, b"late", partition=2)
        assert caught.value.code is ErrorCode.unknown_topic_or_partition
        # The empty last partition goes at once, the one with a record stays until it has expired.
        await eventually_async(lambda: len(phases(harness)) == 3)
        log = harness.context.replicas.get(ORDERS, 2).log
        log.advance_log_start(log.high_watermark)
        await eventually_async(lambda: len(phases(harness)) == 2)
        assert topic(harness).removed[0].log_end_offset == 1
        assert topic(harness).active_count == 2
        await harness.context.replicas.settled()
        directories = [path.name for path in (tmp_path / "1" / "logs").iterdir() if ORDERS in path.name]
        assert {name.split("-")[1] for name in directories} == {"0", "1"}

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_draining_partition_takes_records_until_writes_end(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, partition_drain_quiet_ms="1000")
        await set_count(harness, 1)
        for number in range(12):
            await harness.append(ORDERS, b"%d" % number, partition=1)
            assert phases(harness) == [ACTIVE, DRAINING]
            await asyncio.sleep(0.1)
        await eventually_async(lambda: phases(harness)[1:] in ([SEALED], []))

    run(tmp_path, scenario)


def test_larger_partition_count_makes_draining_partitions_active_again(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4, retention_ms="-1", **QUICK)
        for index in range(4):
            await harness.append(ORDERS, b"first", partition=index)
        await set_count(harness, 2, waits_for_groups=0)
        await eventually_async(lambda: phases(harness) == [ACTIVE, ACTIVE, SEALED, SEALED])
        await set_count(harness, 4)
        assert phases(harness) == [ACTIVE] * 4
        assert await harness.append(ORDERS, b"second", partition=3) == 1

    run(tmp_path, scenario)


def test_a_partition_created_again_continues_offsets_in_a_later_epoch(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, **QUICK)
        await harness.append(ORDERS, b"0", b"1", b"2", partition=1)
        await commit(harness, "billing", {1: 3})
        epoch = topic(harness).partitions[1].leader_epoch
        await set_count(harness, 1, change="seal-now")
        await eventually_async(lambda: phases(harness)[1:] == [SEALED])
        await set_count(harness, 0, change="drop-sealed")
        await eventually_async(lambda: len(phases(harness)) == 1)
        created = {"topics": [{"name": ORDERS, "count": 2, "assignments": None}], "timeout": 5_000}
        response = await harness.ask(37, 3, {**created, "validate_only": False})
        assert response.results[0].error_code == 0, response.results[0].error_message
        log = harness.context.replicas.get(ORDERS, 1).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        assert topic(harness).partitions[1].leader_epoch > epoch
        assert await harness.append(ORDERS, b"3", partition=1) == 3
        shard = harness.context.groups.shard_of("billing")
        await eventually_async(lambda: not shard.offsets.fetch("billing", None, harness.context.image))
        await brokers.stop(1)
        harness = await brokers.start(1)
        log = harness.context.replicas.get(ORDERS, 1).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)

    run(tmp_path, scenario)


def test_a_commit_for_a_removed_partition_is_dropped(tmp_path: Path) -> None:
    """A Java consumer that still has the partition would repeat a refused commit for minutes and read nothing."""

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await remove_last(harness)
        async with asyncio.timeout(5):
            await commit(harness, "billing", {0: 0, 1: 0})
        stored = harness.context.groups.shard_of("billing").offsets.fetch(
            "billing", None, harness.context.image
        )
        assert [key.partition for key in stored] == [0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await commit(harness, "billing", {0: 0, 2: 0})

    run(tmp_path, scenario)


async def remove_last(harness: Harness) -> None:
    """Make a topic of two partitions with a record in the last one, and remove that."""
    await harness.create(ORDERS, 2, retention_ms="-1", **QUICK)
    await harness.append(ORDERS, b"0", partition=1)
    await set_count(harness, 1, change="seal-now")
    await eventually_async(lambda: phases(harness)[1:] == [SEALED])
    await set_count(harness, 0, change="drop-sealed")
    await eventually_async(lambda: len(phases(harness)) == 1)


def test_a_fetch_of_a_removed_partition_waits_for_the_other_partitions(tmp_path: Path) -> None:
    """A Java consumer that has assigned itself the partition fetches it without a pause between requests."""

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await remove_last(harness)
        wanted = {
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1_000,
        }
        asked = [{"partition": index, **wanted} for index in range(2)]
        fields = {
            "max_wait": 60_000,
            "min_bytes": 1,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": topic(harness).id, "partitions": asked}],
            "forgotten_topics_data": (),
            "rack_id": "",
        }
        waiting = asyncio.ensure_future(harness.ask(1, 13, fields))
        parked = harness.context.long_polls.parked
        await eventually_async(lambda: parked or waiting.done())
        assert not waiting.done()
        await harness.append(ORDERS, b"1")
        partitions = (await waiting).responses[0].partitions
        assert [each.error_code for each in partitions] == [0, ErrorCode.unknown_topic_or_partition]
        assert partitions[0].records

    run(tmp_path, scenario)


def test_a_group_that_is_behind_holds_a_partition_open(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, retention_ms="-1", **QUICK)
        await harness.append(ORDERS, b"0", b"1", partition=1)
        await commit(harness, "billing", {1: 1})
        await set_count(harness, 1)

        async def waits() -> list[str]:
            progress = await ask(harness, "drain_progress", topic=ORDERS)
            reasons = progress["led"][1]["waits_for"]
            assert progress["groups"] == {1: [["billing", 1]]}
            return list(reasons)

        while await waits() != ["group billing is behind, at offset 1"]:
            await asyncio.sleep(0.05)
        assert phases(harness)[1] is DRAINING
        await commit(harness, "billing", {1: 2})
        await eventually_async(lambda: phases(harness)[1] is SEALED)

    run(tmp_path, scenario)


def test_new_clients_are_shown_the_new_count_and_known_ones_the_old(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4, partition_drain_quiet_ms="600000")
        state = harness.context.draining
        assert state is not None
        state._sessions = lambda: iter([harness.session])  # type: ignore[method-assign]
        await set_count(harness, 2)
        await eventually_async(lambda: state.clients.others is not None)
        harness.session.is_consumer = False
        assert await metadata(harness, "test") == 4
        assert await metadata(harness, "new") == 2
        harness.session.is_consumer = True
        assert await metadata(harness, "new") == 4
        harness.session.is_consumer = False
        harness.session.software = "librdkafka 2"
        assert await metadata(harness, "penstock-cli") == 2
        harness.session.software = ""
        assert await metadata(harness, "penstock-cli") == 4

    run(tmp_path, scenario)


def test_requests_need_a_permission_and_report_errors(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2)
        for count in (0, 3, -5):
            with pytest.raises(BrokerError) as caught:
                await set_count(harness, count)
            assert caught.value.code is ErrorCode.invalid_partitions
        with pytest.raises(BrokerError, match="seal-now"):
            await set_count(harness, 1, change="melt")
        with pytest.raises(BrokerError) as caught:
            await ask(harness, "set_partition_count", topic="__consumer_offsets", count=1)
        assert caught.value.code is ErrorCode.invalid_topic_exception
        await set_count(harness, 1, dry_run=1)
        assert phases(harness) == [ACTIVE, ACTIVE]
        harness.deny((Operation.ALTER, ResourceType.TOPIC, ORDERS))
        with pytest.raises(BrokerError) as caught:
            await set_count(harness, 1)
        assert caught.value.code is ErrorCode.topic_authorization_failed

    run(tmp_path, scenario)


def test_sealed_partitions_survive_the_loss_of_their_leader(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second, third = [await brokers.start(number) for number in (1, 2, 3)]
        await eventually_async(lambda: len(first.context.image.brokers) == 3)
        await first.create(ORDERS, 2, retention_ms="-1", **QUICK)
        await eventually_async(lambda: ORDERS in third.context.image.topics)
        leader = topic(first).partitions[1].leader
        harnesses = {1: first, 2: second, 3: third}
        await harnesses[leader].context.replicas.settled()
        await harnesses[leader].append(ORDERS, b"0", partition=1)
        await set_count(first, 1)
        await eventually_async(lambda: phases(first)[1] is SEALED)
        await brokers.stop(leader)
        rest = next(harness for number, harness in harnesses.items() if number != leader)
        await eventually_async(lambda: topic(rest).partitions[1].leader not in (leader, -1))
        next_leader = harnesses[topic(rest).partitions[1].leader]
        await eventually_async(lambda: next_leader.context.replicas.get(ORDERS, 1).phase is SEALED)
        with pytest.raises(BrokerError, match="refuses records"):
            await next_leader.append(ORDERS, b"1", partition=1)

    run(tmp_path, scenario)
