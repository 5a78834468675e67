"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId, DescribeCluster and DescribeLogDirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.coordination import StoreUnreachable
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.harness import Harness, serve

LIST_OFFSETS, DELETE_RECORDS, INIT_PRODUCER_ID, EPOCHS, LOG_DIRS, CLUSTER = 2, 21, 22, 23, 35, 60
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
NOT_ASKED = -(2**31)


def offsets_of(*asked: tuple[str, int, int], leader_epoch: int = -1) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, partition, timestamp in asked:
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": leader_epoch}
        )
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "timeout": 5_000,
    }


async def listed(
    broker: Harness, timestamp: int, version: int = 11, topic: str = "a", **options: int
) -> tuple[int, int, int, ErrorCode]:
    response = await broker.ask(LIST_OFFSETS, version, offsets_of((topic, 0, timestamp), **options))
    [result] = response.topics[0].partitions
    return result.offset, result.timestamp, getattr(result, "leader_epoch", -1), result.error_code


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.append("a", b"0", b"1", timestamp=1_000)
        await broker.append("a", b"2", timestamp=5_000)
        await broker.append("a", b"3", timestamp=3_000)
        epoch = 0 if version >= 4 else -1
        assert await listed(broker, LATEST, version) == (4, -1, epoch, ErrorCode.none)
        assert await listed(broker, EARLIEST, version) == (0, -1, epoch, ErrorCode.none)
        assert await listed(broker, 1_001, version) == (1, 1_001, epoch, ErrorCode.none)
        assert await listed(broker, 2_000, version) == (2, 5_000, epoch, ErrorCode.none)
        assert await listed(broker, 5_001, version) == (-1, -1, -1, ErrorCode.none)
        newest = await listed(broker, MAX_TIMESTAMP, version)
        unsupported = (-1, -1, -1, ErrorCode.unsupported_version)
        assert newest == ((2, 5_000, 0, ErrorCode.none) if version >= 7 else unsupported)
        local = await listed(broker, EARLIEST_LOCAL, version)
        assert local == ((0, -1, 0, ErrorCode.none) if version >= 8 else unsupported)
        for timestamp, first_version in ((LATEST_TIERED, 9), (PENDING_UPLOAD, 11)):
            none = (-1, -1, -1, ErrorCode.none)
            assert await listed(broker, timestamp, version) == (
                none if version >= first_version else unsupported
            )

    serve(tmp_path, scenario)


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_invalid_timestamps_are_refused(tmp_path: Path, timestamp: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert await listed(broker, timestamp) == (-1, -1, -1, ErrorCode.unsupported_version)
        assert await listed(broker, 2**63 - 1) == (-1, -1, -1, ErrorCode.none)

    serve(tmp_path, scenario)


def test_list_offsets_of_an_empty_partition_has_ends_and_no_max_timestamp(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert (await listed(broker, LATEST))[0] == 0
        assert (await listed(broker, EARLIEST))[0] == 0
        assert await listed(broker, MAX_TIMESTAMP) == (-1, -1, -1, ErrorCode.none)

    serve(tmp_path, scenario)


def test_list_offsets_returns_no_uncommitted_offset(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.append("a", b"0", timestamp=1_000)
        replica = broker.context.replicas.get("a", 0)
        await broker.append("a", b"1", timestamp=9_000)
        replica.log.high_watermark = 1  # type: ignore[assignment]
        assert (await listed(broker, LATEST))[0] == 1
        assert await listed(broker, MAX_TIMESTAMP) == (0, 1_000, 0, ErrorCode.none)
        assert await listed(broker, 2_000) == (-1, -1, -1, ErrorCode.none)

    serve(tmp_path, scenario)


def test_list_offsets_returns_an_error_for_each_failed_partition(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.create("denied")
        assert (await listed(broker, LATEST, topic="missing"))[3] == ErrorCode.unknown_topic_or_partition
        assert (await listed(broker, LATEST, leader_epoch=5))[3] == ErrorCode.unknown_leader_epoch
        twice = await broker.ask(LIST_OFFSETS, 11, offsets_of(("a", 0, LATEST), ("a", 0, EARLIEST)))
        codes = [result.error_code for result in twice.topics[0].partitions]
        assert codes == [ErrorCode.invalid_request] * 2
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "denied"))
        assert (await listed(broker, LATEST, topic="denied"))[3] == ErrorCode.topic_authorization_failed

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch_returns_the_end_of_an_epoch(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.append("a", b"0", b"1")

        async def end_of(epoch: int, topic: str = "a", current: int = -1) -> tuple[int, int, ErrorCode]:
            partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
            [result] = (await broker.ask(EPOCHS, version, fields)).topics[0].partitions
            return result.leader_epoch, result.end_offset, result.error_code

        assert await end_of(0) == (0, 2, ErrorCode.none)
        assert await end_of(9) == (-1, -1, ErrorCode.none)
        assert await end_of(0, current=3) == (-1, -1, ErrorCode.unknown_leader_epoch)
        assert await end_of(0, topic="missing") == (-1, -1, ErrorCode.unknown_topic_or_partition)
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
        assert await end_of(0) == (-1, -1, ErrorCode.topic_authorization_failed)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(3))
def test_delete_records_deletes_up_to_an_offset(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        for _ in range(4):
            await broker.append("a", b"x")

        async def delete(offset: int, topic: str = "a", partition: int = 0) -> tuple[int, ErrorCode]:
            asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
            response = await broker.ask(DELETE_RECORDS, version, {"topics": [asked], "timeout": 5_000})
            [result] = response.topics[0].partitions
            return result.low_watermark, result.error_code

        assert await delete(2) == (2, ErrorCode.none)
        assert (await listed(broker, EARLIEST))[0] == 2
        assert await delete(1) == (2, ErrorCode.none), "what is gone is gone"
        for absurd in (5, -2, 2**63 - 1, -(2**63)):
            assert await delete(absurd) == (-1, ErrorCode.offset_out_of_range)
        assert await delete(0, "missing") == (-1, ErrorCode.unknown_topic_or_partition)
        assert await delete(0, "a", 7) == (-1, ErrorCode.unknown_topic_or_partition)
        assert await delete(-1) == (4, ErrorCode.none)
        assert await broker.append("a", b"next") == 4
        await broker.create("compacted", cleanup_policy="compact")
        assert await delete(0, "compacted") == (-1, ErrorCode.policy_violation)
        broker.deny((Operation.DELETE, ResourceType.TOPIC, "a"))
        assert await delete(5) == (-1, ErrorCode.topic_authorization_failed)
        assert (await listed(broker, EARLIEST))[0] == 4

    serve(tmp_path, scenario)


def init(
    transactional_id: str | None = None, timeout: int = 60_000, producer: tuple[int, int] = (-1, -1)
) -> Any:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
    }


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_gives_every_producer_its_own_id(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        answers = [await broker.ask(INIT_PRODUCER_ID, version, init()) for _ in range(3)]
        assert [answer.error_code for answer in answers] == [ErrorCode.none] * 3
        assert len({answer.producer_id for answer in answers}) == 3
        assert {answer.producer_epoch for answer in answers} == {0}
        if version >= 3:
            again = await broker.ask(INIT_PRODUCER_ID, version, init(producer=(answers[0].producer_id, 0)))
            assert (again.error_code, again.producer_epoch) == (ErrorCode.none, 0)
            assert again.producer_id not in {answer.producer_id for answer in answers}
            half = await broker.ask(INIT_PRODUCER_ID, version, init(producer=(5, -1)))
            assert half.error_code == ErrorCode.invalid_request

    serve(tmp_path, scenario)


@pytest.mark.parametrize("error", [BrokerError(ErrorCode.request_timed_out), StoreUnreachable("no session")])
def test_init_producer_id_error_is_retriable_while_the_store_gives_no_ids(
    tmp_path: Path, error: PenstockError
) -> None:
    """Any other error is fatal to producers of the Java client."""

    async def scenario(broker: Harness) -> None:
        blocks: list[range | PenstockError] = [error, range(50, 60)]

        async def allocate() -> range:
            block = blocks.pop(0)
            if isinstance(block, PenstockError):
                raise block
            return block

        broker.context.producer_ids._allocate_block = allocate
        answers = [await broker.ask(INIT_PRODUCER_ID, 4, init()) for _ in range(2)]
        assert [(answer.error_code, answer.producer_id) for answer in answers] == [
            (ErrorCode.coordinator_load_in_progress, -1),
            (ErrorCode.none, 50),
        ]

    serve(tmp_path, scenario)


def test_invalid_init_producer_id_requests_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        async def code(fields: Any) -> ErrorCode:
            answer = await broker.ask(INIT_PRODUCER_ID, 4, fields)
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
            found: ErrorCode = answer.error_code
            return found

        assert await code(init("")) == ErrorCode.invalid_request
        assert await code(init("t", timeout=0)) == ErrorCode.invalid_transaction_timeout
        assert await code(init("t")) == ErrorCode.not_coordinator
        broker.deny_all()
        assert await code(init()) == ErrorCode.cluster_authorization_failed
        assert await code(init("t")) == ErrorCode.transactional_id_authorization_failed

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_returns_the_cluster(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        def describe(operations: bool = False, endpoint: int = 1) -> Any:
            return {
                "include_cluster_authorized_operations": operations,
                "endpoint_type": endpoint,
                "include_fenced_brokers": False,
            }

        answer = await broker.ask(CLUSTER, version, describe())
        assert (answer.error_code, answer.controller_id) == (ErrorCode.none, 1)
        assert answer.cluster_id == broker.context.image.cluster_id
        assert answer.cluster_authorized_operations == NOT_ASKED
        [server] = answer.brokers
        assert (server.broker_id, server.port) == (1, broker._broker.port)
        asked = await broker.ask(CLUSTER, version, describe(operations=True))
        assert asked.cluster_authorized_operations & 1 << Operation.ALTER
        if version >= 1:
            wrong = await broker.ask(CLUSTER, version, describe(endpoint=2))
            assert (wrong.error_code, wrong.brokers) == (ErrorCode.mismatched_endpoint_type, ())
            unknown = await broker.ask(CLUSTER, version, describe(endpoint=9))
            assert unknown.error_code == ErrorCode.unsupported_endpoint_type

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_log_dirs_returns_log_directories(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", 2)
        await broker.create("b")
        await broker.append("a", b"x" * 100)
        [everything] = (await broker.ask(LOG_DIRS, version, {"topics": None})).results
        assert (everything.error_code, everything.log_dir) == (ErrorCode.none, str(tmp_path))
        sizes = {
            (topic.name, part.partition_index): part.partition_size
            for topic in everything.topics
            for part in topic.partitions
        }
        assert set(sizes) == {("a", 0), ("a", 1), ("b", 0)}
        assert sizes["a", 0] > 100
        assert sizes["a", 1] == 0
        if version >= 4:
            assert everything.usable_bytes > 0
        asked = [{"topic": "a", "partitions": [1, 7]}, {"topic": "missing", "partitions": [0]}]
        [some] = (await broker.ask(LOG_DIRS, version, {"topics": asked})).results
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [("a", [1])]
        broker.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        denied = await broker.ask(LOG_DIRS, version, {"topics": None})
        assert denied.results == ()
        if version >= 3:
            assert denied.error_code == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario)
