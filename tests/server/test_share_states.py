"""States of share-partitions: fences, transactions, compaction, settings and pruning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey
from penstock.queues.states import ACKNOWLEDGED, StateBatch, StateUpdate
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.share_wire import (
    ACCEPT,
    RELEASE,
    SETTINGS,
    ShareMember,
    configure,
    first_take,
    partition_of,
    run,
)


def key_of(member: ShareMember) -> ShareKey:
    return ShareKey(member.group, member.topic_id("t"), 0)


async def refused(work: Any) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


def test_write_of_a_deposed_leader_is_refused_after_its_successor_has_read(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        states, key = broker.context.share.states, key_of(member)
        update = StateUpdate(3, 0, [])
        await states.read(key, 50)
        await states.write(key, (1, 50), update)
        await states.read(key, 51)
        assert await refused(states.write(key, (1, 50), update)) is ErrorCode.fenced_leader_epoch
        assert await refused(states.read(key, 50)) is ErrorCode.fenced_leader_epoch
        await states.write(key, (1, 51), update)

    run(tmp_path, scenario)


def test_write_of_an_older_state_epoch_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        states, key = broker.context.share.states, key_of(member)
        epoch = (await states.read(key, 50)).state_epoch
        await states.initialize(key, epoch + 1, 7)
        assert (
            await refused(states.write(key, (epoch, 50), StateUpdate(3, 0, [])))
            is ErrorCode.fenced_state_epoch
        )
        assert await refused(states.initialize(key, epoch, 1)) is ErrorCode.fenced_state_epoch
        assert (await states.read(key, 50)).start_offset == 7

    run(tmp_path, scenario)


@pytest.mark.parametrize("epochs_later", [0, 1])
def test_repeated_initialization_keeps_progress(tmp_path: Path, epochs_later: int) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        states, key = broker.context.share.states, key_of(member)
        epoch = (await states.read(key, 50)).state_epoch
        await states.write(key, (epoch, 50), StateUpdate(5, 2, [StateBatch(7, 8, ACKNOWLEDGED, 1)]))
        await states.initialize(key, epoch + epochs_later, -1)
        state = await states.read(key, 50)
        assert (state.start_offset, state.batches) == (5, (StateBatch(7, 8, ACKNOWLEDGED, 1),))

    run(tmp_path, scenario)


def test_requests_for_unknown_share_states_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        states, key = broker.context.share.states, key_of(member)._replace(group_id="other")
        assert await refused(states.read(key, 1)) is ErrorCode.invalid_request
        assert await refused(states.write(key, (0, 1), StateUpdate(0, 0, []))) is ErrorCode.invalid_request
        assert await refused(states.summary(key)) is ErrorCode.invalid_request
        await states.delete(key)

    run(tmp_path, scenario)


def test_fenced_leader_loads_the_state_again(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        states, key = broker.context.share.states, key_of(member)
        epoch = (await states.summary(key)).state_epoch
        await states.initialize(key, epoch + 1, 4)
        answer = await member.acknowledge("t", [(0, 9, [ACCEPT])])
        assert partition_of(answer).error_code == ErrorCode.not_leader_or_follower
        assert await member.take("t", max_wait=3_000) == [(4, 9, 1)]
        assert partition_of(await member.acknowledge("t", [(4, 9, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario)


def test_updates_and_snapshots_survive_restarts_and_pruning(tmp_path: Path) -> None:
    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest")
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", *[b"value"] * 1_500)
        taken = await first_take(member, max_records=2_000)
        assert taken == [(0, 1_499, 1)]
        for offset in range(1, 1_500, 2):
            await member.acknowledge("t", [(offset, offset, [ACCEPT])])
        (shard,) = broker.context.share.coordinator.shards
        await shard.sweep()
        log = broker.context.replicas.get("__share_group_state", 0).log
        assert log.log_start_offset > 500
        await member.acknowledge("t", [(0, 0, [ACCEPT]), (2, 2, [RELEASE])])

    async def after(broker: Harness) -> None:
        member = ShareMember(broker, "m2")
        await member.join("t")
        taken = await first_take(member, max_records=2_000)
        assert taken[0] == (2, 2, 2)
        assert taken[1:] == [(offset, offset, 1) for offset in range(4, 1_500, 2)]

    settings = SETTINGS | {"share.coordinator.snapshot.update.records.per.snapshot": "50"}
    ensemble = MemoryEnsemble()
    serve(tmp_path, before, settings, ensemble)
    serve(tmp_path, after, settings, ensemble)


def test_changed_settings_apply_to_running_groups(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, share_acquire_mode=1, max_records=4) == [(0, 3, 1)]
        await configure(broker, partition_max_record_locks=5)
        assert await member.take("t") == [(4, 4, 1)]
        assert await member.take("t") == []
        await configure(broker, partition_max_record_locks=100)
        assert await member.take("t") == [(5, 9, 1)]
        await configure(broker, delivery_count_limit=2)
        await member.acknowledge("t", [(0, 9, [RELEASE])])
        assert await member.take("t") == [(0, 9, 2)]
        await member.acknowledge("t", [(0, 9, [RELEASE])])
        assert await member.take("t") == []

    run(tmp_path, scenario)


def test_deleted_topic_leaves_no_state(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        await broker.ask(20, 1, {"topic_names": ["t"], "timeout": 5_000})
        (shard,) = broker.context.share.coordinator.shards
        await eventually_async(lambda: len(shard) == 0)
        assert not broker.context.share.partitions.all

    run(tmp_path, scenario)


def test_records_below_the_log_start_are_skipped(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, max_records=1) == [(0, 9, 1)]
        partitions = [{"partition_index": 0, "offset": 15}]
        await broker.ask(21, 2, {"topics": [{"name": "t", "partitions": partitions}], "timeout": 5_000})
        assert partition_of(await member.acknowledge("t", [(0, 9, [RELEASE])])).error_code == 0
        assert await member.take("t") == [(15, 29, 1)]

    run(tmp_path, scenario, batches=3)


def test_metrics_show_records_in_flight_and_lag(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        await member.acknowledge("t", [(0, 1, [ACCEPT]), (5, 6, [ACCEPT]), (8, 8, [RELEASE])])
        metrics = broker.context.metrics
        shown = {
            each.name: each.read() for each in metrics.readings if each.name.startswith("penstock_share_")
        }
        assert shown["penstock_share_records_in_flight"] == 5
        assert shown["penstock_share_records_waiting"] == 1
        assert shown["penstock_share_lag"] == 6
        assert shown["penstock_share_sessions"] == shown["penstock_share_partitions"] == 1
        assert 0 <= shown["penstock_share_oldest_lock_seconds"] < 30
        assert not [each for each in metrics.group_lags() if each.group == "g"]
        assert await member.take("t") == [(8, 8, 2)]
        redelivered = next(each for each in metrics.readings if each.name == "penstock_share_redelivered")
        assert redelivered.read() == 1

    run(tmp_path, scenario)
