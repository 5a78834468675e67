"""Coordinators that were loaded around damaged records are loaded again when the records are repaired."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_repair import SCRUB, all_copied, started

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.groups.records import OffsetKey
from penstock.model import TopicPartition
from penstock.replication.replica import Replica
from penstock.server.repairing import Repairing
from penstock.state_log.partitioning import partition_of
from support.changed_bytes import segments_of
from support.eventually import eventually_async
from support.group_commits import committing
from support.harness import Harness
from support.transaction_wire import find_coordinator
from support.whole_brokers import Brokers, run

GROUP = "g"
P0 = TopicPartition("orders", 0)
METADATA = b"a text to find on the disk"


async def commit(broker: Harness, partition: TopicPartition, metadata: bytes) -> None:
    value = CommittedOffset(7, -1, metadata.decode(), broker.context.image.topics["orders"].id, 1)
    key = OffsetKey(GROUP, partition.topic, partition.partition)
    commit = OffsetCommit(GROUP, "", None, -1, {key: value})
    await committing(broker.context.groups.shard_of(GROUP), commit)


def committed(broker: Harness) -> set[TopicPartition]:
    return set(broker.context.groups.shard_of(GROUP).fetch_offsets(GROUP, None, -1, None))


async def nothing(_: Repairing) -> None: ...


def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scrub_interval_ms: str) -> None:
    """Damage a record of a coordinator, and have it repaired once the coordinator was loaded without it."""

    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 3)
        await all_copied(brokers)
        number = await find_coordinator(Harness(brokers.running[1]), 0, GROUP)
        broker = Harness(brokers.running[number])
        groups = broker.context.groups
        await eventually_async(lambda: groups.shard_of(GROUP), ignoring=BrokerError)
        await commit(broker, P0, METADATA)
        await commit(broker, TopicPartition("orders", 1), b"")
        before = committed(broker)
        assert len(before) == 2
        index = partition_of(GROUP, len(broker.context.image.topics[OFFSETS_TOPIC].partitions))
        replica = broker.context.replicas.get(OFFSETS_TOPIC, index)
        [segment] = segments_of(tmp_path / str(number), OFFSETS_TOPIC, index)
        with monkeypatch.context() as without_repair:
            without_repair.setattr(Repairing, "run", nothing)
            segment.flip_text(METADATA)
            groups._shards.unload(index)
            groups._shards.follow_leadership()
            await eventually_async(lambda: groups.shard_of(GROUP), ignoring=BrokerError)
            assert committed(broker) == before - {P0}
            assert replica.suspects or replica.log.damage, "no scrub of damage that a coordinator met"
        await eventually_async(lambda: committed(broker) == before, ignoring=BrokerError)

    run(tmp_path, scenario, **SCRUB | {"log_scrub_interval_ms": scrub_interval_ms})


@pytest.mark.slow
@pytest.mark.parametrize("scrub_interval_ms", [SCRUB["log_scrub_interval_ms"], "0"])
def test_coordinator_loaded_around_damage_is_loaded_again_after_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scrub_interval_ms: str
) -> None:
    """Damage that a coordinator meets is scrubbed at once, without a background scrub too."""
    check(tmp_path, monkeypatch, scrub_interval_ms)


def test_coordinator_that_asks_for_no_scrub_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "on_unreadable", lambda *_: None)
    with pytest.raises(AssertionError, match="no scrub of damage"):
        check(tmp_path, monkeypatch, "0")
