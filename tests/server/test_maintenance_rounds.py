"""Replicas that the rounds of the maintenance visit: an idle broker with many topics has none."""

from __future__ import annotations

from pathlib import Path

from penstock.model import Offset
from penstock.storage.damage import DamagedRange
from support.whole_brokers import Brokers, run


def test_rounds_visit_only_replicas_with_work(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        replicas = harness.context.replicas
        for number in range(5):
            await harness.create(f"plain-{number}", 2)
        await harness.create("keyed", index_by_key="true")
        await harness.create("delayed", delivery_delay="true", message_timestamp_type="LogAppendTime")
        assert {replica.name.topic for replica in replicas.upkeep} == {"keyed", "delayed"}
        assert replicas.unsound == []
        assert replicas.replicated == (), "no partition has a follower"
        await harness.append("plain-1", b"x")
        suspect = replicas.get("plain-1", 0)
        suspect.on_unreadable(Offset(0))
        assert suspect in replicas.upkeep

    run(tmp_path, scenario)


def test_damaged_log_is_visited_until_it_is_whole(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("a", 2)
        replicas, logs = harness.context.replicas, harness.context.logs
        await harness.append("a", b"x")
        replica = replicas.get("a", 0)
        replica.log.add_damage(DamagedRange(Offset(0), Offset(1), "planted"))
        assert replicas.unsound == [replica]
        logs.forget_sound(replica.log)
        assert replicas.unsound == [replica], "the log is still damaged"
        replica.log.damage = ()
        logs.forget_sound(replica.log)
        assert replicas.unsound == []

    run(tmp_path, scenario)


def test_failed_log_is_visited_and_a_deleted_one_is_not(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("a")
        await harness.create("b", index_by_key="true")
        replicas = harness.context.replicas
        failing = replicas.get("a", 0)
        gone = replicas.get("b", 0)
        gone.log.discard()
        assert replicas.unsound == []
        failing.log.fail(OSError("planted"))
        assert replicas.unsound == [failing]
        failing.log.failure = None

    run(tmp_path, scenario)
