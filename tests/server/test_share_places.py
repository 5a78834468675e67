"""Share groups in special places: partitions that moved, compacted topics, starts by time, many sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from support.harness import Harness, serve
from support.share_wire import (
    ACCEPT,
    GROUP_RESOURCE,
    INCREMENTAL_ALTER_CONFIGS,
    SET,
    SETTINGS,
    ShareMember,
    acquired,
    configure,
    first_take,
    partition_of,
    run,
)

HOUR_MS = 3_600_000
SESSIONS = 2_000


def test_share_fetch_of_a_moved_partition_returns_its_leader(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, max_records=1) == [(0, 9, 1)]
        context = broker.context
        [state] = context.image.topics["t"].partitions
        moved = BrokerError(ErrorCode.not_leader_or_follower, "another broker leads")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context.replicas, "get", _raising(moved))
            fetched = await member.fetch("t", acks=[(0, 0, [ACCEPT])])
            acknowledged = await member.acknowledge("t", [(1, 1, [ACCEPT])])
        partition = partition_of(fetched)
        assert partition.error_code == partition.acknowledge_error_code == ErrorCode.not_leader_or_follower
        for answer in (fetched, acknowledged):
            partition, [node] = partition_of(answer), answer.node_endpoints
            assert partition.error_code == ErrorCode.not_leader_or_follower
            assert partition.current_leader.leader_id == node.node_id == context.node_id
            assert partition.current_leader.leader_epoch == state.leader_epoch
            address = context.image.brokers[context.node_id]
            assert (node.host, node.port) == (address.host, address.port)
        assert partition_of(await member.acknowledge("t", [(0, 9, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario)


def _raising(error: BrokerError) -> Any:
    def get(topic: str, partition: int) -> None:
        raise error

    return get


def test_share_group_skips_compacted_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(
            "t", 1, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0"
        )
        await configure(broker, auto_offset_reset="earliest")
        member = ShareMember(broker)
        await member.join("t")
        for number in range(50):
            _put(broker, b"k%d" % (number % 2), b"%d" % number)
        _put(broker, b"last", b"x" * 1_000)
        assert await first_take(member, max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
        await broker._broker._maintenance._checkpoint_logs()
        await broker._broker._maintenance._cleaning.compact()
        assert acquired(await member.fetch("t", acks=[(0, 0, [ACCEPT])])) == [(48, 49, 1), (50, 50, 1)]
        assert partition_of(await member.acknowledge("t", [(48, 50, [ACCEPT])])).error_code == 0
        [leader] = broker.context.share.partitions.all
        assert leader.partition is not None
        assert leader.partition.start_offset == 51

    serve(tmp_path, scenario, SETTINGS)


def _put(broker: Harness, key: bytes, value: bytes) -> None:
    replica, now_ms = broker.context.replicas.get("t", 0), broker.context.clock.now_ms()
    batch = memoryview(build_batch([NewRecord(key, value, now_ms)]))
    replica.append_as_leader(batch, read_header(batch), now_ms)


def test_share_group_starts_at_a_configured_age(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="by_duration:PT1H")
        now_ms = broker.context.clock.now_ms()
        await broker.append("t", b"old", b"old", timestamp=now_ms - 2 * HOUR_MS)
        await broker.append("t", b"new", timestamp=now_ms - HOUR_MS // 2)
        member = ShareMember(broker)
        await member.join("t")
        assert await first_take(member) == [(2, 2, 1)]

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize(
    "config",
    [
        ("share.record.lock.duration.ms", "0"),
        ("share.record.lock.duration.ms", "-1"),
        ("share.delivery.count.limit", "1"),
        ("share.partition.max.record.locks", "0"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", "yesterday"),
    ],
)
def test_share_group_configs_out_of_bounds_are_refused(tmp_path: Path, config: tuple[str, str]) -> None:
    async def scenario(broker: Harness) -> None:
        change = {"name": config[0], "config_operation": SET, "value": config[1]}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": "g", "configs": [change]}
        fields = {"resources": [resource], "validate_only": False}
        [answer] = (await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, fields)).responses
        assert answer.error_code == ErrorCode.invalid_config
        assert config[0] in answer.error_message

    serve(tmp_path, scenario, SETTINGS)


def test_thousands_of_sessions_end_with_their_connections(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest")
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", *[b"value"] * 10)
        assert await first_take(member) == [(0, 9, 1)]
        sessions = broker.context.share.sessions
        others = [ShareMember(broker, f"other-{number}") for number in range(SESSIONS)]
        codes = [(await other.fetch("t")).error_code for other in others]
        assert codes == [ErrorCode.none] * (SESSIONS - 1) + [ErrorCode.share_session_limit_reached]
        for other in others:
            sessions.close_all_of(other.broker.session)
        assert len(sessions) == 1
        assert partition_of(await member.acknowledge("t", [(0, 9, [ACCEPT])])).error_code == 0

    serve(tmp_path, scenario, SETTINGS | {"group.share.max.share.sessions": str(SESSIONS)})


def test_small_fetches_find_all_batches_of_a_longer_read(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        taken = await first_take(member, max_records=1, max_bytes=350)
        while taken[-1][1] < 39:
            size = 350 if taken[-1][1] % 3 else 1
            found = await member.take("t", max_records=1, max_bytes=size)
            assert found, f"nothing behind {taken[-1]}"
            taken += found
        assert [first for first, _, _ in taken] == list(range(0, 40, 2))

    run(tmp_path, scenario, records=2, batches=20)
