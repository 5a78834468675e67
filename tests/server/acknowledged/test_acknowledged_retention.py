"""`retention.acknowledged` on whole brokers: records go when every queue and group has settled them, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.model import TopicPartition
from support.harness import Harness, serve
from support.share_wire import ACCEPT, SETTINGS, ShareMember, configure, loaded

TOPIC = "t"


async def start_offset(broker: Harness, topic: str = TOPIC, partition: int = 0) -> int:
    """Log start after a round of retention."""
    retention = broker.context.acknowledged
    assert retention is not None
    await retention.run()
    return int(broker.context.replicas.get(topic, partition).log.log_start_offset)


def reason(broker: Harness, partition: int = 0) -> str:
    retention = broker.context.acknowledged
    assert retention is not None
    return next(
        (
            each.reason
            for name, each in retention.verdicts.items()
            if name == TopicPartition(TOPIC, partition)
        ),
        "none",
    )


async def commit(broker: Harness, group: str, offset: int, topic: str = TOPIC) -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }

    await loaded(broker, group)
    answer = await broker.ask(8, 8, fields)
    assert answer.topics[0].partitions[0].error_code == 0


def run(tmp_path: Path, scenario: Any, **configs: str) -> None:
    async def whole(broker: Harness) -> None:
        await broker.create(TOPIC, 1, retention_acknowledged="true", **configs)
        for _ in range(3):
            await broker.append(TOPIC, *[b"value"] * 10)
        await scenario(broker)

    serve(tmp_path, whole, SETTINGS)


async def join(broker: Harness, topic: str = TOPIC) -> ShareMember:
    await configure(broker, auto_offset_reset="earliest")
    member = ShareMember(broker)
    await member.join(topic)
    return member


async def take(member: ShareMember) -> list[tuple[int, int, int]]:
    taken: list[tuple[int, int, int]] = []
    while not taken:
        taken = await member.take(TOPIC, max_wait=2_000)
    return taken


def test_no_acknowledged_record_is_deleted_without_a_group(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        assert await start_offset(broker) == 0
        assert "no queue or group" in reason(broker)

    run(tmp_path, scenario, retention_ms="1")


def test_records_are_deleted_when_a_share_group_has_settled_them(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await join(broker)
        await take(member)
        assert await start_offset(broker) == 0
        assert "group g" in reason(broker)
        await member.acknowledge(TOPIC, [(0, 14, [ACCEPT])])
        assert await start_offset(broker) == 15
        await member.acknowledge(TOPIC, [(15, 29, [ACCEPT])])
        assert await start_offset(broker) == 30
        log = broker.context.replicas.get(TOPIC, 0).log
        assert log.size_bytes == 0
        assert reason(broker) == ""
        await broker.append(TOPIC, b"more")
        assert await take(member) == [(30, 30, 1)]

    run(tmp_path, scenario)


def test_group_without_members_keeps_its_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await commit(broker, "idle", 5)
        await commit(broker, "fast", 30)
        assert await start_offset(broker) == 5
        assert "group idle has settled records up to offset 5" in reason(broker)

    run(tmp_path, scenario)


def test_group_of_a_view_holds_the_records_of_its_source(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("v", 1, view_of=TOPIC, view_filter="size > 0")
        await commit(broker, "fast", 30)
        await commit(broker, "slow", 7, "v")
        assert await start_offset(broker) == 7

    run(tmp_path, scenario)


def test_queue_without_a_position_blocks_deletion(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await commit(broker, "fast", 30)
        await configure(broker, "orders", queue_topic=TOPIC)
        assert await start_offset(broker) == 0
        assert "group orders is unknown" in reason(broker)

    run(tmp_path, scenario)


def test_member_without_a_commit_blocks_deletion(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await commit(broker, "fast", 30)
        await join(broker)
        assert await start_offset(broker) == 0
        assert "group g" in reason(broker)

    run(tmp_path, scenario)


def test_position_in_one_partition_does_not_release_another(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("two", 2, retention_acknowledged="true")
        await broker.append("two", b"value", partition=1)
        await commit(broker, "half", 0, "two")
        assert await start_offset(broker, "two", 1) == 0

    run(tmp_path, scenario)
