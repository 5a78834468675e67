"""DescribeProducers: the idempotent producers of a partition."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ErrorCode
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.server.security import Operation, ResourceType
from support.harness import Harness, serve

DESCRIBE_PRODUCERS = 61


def append(broker: Harness, producer_id: int, sequence: int, timestamp: int) -> None:
    records = [NewRecord(b"k", b"v", timestamp), NewRecord(b"k", b"v", timestamp + 1)]
    batch = memoryview(
        build_batch(
            records, codec=Codec.NONE, producer_id=producer_id, producer_epoch=4, base_sequence=sequence
        )
    )
    replica = broker.context.replicas.get("a", 0)
    replica.append_as_leader(batch, read_header(batch), broker.context.clock.now_ms())


def test_describe_producers_returns_the_last_write_of_each_producer(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        append(broker, 7, 0, 1_000)
        append(broker, 7, 2, 2_000)
        append(broker, 9, 0, 3_000)
        asked = {"topics": [{"name": "a", "partition_indexes": [0, 1, 0]}]}
        [topic] = (await broker.ask(DESCRIBE_PRODUCERS, 0, asked)).topics
        first, second = topic.partitions
        assert (first.partition_index, first.error_code, first.error_message) == (0, 0, None)
        assert [
            (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
            for each in first.active_producers
        ] == [(7, 4, 3, 2_001), (9, 4, 1, 3_001)]
        assert {each.current_txn_start_offset for each in first.active_producers} == {-1}
        assert (second.error_code, second.active_producers) == (0, ())

    serve(tmp_path, scenario)


def test_missing_and_unauthorized_partitions_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.create("denied")
        broker.deny((Operation.READ, ResourceType.TOPIC, "denied"))
        asked = {"topics": [{"name": name, "partition_indexes": [5]} for name in ("a", "missing", "denied")]}
        topics = (await broker.ask(DESCRIBE_PRODUCERS, 0, asked)).topics
        assert [topic.partitions[0].error_code for topic in topics] == [
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.topic_authorization_failed,
        ]

    serve(tmp_path, scenario)
