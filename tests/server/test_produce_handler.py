"""Produce through the dispatcher of a whole broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import BrokerId, TopicId
from penstock.net.response import Answer, PendingResponse
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.replication.replica import Replica
from penstock.server.security import Operation, ResourceType
from penstock.storage.jobs import FlushJob
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.harness import Harness, content_of, serve

VERSION = 9
ALL, LEADER, NONE = -1, 1, 0


def batch(key: bytes | None = b"k", codec: Codec = Codec.NONE, *, transactional: bool = False) -> memoryview:
    record = NewRecord(key, b"value", 1_000)
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    return memoryview(build_batch([record], codec=codec, transactional=transactional, **producer))  # type: ignore[arg-type]


def topic(name: str, *records: memoryview | None, partition: int = 0) -> ProduceTopic:
    return ProduceTopic(name, None, [ProducePartition(partition, each) for each in records])


def send(broker: Harness, request: ProduceRequest, version: int = VERSION) -> Answer:
    frame = memoryview(bytearray(encode_produce_request(7, version, "test", request)))[SIZE_PREFIX:]
    return broker._broker._dispatcher.dispatch(broker.session, frame)


async def produce(
    broker: Harness,
    *topics: ProduceTopic,
    acks: int = ALL,
    version: int = VERSION,
    transactional_id: str | None = None,
    timeout_ms: int = 5_000,
) -> list[ProduceResult]:
    answer = send(broker, ProduceRequest(transactional_id, acks, timeout_ms, list(topics)), version)
    if isinstance(answer, PendingResponse):
        done = asyncio.Event()
        answer.when_done(done.set)
        await done.wait()
        assert answer.error is None
        answer = answer.parts
    assert isinstance(answer, list)
    response = decode_produce_response(memoryview(content_of(answer))[SIZE_PREFIX:], version)
    return [result for each in response.topics for result in each.partitions]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_produce_appends_in_every_version(tmp_path: Path, version: int, acks: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        for offset in range(2):
            (result,) = await produce(broker, topic("orders", batch()), acks=acks, version=version)
            assert (result.error_code, result.base_offset) == (0, offset)

    serve(tmp_path, scenario)


def test_produce_version_13_names_topics_by_id(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("orders")
        known = ProduceTopic(None, TopicId(made.topic_id), [ProducePartition(0, batch())])
        unknown = ProduceTopic(None, TopicId(UUID(int=9)), [ProducePartition(0, batch())])
        results = await produce(broker, known, unknown, version=13)
        assert [result.error_code for result in results] == [0, ErrorCode.unknown_topic_id]

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("request_topic", "options", "code"),
    [
        (topic("missing", batch()), {}, ErrorCode.unknown_topic_or_partition),
        (topic("orders", batch(), partition=9), {}, ErrorCode.unknown_topic_or_partition),
        (topic("orders", batch()), {"acks": 2}, ErrorCode.invalid_required_acks),
        (topic("orders", batch()), {"acks": -2}, ErrorCode.invalid_required_acks),
        (topic("orders", None), {}, ErrorCode.invalid_record),
        (topic("orders", batch()), {"version": 2}, ErrorCode.unsupported_for_message_format),
        (topic("orders", batch(codec=Codec.ZSTD)), {"version": 6}, ErrorCode.unsupported_compression_type),
        (topic("orders", batch(transactional=True)), {}, ErrorCode.invalid_txn_state),
        (topic("orders", batch()), {"transactional_id": "t"}, ErrorCode.invalid_txn_state),
        (topic("orders", batch()), {"transactional_id": "t", "acks": 1}, ErrorCode.invalid_required_acks),
    ],
)
def test_invalid_produce_gets_the_right_error_and_stores_no_record(
    tmp_path: Path, request_topic: ProduceTopic, options: dict[str, int], code: ErrorCode
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        (result,) = await produce(broker, request_topic, **options)  # type: ignore[arg-type]
        assert (result.error_code, result.base_offset) == (code, -1)
        assert broker.context.replicas.get("orders", 0).log.log_end_offset == 0

    serve(tmp_path, scenario)


def test_acks_all_under_min_isr_gets_not_enough_replicas(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", min_insync_replicas="2")
        (result,) = await produce(broker, topic("orders", batch()))
        assert result.error_code == ErrorCode.not_enough_replicas
        (result,) = await produce(broker, topic("orders", batch()), acks=LEADER)
        assert result.error_code == 0

    serve(tmp_path, scenario)


def test_produce_needs_write_on_the_topic(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        broker.deny((Operation.WRITE, ResourceType.TOPIC, "orders"))
        (result,) = await produce(broker, topic("orders", batch()))
        assert result.error_code == ErrorCode.topic_authorization_failed

    serve(tmp_path, scenario)


def test_a_partition_named_twice_is_appended_once(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        results = await produce(broker, topic("orders", batch(), batch()), topic("orders", batch()))
        assert [r.error_code for r in results] == [0, ErrorCode.invalid_request, ErrorCode.invalid_request]
        assert broker.context.replicas.get("orders", 0).log.log_end_offset == 1

    serve(tmp_path, scenario)


def test_acks_0_has_no_response_and_an_error_closes_the_connection(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        assert send(broker, ProduceRequest(None, NONE, 100, [topic("orders", batch())])) is None
        assert broker.context.replicas.get("orders", 0).log.log_end_offset == 1
        with pytest.raises(ProtocolError):
            send(broker, ProduceRequest(None, NONE, 100, [topic("missing", batch())]))

    serve(tmp_path, scenario)


def test_a_record_is_readable_after_acks_1_on_a_single_replica(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", durability="auto", min_insync_replicas="2")
        log = broker.context.replicas.get("orders", 0).log
        readable = 0
        for offset in range(200):
            (result,) = await produce(broker, topic("orders", batch()), acks=LEADER)
            assert (result.error_code, result.base_offset) == (0, offset)
            readable += log.high_watermark > offset
        assert readable == 200

    serve(tmp_path, scenario)


def test_acks_1_succeeds_when_the_request_timeout_ends_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout ends the wait for the fsync; acks=1 needs only the append."""

    async def scenario(broker: Harness) -> None:
        await broker.create("orders", durability="fsync")
        release = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(FlushJob, "work", lambda _: release.wait(5))
            (result,) = await produce(broker, topic("orders", batch()), acks=LEADER, timeout_ms=20)
            release.set()
        assert (result.error_code, result.base_offset) == (0, 0)

    serve(tmp_path, scenario)


def test_acks_1_does_not_wait_for_followers(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", durability="auto")
        replica = broker.context.replicas.get("orders", 0)
        replica.partition.in_sync.set_replicas((BrokerId(0), BrokerId(7)), 0)
        (result,) = await produce(broker, topic("orders", batch()), acks=LEADER)
        assert (result.error_code, result.base_offset, replica.log.high_watermark) == (0, 0, 0)

    serve(tmp_path, scenario)


async def produce_while_a_replica_is_added(broker: Harness) -> None:
    await broker.create("orders", durability="auto")
    replica = broker.context.replicas.get("orders", 0)
    replica.adding_replicas = 1
    replica.partition.in_sync.set_replicas((broker.context.node_id, BrokerId(7)), 0)
    for offset in range(20):
        (result,) = await produce(broker, topic("orders", batch()), acks=LEADER)
        assert (result.error_code, result.base_offset) == (0, offset)
        assert replica.log.high_watermark == offset + 1, "an acknowledged record is not readable"


def test_a_record_is_readable_after_acks_1_while_a_replica_is_added(tmp_path: Path) -> None:
    serve(tmp_path, produce_while_a_replica_is_added)


def test_acks_1_that_counts_an_added_replica_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts_all(replica: Replica) -> bool:
        return replica.partition.is_leader and not replica.partition.in_sync.followers

    monkeypatch.setattr(Replica, "is_only_replica", property(counts_all))
    with pytest.raises(AssertionError, match="an acknowledged record is not readable"):
        serve(tmp_path, produce_while_a_replica_is_added)


@pytest.mark.parametrize("setting", [("durability", "fsync"), ("flush_messages", "1"), ("flush_ms", "1000")])
def test_slow_flush_gets_request_timed_out_and_not_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str]
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", 1, **dict([setting]))
        release = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(FlushJob, "work", lambda _: release.wait(5))
            (result,) = await produce(broker, topic("orders", batch()), timeout_ms=20)
            release.set()
        assert result.error_code == ErrorCode.request_timed_out

    serve(tmp_path, scenario)


def test_request_with_a_held_batch_and_a_flushed_batch_gets_both_results(tmp_path: Path) -> None:
    """The timeout of the flush starts only when the held batch is appended; otherwise its result would be
    lost.
    """

    async def scenario(broker: Harness) -> None:
        await broker.create("plain", durability="fsync")
        await broker.create("table", cleanup_policy="compact", durability="fsync")
        for offset in range(20):
            results = await produce(broker, topic("plain", batch()), topic("table", batch()))
            assert [(r.error_code, r.base_offset) for r in results] == [(0, offset), (0, offset)]
        results = await produce(broker, topic("plain", batch()), topic("table", batch(None)))
        assert [result.error_code for result in results] == [0, ErrorCode.invalid_record]
        _, held = await produce(broker, topic("plain", batch()), topic("table", batch()), timeout_ms=0)
        assert held.base_offset == 20 or held.error_code == ErrorCode.request_timed_out

    serve(tmp_path, scenario)


def test_response_names_the_invalid_records(tmp_path: Path) -> None:
    """A client fails the named records for good, and may send the rest of the batch again (KIP-467)."""

    async def scenario(broker: Harness) -> None:
        await broker.create("table", cleanup_policy="compact")
        keys = [b"a", None, b"b", None]
        mixed = memoryview(build_batch([NewRecord(key, b"value", 1_000) for key in keys]))
        (result,) = await produce(broker, topic("table", mixed))
        assert (result.error_code, result.invalid_records) == (ErrorCode.invalid_record, (1, 3))

    serve(tmp_path, scenario)
