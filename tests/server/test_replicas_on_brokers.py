"""Replication in whole brokers: responses to producers, cold reads by followers, and brokers that join."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from test_produce_handler import batch, produce, topic

from penstock.cluster.memory import MemoryStore
from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.storage.data_directory import CLEAN_STOP_FILE
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.whole_brokers import SHORT_LAG, Brokers, run

ORDERS = "orders"


async def create(harness: Harness, replicas: list[int], **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    new = new_topic(ORDERS, assignments=[(0, replicas)], configs=settings)
    response = await harness.ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
    assert response.topics[0].error_code == 0, response.topics[0].error_message


async def started(brokers: Brokers, count: int) -> list[Harness]:
    harnesses = [await brokers.start(number) for number in range(1, count + 1)]
    await eventually_async(
        lambda: all(len(broker._metadata.image.brokers) == count for broker in brokers.running.values())
    )
    return harnesses


@pytest.mark.slow
def test_record_stored_under_min_isr_gets_the_after_append_error(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started(brokers, 2)
        await create(first, [1, 2], min_insync_replicas="2")
        await eventually_async(lambda: ORDERS in second.context.image.topics)
        (result,) = await produce(first, topic(ORDERS, batch()))
        assert result.error_code == 0
        # The follower no longer fetches but is registered: the leader removes it after the lag time.
        await second.context.replicas._fetchers.stop()
        (result,) = await produce(first, topic(ORDERS, batch()))
        assert result.error_code == ErrorCode.not_enough_replicas_after_append
        assert brokers.members(1, ORDERS) == {1}
        (result,) = await produce(first, topic(ORDERS, batch()))
        assert result.error_code == ErrorCode.not_enough_replicas
        assert first.context.replicas.get(ORDERS, 0).log.log_end_offset == 2

    run(tmp_path, scenario, **SHORT_LAG)


def test_follower_fetches_records_that_are_only_on_the_leaders_disk(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, _ = await started(brokers, 2)
        await create(first, [1, 2], segment_bytes="65536")
        await brokers.stop(2)
        for number in range(50):
            await first.append(ORDERS, bytes([number]) * 10_000)
        log = first.context.replicas.get(ORDERS, 0).log
        for path in (tmp_path / "1" / "logs").rglob("*.log"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        second = await brokers.start(2)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        copy = second.context.logs.get(first.context.image.topics[ORDERS].id, 0)
        assert copy is not None
        assert copy.log_end_offset == log.log_end_offset == 50

    run(tmp_path, scenario)


def test_new_follower_starts_at_a_log_start_inside_a_batch(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, _ = await started(brokers, 2)
        await create(first, [1, 2])
        await brokers.stop(2)
        five = memoryview(build_batch([NewRecord(None, b"%d" % number, 1_000) for number in range(5)]))
        for _ in range(2):
            (result,) = await produce(first, topic(ORDERS, five))
            assert result.error_code == 0
        asked = {"name": ORDERS, "partitions": [{"partition_index": 0, "offset": 3}]}
        response = await first.ask(21, 2, {"topics": [asked], "timeout": 5_000})
        assert response.topics[0].partitions[0].low_watermark == 3
        second = await brokers.start(2)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        copy = second.context.logs.get(first.context.image.topics[ORDERS].id, 0)
        assert copy is not None
        assert (copy.log_start_offset, copy.log_end_offset) == (3, 10)
        (result,) = await produce(first, topic(ORDERS, five))
        assert result.error_code == 0
        assert copy.log_end_offset == 15

    run(tmp_path, scenario)


def test_failed_start_leaves_the_data_directory_unchanged(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await brokers.stop(2)
        mark = (tmp_path / "2" / CLEAN_STOP_FILE).read_bytes()
        taken = brokers.running[1].port
        brokers._settings["port"] = str(taken)
        with pytest.raises(OSError, match="in use"):
            await brokers.start(2)
        assert (tmp_path / "2" / CLEAN_STOP_FILE).read_bytes() == mark
        brokers._settings["port"] = "0"
        await brokers.start(2)

    run(tmp_path, scenario)


def test_broker_with_expired_session_stops_leading_and_rejoins_with_its_records(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started(brokers, 2)
        await create(first, [1, 2])
        await eventually_async(lambda: ORDERS in second.context.image.topics)
        await first.append(ORDERS, b"before")
        lost = brokers.running[1]
        store = lost._environment.store
        assert isinstance(store, MemoryStore)
        store.expire()
        await eventually_async(lambda: second.context.image.topics[ORDERS].partitions[0].leader == 2)
        await eventually_async(lambda: lost.is_lost)
        (result,) = await produce(first, topic(ORDERS, batch()))
        assert result.error_code == ErrorCode.not_leader_or_follower
        await brokers.stop(1)
        await second.append(ORDERS, b"meanwhile")
        await brokers.start(1)
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1, 2})

    run(tmp_path, scenario)


def test_replica_without_its_directory_leaves_the_set_and_is_fetched_again(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started(brokers, 2)
        await create(first, [1, 2])
        await eventually_async(lambda: ORDERS in second.context.image.topics)
        for number in range(5):
            await first.append(ORDERS, bytes([number]))
        await brokers.stop(2)
        [directory] = (tmp_path / "2" / "logs").glob(f"{ORDERS}*")
        shutil.rmtree(directory)
        second = await brokers.start(2)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        copy = second.context.logs.get(first.context.image.topics[ORDERS].id, 0)
        assert copy is not None
        assert (copy.log_start_offset, copy.log_end_offset) == (0, 5)

    run(tmp_path, scenario)


def test_topic_gets_all_replicas_while_one_of_three_brokers_is_away(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await first.create(ORDERS)
        assert len(first.context.image.topics[ORDERS].partitions[0].replicas) == 3
        await brokers.stop(3)
        await eventually_async(lambda: len(first.context.image.brokers) == 2)
        new = new_topic("payments", 1)
        response = await first.ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
        assert response.topics[0].error_code == ErrorCode.none
        made = first.context.image.topics["payments"].partitions[0]
        assert (set(made.replicas), set(made.isr)) == ({1, 2, 3}, {1, 2})
        await brokers.start(3)
        await eventually_async(
            lambda: set(first.context.image.topics["payments"].partitions[0].isr) == {1, 2, 3}
        )

    run(tmp_path, scenario)


async def delete_below(harness: Harness, offset: int, timeout_ms: int = 10_000) -> Any:
    asked = {"partition_index": 0, "offset": offset}
    timeout = timedelta(milliseconds=timeout_ms)
    fields = {"topics": [{"name": ORDERS, "partitions": [asked]}], "timeout": timeout}
    response = await harness.ask(21, 2, fields)
    return response.topics[0].partitions[0]


@pytest.mark.slow
def test_delete_records_responds_after_all_in_sync_replicas_applied_it(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await started(brokers, 2)
        await create(first, [1, 2])
        await eventually_async(lambda: ORDERS in second.context.image.topics)
        for number in range(5):
            await first.append(ORDERS, bytes([number]))
        copy = second.context.logs.get(first.context.image.topics[ORDERS].id, 0)
        assert copy is not None
        result = await delete_below(first, 3)
        assert (result.error_code, result.low_watermark) == (ErrorCode.none, 3)
        assert copy.log_start_offset == 3
        # A follower that no longer fetches leaves the set after the lag time; until then the deletion is not
        # done.
        await second.context.replicas._fetchers.stop()
        late = await delete_below(first, 5, timeout_ms=100)
        assert late.error_code == ErrorCode.request_timed_out
        await produce(first, topic(ORDERS, batch()))
        result = await delete_below(first, 5)
        assert (result.error_code, result.low_watermark) == (ErrorCode.none, 5)
        assert brokers.members(1, ORDERS) == {1}

    run(tmp_path, scenario, **SHORT_LAG)
