"""Topics, partitions and settings that change while one of three brokers is away, which has them after its
start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_reassignment_on_brokers import ORDERS, create, directories, state, values
from test_replicas_on_brokers import started

from penstock.cluster import deletions, znodes
from penstock.errors import ErrorCode
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.whole_brokers import Brokers, run


async def delete(harness: Harness, name: str) -> None:
    response = await harness.ask(20, 6, {"topics": [{"name": name, "topic_id": None}], "timeout": 5_000})
    assert response.responses[0].error_code == ErrorCode.none


async def grow(harness: Harness, count: int) -> Any:
    topic = {"name": ORDERS, "count": count, "assignments": None}
    response = await harness.ask(37, 3, {"topics": [topic], "timeout": 5_000, "validate_only": False})
    return response.results[0].error_code


def test_logs_of_a_topic_deleted_meanwhile_are_deleted(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await create(first, [1, 2, 3])
        await first.append(ORDERS, b"old")
        await brokers.stop(3)
        assert len(directories(tmp_path, 3)) == 1
        await delete(first, ORDERS)
        # A new topic with the same name is another topic.
        await create(first, [1, 2])
        await first.append(ORDERS, b"new")
        assert len(directories(tmp_path, 3)) == 1
        await brokers.start(3)
        assert directories(tmp_path, 3) == []
        assert values(first) == [b"new"]

    run(tmp_path, scenario)


def test_interrupted_deletion_of_logs_is_finished_at_the_start(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 1)
        await create(first, [1])
        await first.append(ORDERS, b"old")
        logs = first.context.logs
        begin_delete = logs.begin_delete
        with pytest.MonkeyPatch.context() as patch:
            # State after a crash: the topic is deleted, its directory remains.
            patch.setattr(logs, "begin_delete", lambda topic_id: begin_delete(topic_id, []))
            await delete(first, ORDERS)
        assert len(directories(tmp_path, 1)) == 1
        await brokers.stop(1)
        await brokers.start(1)
        assert directories(tmp_path, 1) == []

    run(tmp_path, scenario)


def test_partitions_are_added_to_an_absent_broker_too(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await create(first, [1, 2, 3])
        await brokers.stop(3)
        await eventually_async(lambda: len(first.context.image.brokers) == 2)
        assert await grow(first, 2) == ErrorCode.none
        assert set(state(first, 1).isr) == {1, 2}
        await first.append(ORDERS, b"writes go on")
        third = await brokers.start(3)
        await eventually_async(lambda: len(third.context.image.topics[ORDERS].partitions) == 2)
        await eventually_async(lambda: set(state(first).isr) == set(state(first, 1).isr) == {1, 2, 3})
        assert len(directories(tmp_path, 3)) == 2

    run(tmp_path, scenario)


def test_partitions_are_added_with_the_brokers_that_are_available(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await create(first, [3, 1])
        await brokers.stop(3)
        await eventually_async(lambda: len(first.context.image.brokers) == 2)
        assert await grow(first, 4) == ErrorCode.none
        partitions = first.context.image.topics[ORDERS].partitions
        assert all(set(partition.replicas) == {1, 2} for partition in partitions[1:])
        third = await brokers.start(3)
        assert len(third.context.image.topics[ORDERS].partitions) == 4
        await eventually_async(lambda: set(state(first).isr) == {1, 3})

    run(tmp_path, scenario)


def test_settings_changed_meanwhile_apply_after_the_start(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await create(first, [3, 1, 2])
        await brokers.stop(3)
        await eventually_async(lambda: state(first).leader == 1)
        resources = [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": setting, "config_operation": 0, "value": value}],
            }
            for kind, name, setting, value in (
                (2, ORDERS, "max.message.bytes", "12345"),
                (4, "", "log.cleaner.backoff.ms", "4711"),
            )
        ]
        response = await first.ask(44, 1, {"resources": resources, "validate_only": False})
        assert {each.error_code for each in response.responses} == {ErrorCode.none}
        third = await brokers.start(3)
        await eventually_async(lambda: set(state(first).isr) == {1, 2, 3})
        assert third.context.replicas._replicas[ORDERS, 0].log.config.max_message_bytes == 12_345
        assert third.context.config.overrides == {"log.cleaner.backoff.ms": "4711"}

    run(tmp_path, scenario)


def test_topic_is_created_and_used_while_a_broker_is_away(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, *_ = await started(brokers, 3)
        await brokers.stop(3)
        await eventually_async(lambda: len(first.context.image.brokers) == 2)
        new = new_topic(ORDERS, 1, 2)
        response = await first.ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
        assert response.topics[0].error_code == ErrorCode.none
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1, 2})
        third = await brokers.start(3)
        assert ORDERS in third.context.image.topics
        assert directories(tmp_path, 3) == []

    run(tmp_path, scenario)


def test_number_of_remembered_topic_deletions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "MAX_DELETIONS", 3)
    monkeypatch.setattr(deletions, "TRIMMED_AT_ONCE", 2)

    async def scenario(brokers: Brokers) -> None:
        (first,) = await started(brokers, 1)
        ids = []
        for _ in range(5):
            await create(first, [1])
            ids.append(first.context.image.topics[ORDERS].id)
            await delete(first, ORDERS)
        broker = brokers.running[1]
        store = broker._environment.store
        assert await deletions.deleted_topics(store) == set(ids)
        await deletions.trim(store, broker._controller._change_list)
        assert await deletions.deleted_topics(store) == set(ids[-3:])
        assert len(await store.children(znodes.DELETED_TOPICS)) == 3

    run(tmp_path, scenario)
