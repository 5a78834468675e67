"""`retention.acknowledged` on several brokers, and planted bugs: positions that one broker does not know count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_acknowledged_retention import TOPIC, commit, reason, start_offset

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.groups.shard import GroupShard
from penstock.server.acknowledged import positions
from penstock.server.acknowledged.retention import AcknowledgedRetention
from penstock.server.draining.group_positions import GroupPositions
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

END = 30
SETTINGS = {
    "offsets_topic_num_partitions": "4",
    "offsets_topic_replication_factor": "1",
    "default_replication_factor": "1",
}


async def commit_at_coordinator(brokers: list[Harness], group: str, offset: int) -> int:
    """Commit an offset; returns the number of the broker that coordinates the group."""
    leader = await brokers[0].context.groups.find(group)
    coordinator = next(each for each in brokers if each.context.node_id == leader)
    await commit(coordinator, group, offset)
    return int(coordinator.context.node_id)


async def started(brokers: Brokers) -> tuple[list[Harness], Harness, dict[int, str]]:
    """Start two brokers; returns them, the leader of the topic, and a group that each of them coordinates."""
    found = [await brokers.start(1), await brokers.start(2)]
    await eventually_async(lambda: all(len(each.context.image.brokers) == 2 for each in found))
    await found[0].create(TOPIC, 1, retention_acknowledged="true")
    await eventually_async(lambda: all(TOPIC in each.context.image.topics for each in found))
    number = found[0].context.image.topics[TOPIC].partitions[0].leader
    leader = next(each for each in found if each.context.node_id == number)
    await eventually_async(lambda: any(each.name.topic == TOPIC for each in leader.context.replicas))
    await leader.append(TOPIC, *[b"value"] * END)
    groups: dict[int, str] = {}
    for index in range(20):
        groups.setdefault(await commit_at_coordinator(found, f"g{index}", END), f"g{index}")
    return found, leader, groups


def test_group_of_another_broker_holds_its_records(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        found, leader, groups = await started(brokers)
        other = next(each for each in found if each is not leader)
        group = groups[int(other.context.node_id)]
        await commit_at_coordinator(found, group, 12)
        assert await start_offset(leader) == 12
        assert f"group {group} has settled records up to offset 12" in reason(leader)
        await commit_at_coordinator(found, group, 20)
        await brokers.stop(int(other.context.node_id))
        assert await start_offset(leader) == 12
        assert "not all group coordinators have answered" in reason(leader)

    run(tmp_path, scenario, **SETTINGS)


async def held_by_an_idle_group(brokers: Brokers) -> int:
    """Log start after a group of the other broker has committed a lower offset than all others."""
    found, leader, groups = await started(brokers)
    other = next(each for each in found if each is not leader)
    await commit_at_coordinator(found, groups[int(other.context.node_id)], 12)
    return await start_offset(leader)


def forget_idle_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: a group without members that lags counts as gone."""
    real = positions._collect_offsets

    def collect(image: Any, chosen: Any, shard: GroupShard, found: GroupPositions) -> None:
        class Offsets:
            def all(self) -> Iterator[Any]:
                for each in shard.offsets.all():
                    group = shard.groups.get(each[0])
                    if each[3].offset == END or (group is not None and not group.is_empty):
                        yield each

        class Shown:
            offsets, groups = Offsets(), shard.groups

        real(image, chosen, Shown(), found)  # type: ignore[arg-type]

    monkeypatch.setattr(positions, "_collect_offsets", collect)


def ask_no_other_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: the leader takes its own groups for all."""

    async def ask(self: AcknowledgedRetention) -> GroupPositions:
        return await self._own()

    monkeypatch.setattr(AcknowledgedRetention, "_ask_all", ask)


@pytest.mark.parametrize("bug", [None, forget_idle_groups, ask_no_other_broker])
def test_planted_bugs_of_retention_are_noticed(
    tmp_path: Path, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    if bug is not None:
        bug(monkeypatch)

    async def scenario(brokers: Brokers) -> None:
        starts.append(await held_by_an_idle_group(brokers))
        assert OFFSETS_TOPIC in next(iter(brokers.running.values()))._metadata.image.topics

    run(tmp_path, scenario, **SETTINGS)
    assert starts == [12 if bug is None else END]
