"""`GET /v1/topics/{topic}/messages` over all partitions: order, paging, waiting, retention, transactions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from push_stage import Stage, on_stage

from penstock.gateway.records import BUSY_WAIT_MS
from penstock.gateway.topic_reading import MAX_PARTITIONS
from penstock.records.building import NewRecord
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers

ORDERS = "orders"
MESSAGES = f"/v1/topics/{ORDERS}/messages"


async def create(brokers: Brokers, partitions: int = 3, **configs: str) -> Harness:
    harness = Harness(next(iter(brokers.running.values())))
    await harness.create(ORDERS, partitions=partitions, **configs)
    return harness


async def send(stage: Stage, value: str, partition: int, time_ms: int) -> None:
    await stage.backend.records.produce(ORDERS, partition, NewRecord(None, value.encode(), time_ms))


async def read(stage: Stage, **parameters: Any) -> dict[str, Any]:
    answer = await stage.http.get(MESSAGES, params=parameters)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def values(page: dict[str, Any]) -> list[str]:
    return [each["value"] for each in page["messages"]]


def test_pages_of_all_partitions_are_ordered_by_time(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        for number in range(20):
            await send(stage, str(number), number % 3, 1_000 + number)
        page = await read(stage)
        assert values(page) == [str(number) for number in range(20)]
        assert {each["partition"] for each in page["messages"]} == {0, 1, 2}
        seen: list[str] = []
        positions = ""
        while found := values(page := await read(stage, limit=7, positions=positions)):
            seen += found
            positions = page["positions"]
        assert seen == [str(number) for number in range(20)]
        assert values(await read(stage, time_ms=1_015)) == ["15", "16", "17", "18", "19"]
        await send(stage, "late", 1, 5_000)
        assert values(await read(stage, positions=positions)) == ["late"]

    on_stage(tmp_path, scenario)


def test_wait_for_all_partitions_ends_with_message_in_any(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await send(stage, "old", 0, 1)
        positions = (await read(stage))["positions"]
        waiting = asyncio.create_task(read(stage, positions=positions, wait=20))
        await eventually_async(lambda: stage.backend.records._waiting == len(brokers.running))
        await send(stage, "new", 2, 1)
        assert values(await waiting) == ["new"]
        await eventually_async(lambda: stage.backend.records._waiting == 0)
        ended = await read(stage, positions=positions.replace("0:1", "0:1,2:1"), wait=0.1)
        assert ended == {"messages": [], "positions": "0:1,2:1"}

    on_stage(tmp_path, scenario, brokers=2)


def test_wait_for_all_partitions_skips_aborted_transactions(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        harness = await create(brokers, partitions=1)
        await harness.append(ORDERS, b"first")
        replica = harness.context.replicas.get(ORDERS, 0)
        before = replica.log.log_end_offset
        await _abort_one(brokers)
        await eventually_async(lambda: replica.log.log_end_offset > before)
        waiting = asyncio.create_task(read(stage, positions="0:1", wait=20))
        await eventually_async(lambda: stage.backend.records._waiting == 1)
        await send(stage, "committed", 0, 1)
        assert values(await waiting) == ["committed"]

    on_stage(tmp_path, scenario, of_brokers={"transaction_state_log_num_partitions": "1"})


async def _abort_one(brokers: Brokers) -> None:
    """Write one record in a transaction that is aborted, with a Kafka client."""
    from confluent_kafka import Producer

    def work() -> None:
        port = next(iter(brokers.running.values())).port
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(ORDERS, b"aborted", partition=0)
        producer.flush(20)
        producer.abort_transaction(20)

    await asyncio.to_thread(work)


def test_truncated_positions_continue_at_log_start(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=2)
        for number in range(6):
            await send(stage, str(number), number % 2, 1_000 + number)
        positions = (await read(stage, limit=2))["positions"]
        await stage.backend.records.delete_before(ORDERS, {0: 2})
        assert values(await read(stage, positions=positions)) == ["3", "4", "5"]
        beyond = await stage.http.get(MESSAGES, params={"positions": "0:99"})
        assert (beyond.status_code, beyond.json()["error"]) == (416, "OFFSET_OUT_OF_RANGE")

    on_stage(tmp_path, scenario)


def test_missing_topic_gets_404_for_every_kind_of_read(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        for parameters in ({}, {"partition": 0}, {"key": "k"}, {"partition": 0, "offset": 0}, {"wait": 0.1}):
            answer = await stage.http.get(MESSAGES, params=parameters)
            assert (answer.status_code, answer.json()["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION"), (
                parameters
            )
        await create(brokers, partitions=1)
        answer = await stage.http.get(MESSAGES, params={"partition": 1})
        assert answer.status_code == 404

    on_stage(tmp_path, scenario)


def test_topic_with_too_many_partitions_is_read_one_by_one(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers, partitions=MAX_PARTITIONS + 1)
        assert (await stage.http.get(MESSAGES)).status_code == 400
        assert await read(stage, partition=MAX_PARTITIONS)

    on_stage(tmp_path, scenario)


def test_wait_without_free_connection_polls(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        stage.backend.records._waiting = 10_000
        started = asyncio.get_running_loop().time()
        assert await read(stage, wait=0.5) == {"messages": [], "positions": ""}
        assert asyncio.get_running_loop().time() - started >= BUSY_WAIT_MS / 1000
        stage.backend.records._waiting = 0

    on_stage(tmp_path, scenario)
