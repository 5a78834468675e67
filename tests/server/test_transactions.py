"""Data path of transactions through a whole broker: Produce, Fetch, ListOffsets, offsets of groups, markers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.records.control import AbortedTransaction
from penstock.server.security import Operation, ResourceType
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.transaction_wire import (
    LIST_OFFSETS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Producer,
    committed_offset,
    fetch,
    find_coordinator,
    seen,
)

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61
VERSIONS = pytest.mark.parametrize("version", [1, 2])


async def latest(broker: Harness, isolation: int, timestamp: int = -1) -> int:
    asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    answer = await broker.ask(
        LIST_OFFSETS,
        7,
        {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": "a", "partitions": [asked]}]},
    )
    return int(answer.topics[0].partitions[0].offset)


@VERSIONS
def test_read_committed_returns_records_of_committed_transactions(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=version)
        await producer.init()
        for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
            await producer.write("a", value)
            assert await producer.end(commit=commit) is ErrorCode.none
            await until_settled(broker)
        committed = await fetch(broker, "a")
        assert seen(committed) == [b"one", b"three"]
        assert committed.aborted_transactions == [AbortedTransaction(producer.producer_id, 2)]
        assert (committed.high_watermark, committed.last_stable_offset) == (6, 6)
        everything = await fetch(broker, "a", isolation=READ_UNCOMMITTED)
        assert everything.aborted_transactions is None
        assert seen(everything) == [b"one", b"two", b"three"]

    serve(tmp_path, scenario)


async def until_settled(broker: Harness) -> None:
    """Wait for the markers, which are written after the response to EndTxn."""
    log = broker.context.replicas.get("a", 0).log
    await eventually_async(lambda: log.last_stable_offset >= log.high_watermark)


@VERSIONS
def test_read_committed_returns_no_record_of_an_open_transaction(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.append("a", b"before")
        producer = Producer(broker, version=version)
        await producer.init()
        await producer.write("a", b"open")
        await broker.append("a", b"after", timestamp=9_000)
        found = await fetch(broker, "a")
        assert (seen(found), found.last_stable_offset, found.high_watermark) == ([b"before"], 1, 3)
        assert seen(await fetch(broker, "a", 1)) == []
        assert seen(await fetch(broker, "a", isolation=READ_UNCOMMITTED)) == [b"before", b"open", b"after"]
        assert await latest(broker, READ_COMMITTED) == 1
        assert await latest(broker, READ_UNCOMMITTED) == 3
        assert await latest(broker, READ_COMMITTED, timestamp=9_000) == -1
        assert await latest(broker, READ_UNCOMMITTED, timestamp=9_000) == 2

    serve(tmp_path, scenario)


@VERSIONS
def test_waiting_consumer_is_served_when_the_transaction_ends(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=version)
        await producer.init()
        await producer.write("a", b"x")
        waiting = asyncio.ensure_future(fetch(broker, "a", max_wait_ms=30_000))
        await asyncio.sleep(0)
        assert await producer.end(commit=True) is ErrorCode.none
        async with asyncio.timeout(20):
            assert seen(await waiting) == [b"x"]

    serve(tmp_path, scenario)


def test_batch_of_a_partition_outside_the_transaction_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        producer = Producer(broker, version=1)
        await producer.init()
        assert await producer.produce("a", b"x") is ErrorCode.invalid_txn_state
        assert await producer.produce("a", b"x", version=11) is ErrorCode.transaction_abortable
        assert await producer.add("a", 1) is ErrorCode.none
        assert await producer.produce("a", b"x") is ErrorCode.invalid_txn_state
        assert broker.context.replicas.get("a", 0).log.log_end_offset == 0

    serve(tmp_path, scenario)


@VERSIONS
def test_fenced_producer_writes_no_record(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        await find_coordinator(broker, 0, "g")
        zombie = Producer(broker, version=version)
        await zombie.init()
        await zombie.write("a", b"zombie")
        successor = Producer(broker, version=version)
        await successor.init()
        for partition in (0, 1):
            code = await zombie.produce("a", b"late", partition=partition)
            assert code is ErrorCode.invalid_producer_epoch
        assert await zombie.send_offsets("g", "a", 5, add=False) is ErrorCode.invalid_producer_epoch
        await successor.write("a", b"successor")
        await successor.end(commit=True)
        await until_settled(broker)
        assert seen(await fetch(broker, "a")) == [b"successor"]

    serve(tmp_path, scenario)


@pytest.mark.parametrize("transactional_id", [None, "another"])
def test_batch_with_another_transactional_id_is_refused(tmp_path: Path, transactional_id: str | None) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2)
        await producer.init()
        other = Producer(broker, "another")
        await other.init()
        code = await producer.produce("a", b"x", transactional_id=transactional_id)
        expected = {
            None: ErrorCode.invalid_txn_state,
            "another": ErrorCode.invalid_producer_id_mapping,
        }
        assert code is expected[transactional_id]
        assert broker.context.replicas.get("a", 0).log.log_end_offset == 0

    serve(tmp_path, scenario)


def test_transactional_id_without_authorization_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2)
        await producer.init()
        broker.deny((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine"))
        assert await producer.produce("a", b"x") is ErrorCode.transactional_id_authorization_failed
        assert await producer.send_offsets("g", "a", 1) is ErrorCode.transactional_id_authorization_failed

    serve(tmp_path, scenario)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_clients_cannot_write_transactional_batches_to_internal_topics(tmp_path: Path, topic: str) -> None:
    async def scenario(broker: Harness) -> None:
        producer = Producer(broker, version=2)
        await producer.init()
        await find_coordinator(broker, 0, "g")
        code = await producer.produce(topic, b"x")
        assert code in (ErrorCode.invalid_topic_exception, ErrorCode.topic_authorization_failed)

    serve(tmp_path, scenario)


# --- offsets


@VERSIONS
def test_offsets_are_committed_with_the_transaction(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=version)
        await producer.init()
        await find_coordinator(broker, 0, "g")
        for offset, commit, expected in ((5, True, 5), (9, False, 5), (12, True, 12)):
            assert await producer.send_offsets("g", "a", offset) is ErrorCode.none
            for asked in (7, 9):
                stable = await committed_offset(broker, "g", "a", version=asked)
                assert stable == (-1, ErrorCode.unstable_offset_commit)
            assert await producer.end(commit=commit) is ErrorCode.none
            async with asyncio.timeout(20):
                while (found := await committed_offset(broker, "g", "a"))[1] is not ErrorCode.none:
                    await asyncio.sleep(0.001)
            assert found == (expected, ErrorCode.none)

    serve(tmp_path, scenario)


def test_offset_fetch_without_require_stable_returns_last_offsets(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2)
        await producer.init()
        await find_coordinator(broker, 0, "g")
        await producer.send_offsets("g", "a", 5)
        assert await committed_offset(broker, "g", "a", stable=False) == (-1, ErrorCode.none)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2 if version == 5 else 1)
        await producer.init()
        await find_coordinator(broker, 0, "g")
        assert await producer.send_offsets("g", "a", 5, version=version) is ErrorCode.none
        code = await producer.send_offsets("g", "missing", 5, version=version)
        assert code is ErrorCode.unknown_topic_or_partition
        if version >= 3:
            code = await producer.send_offsets("g", "a", 5, version=version, generation=3, member_id="m")
            assert code in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id)

    serve(tmp_path, scenario)


def test_offsets_of_a_group_outside_the_transaction_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=1)
        await producer.init()
        await find_coordinator(broker, 0, "g")
        assert await producer.send_offsets("g", "a", 5, add=False) is ErrorCode.invalid_txn_state
        code = await producer.send_offsets("g", "a", 5, add=False, version=4)
        assert code is ErrorCode.transaction_abortable
        assert await committed_offset(broker, "g", "a") == (-1, ErrorCode.none)

    serve(tmp_path, scenario)


# --- brokers and operators


@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers_is_refused_to_clients(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2)
        await producer.init()
        await producer.write("a", b"x")
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": True,
            "topics": [{"name": "a", "partition_indexes": [0]}],
            "coordinator_epoch": 99,
            "transaction_version": 2,
        }
        answer = await broker.ask(WRITE_TXN_MARKERS, version, {"markers": [marker]})
        [partition] = answer.markers[0].topics[0].partitions
        assert partition.error_code == ErrorCode.cluster_authorization_failed
        assert broker.context.replicas.get("a", 0).log.producers.ongoing(producer.producer_id) == 0

    serve(tmp_path, scenario)


def test_describe_producers_returns_open_transactions(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.append("a", b"before")
        producer = Producer(broker, version=2)
        await producer.init()
        await producer.write("a", b"x", b"y")
        asked = {"topics": [{"name": "a", "partition_indexes": [0]}]}
        [topic] = (await broker.ask(DESCRIBE_PRODUCERS, 0, asked)).topics
        [told] = topic.partitions[0].active_producers
        assert (told.producer_id, told.last_sequence, told.current_txn_start_offset) == (
            producer.producer_id,
            1,
            1,
        )
        await producer.end(commit=True)
        await until_settled(broker)
        [topic] = (await broker.ask(DESCRIBE_PRODUCERS, 0, asked)).topics
        [told] = topic.partitions[0].active_producers
        assert (told.producer_epoch, told.last_sequence, told.current_txn_start_offset) == (
            producer.epoch,
            -1,
            -1,
        )
        assert told.coordinator_epoch >= 0

    serve(tmp_path, scenario)
