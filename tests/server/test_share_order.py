"""Priorities and order by key of share groups, with ShareFetch in both acquire modes and with QueueReceive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.queues import order_indexer
from penstock.queues.state_writer import StateWriter
from penstock.records.building import NewRecord
from penstock.records.compression import Codec
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.queue_wire import Given, QueueClient
from support.share_wire import (
    ACCEPT,
    REJECT,
    RELEASE,
    SETTINGS,
    ShareMember,
    configure,
    first_take,
    partition_of,
    run,
)

PRIORITY: dict[str, Any] = {"priority_enable": "true"}
BY_KEY: dict[str, Any] = {"order": "key"}


def leveled(*levels: int | bytes | None) -> list[NewRecord]:
    """Records with these priorities; None for a record without the header."""
    found = []
    for place, level in enumerate(levels):
        value = str(level).encode() if isinstance(level, int) else level
        headers = () if value is None else (("penstock-priority", value),)
        found.append(NewRecord(None, b"value", 1_000 + place, headers))
    return found


def keyed(*keys: str | None) -> list[NewRecord]:
    return [
        NewRecord(None if key is None else key.encode(), b"value", 1_000 + place)
        for place, key in enumerate(keys)
    ]


def offsets(taken: Sequence[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in taken for offset in range(first, last + 1)]


def given_offsets(given: list[Given]) -> list[int]:
    return [each.offset for each in given]


async def take_all(member: ShareMember, **fields: int) -> list[int]:
    """Take and accept until nothing is left; returns the offsets in the order of their delivery."""
    found: list[int] = []
    taken = await first_take(member, **fields)
    while taken:
        found += offsets(taken)
        await member.acknowledge("t", [(first, last, [ACCEPT]) for first, last, _ in taken])
        taken = await member.take("t", max_wait=100, **fields)
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("fields", [{}, {"share_acquire_mode": 1, "max_records": 1}])
def test_highest_level_is_delivered_first(tmp_path: Path, fields: dict[str, int], codec: Codec) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0, 5, None, 9, 5, 9), codec=codec)
        await broker.append_records("t", leveled(9), codec=codec)
        assert await take_all(member, **fields) == [3, 5, 6, 1, 4, 0, 2]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_response_has_records_of_one_level(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0, 9, 0, 9))
        assert await first_take(member) == [(1, 1, 1), (3, 3, 1)]
        assert await member.take("t") == [(0, 0, 1), (2, 2, 1)]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_queue_receive_returns_levels_in_order(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0, 9, 0, 4, 9))
        queue = QueueClient(broker)
        assert given_offsets(await queue.receive(4, wait_ms=2_000)) == [1, 4, 3, 0]
        assert given_offsets(await queue.receive(4)) == [2]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_malformed_priorities_are_level_0(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        malformed = leveled(b"10", b"high", b"-1", b"", b" 9", "９".encode(), b"9.0")
        await broker.append_records("t", [*malformed, *leveled(1)])
        assert await take_all(member, share_acquire_mode=1, max_records=1) == [7, 0, 1, 2, 3, 4, 5, 6]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_released_record_is_delivered_before_lower_levels(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0, 9, 0))
        assert await first_take(member) == [(1, 1, 1)]
        await member.acknowledge("t", [(1, 1, [RELEASE])])
        assert await member.take("t") == [(1, 1, 2)]
        assert await member.take("t") == [(0, 0, 1), (2, 2, 1)]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_waiting_fetch_gets_a_new_record_of_a_high_level(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0, 0))
        assert await first_take(member, share_acquire_mode=1, max_records=1) == [(0, 0, 1)]
        await broker.append_records("t", leveled(7))
        assert await member.take("t", share_acquire_mode=1, max_records=1) == [(2, 2, 1)]
        assert await member.take("t") == [(1, 1, 1)]
        waiting = asyncio.ensure_future(member.take("t", max_wait=20_000))
        await asyncio.sleep(0)
        await broker.append_records("t", leveled(3))
        assert await waiting == [(3, 3, 1)]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_metrics_count_deliveries_by_priority_and_blocked_keys(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        records = [replace(each, key=b"a") for each in leveled(9, 9, 4)]
        await broker.append_records("t", [*records, *leveled(0, 0)])
        assert offsets(await first_take(member)) == [0]
        read = {each.name: each.read() for each in broker.context.metrics.readings}
        assert read["penstock_share_delivered_priority_9"] == 1
        assert (read["penstock_share_blocked_keys"], read["penstock_share_blocked_records"]) == (1, 2)
        assert offsets(await member.take("t")) == [3, 4]
        await configure(broker, order="none")
        read = {each.name: each.read() for each in broker.context.metrics.readings}
        assert read["penstock_share_delivered_priority_0"] == 2
        assert read["penstock_share_delivered_priority_9"] == 1
        assert read["penstock_share_records_waiting"] == 0
        assert read["penstock_share_blocked_keys"] == 0

    run(tmp_path, scenario, batches=0, **PRIORITY, **BY_KEY)


def test_expired_records_of_several_levels_are_left_out(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        gone = (("penstock-ttl-ms", b"1"),)
        records = [replace(each, headers=each.headers + gone) for each in leveled(0, 9, 4)]
        await broker.append_records("t", [*records, *leveled(4, 0, 9)])
        queue = QueueClient(broker)
        assert given_offsets(await queue.receive(10, wait_ms=2_000)) == [5, 3, 4]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_share_of_deliveries_is_reserved_for_lower_levels(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(*[9] * 90, *[0, 5] * 10))
        found = await take_all(member, share_acquire_mode=1, max_records=1)
        assert sorted(found) == list(range(110))
        low = [place for place, offset in enumerate(found[:90]) if offset >= 90]
        assert len(low) == 9
        assert [found[place] for place in low] == list(range(90, 99))

    run(tmp_path, scenario, batches=0, priority_share="0.1", **PRIORITY)


def test_records_are_delivered_from_a_lagging_index_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_indexer, "_LOOP_PARTS", 0)
    monkeypatch.setattr(order_indexer, "_POOL_BYTES", 100)
    monkeypatch.setattr(order_indexer, "MAX_WAIT_MS", 0)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        for place in range(60):
            await broker.append_records("t", leveled(*([0] * 5 if place % 7 else [9, 0])))
        end = broker.context.replicas.get("t", 0).log.log_end_offset
        assert sorted(await take_all(member)) == list(range(end))

    run(tmp_path, scenario, batches=0, **PRIORITY)


# --- order by key


def test_next_record_of_a_key_follows_the_settled_one(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", keyed("a", "a", "b", None, None, "a", "b"))
        assert offsets(await first_take(member)) == [0, 2, 3, 4]
        other = ShareMember(broker, "m2")
        await other.join("t")
        assert await other.take("t") == []
        await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert offsets(await other.take("t", max_wait=2_000)) == [1]
        await member.acknowledge("t", [(2, 2, [REJECT])])
        assert offsets(await member.take("t", max_wait=2_000)) == [6]
        assert partition_of(await other.acknowledge("t", [(1, 1, [ACCEPT])])).error_code == 0
        assert offsets(await member.take("t", max_wait=2_000)) == [5]

    run(tmp_path, scenario, batches=0, **BY_KEY)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_released_record_holds_back_its_key(tmp_path: Path, codec: Codec) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", keyed("a", "a", "b"), codec=codec)
        assert offsets(await first_take(member)) == [0, 2]
        await member.acknowledge("t", [(0, 0, [RELEASE])])
        assert await member.take("t") == []
        assert await member.take("t", max_wait=5_000) == [(0, 0, 2)]
        await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert await member.take("t", max_wait=2_000) == [(1, 1, 1)]

    run(tmp_path, scenario, batches=0, retry_backoff_ms="300", **BY_KEY)


def test_expired_lock_does_not_free_the_key(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", keyed("a", "a"))
        assert await first_take(member) == [(0, 0, 1)]
        assert await member.take("t", max_wait=10_000) == [(0, 0, 2)]
        await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert await member.take("t", max_wait=2_000) == [(1, 1, 1)]

    run(tmp_path, scenario, batches=0, record_lock_duration_ms=200, **BY_KEY)


def test_key_stays_blocked_until_the_settlement_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[StateWriter] = []
    write = StateWriter._write

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", keyed("a", "a"))
        assert await first_take(member) == [(0, 0, 1)]
        monkeypatch.setattr(StateWriter, "_write", lambda writer: held.append(writer))
        accepting = asyncio.ensure_future(member.acknowledge("t", [(0, 0, [ACCEPT])]))
        other = ShareMember(broker, "m2")
        await other.join("t")
        await eventually_async(lambda: bool(held), "a write begins")
        assert await other.take("t", max_wait=300) == []
        monkeypatch.setattr(StateWriter, "_write", write)
        write(held[0])
        assert partition_of(await accepting).error_code == 0
        assert await other.take("t", max_wait=2_000) == [(1, 1, 1)]

    run(tmp_path, scenario, batches=0, **BY_KEY)


def test_late_settlement_frees_the_key_when_the_write_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", keyed("a", "a"))
        assert await first_take(member) == [(0, 0, 1)]
        states = broker.context.share.partitions.states
        store = states.store_here
        failures = [0]

        def fail(*args: object) -> bool:
            failures[0] += 1
            raise BrokerError(ErrorCode.not_enough_replicas, "planted")

        monkeypatch.setattr(states, "store_here", fail)
        answer = partition_of(await member.acknowledge("t", [(0, 0, [ACCEPT])]))
        assert answer.error_code == ErrorCode.request_timed_out
        assert await member.take("t") == []
        monkeypatch.setattr(states, "store_here", store)
        assert await member.take("t", max_wait=5_000) == [(1, 1, 1)]

    async def whole(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest", **BY_KEY)
        member = ShareMember(broker)
        await member.join("t")
        await scenario(broker, member)

    serve(tmp_path, whole, {**SETTINGS, "share.coordinator.write.timeout.ms": "300"})


def test_blocked_record_of_a_high_level_does_not_hold_up_lower_ones(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        first, *others = leveled(0, 9, 3, 0)
        records = [replace(first, key=b"a"), replace(others[0], key=b"a"), *others[1:]]
        await broker.append_records("t", records)
        assert offsets(await first_take(member)) == [2]
        assert offsets(await member.take("t")) == [0, 3]
        assert await member.take("t") == []
        await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert offsets(await member.take("t", max_wait=2_000)) == [1]

    run(tmp_path, scenario, batches=0, **PRIORITY, **BY_KEY)


def test_order_settings_may_change_while_records_are_in_flight(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        records = [replace(each, key=b"a") for each in leveled(0, 0, 0, 9, 0, 9)]
        await broker.append_records("t", records)
        exact = {"share_acquire_mode": 1, "max_records": 1}
        assert offsets(await first_take(member, **exact)) == [0]
        assert offsets(await member.take("t", **exact)) == [1]
        await configure(broker, order="key")
        assert await member.take("t", max_wait=100) == []
        await member.acknowledge("t", [(1, 1, [ACCEPT])])
        assert await member.take("t", max_wait=100) == []
        await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert offsets(await member.take("t", max_wait=2_000)) == [2]
        await configure(broker, order="none", priority_enable="true")
        assert offsets(await member.take("t", max_wait=2_000)) == [3, 5]
        await configure(broker, priority_enable="false")
        assert offsets(await member.take("t", max_wait=2_000)) == [4]

    run(tmp_path, scenario, batches=0)


def test_records_deleted_before_they_are_indexed_are_passed(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.append_records("t", leveled(0))
        assert await first_take(member) == [(0, 0, 1)]
        await broker.append_records("t", leveled(0, 0, 0))
        await broker.append_records("t", leveled(9))
        broker.context.replicas.get("t", 0).log.advance_log_start(Offset(4))
        (leader,) = broker.context.share.partitions.all
        assert leader.has_work()
        assert await member.take("t", max_wait=2_000) == [(4, 4, 1)]

    run(tmp_path, scenario, batches=0, **PRIORITY)


def test_delivery_order_survives_a_restart(tmp_path: Path) -> None:
    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest", **PRIORITY, **BY_KEY)
        member = ShareMember(broker)
        await member.join("t")
        high = [replace(each, key=b"a") for each in leveled(9, 9)]
        await broker.append_records("t", [*leveled(0), *high, *leveled(4)])
        assert offsets(await first_take(member)) == [1]
        await member.acknowledge("t", [(1, 1, [RELEASE])])
        assert offsets(await member.take("t", max_wait=2_000)) == [1]
        await member.acknowledge("t", [(1, 1, [ACCEPT])])

    async def after(broker: Harness) -> None:
        member = ShareMember(broker)
        await member.join("t")
        assert await take_all(member) == [2, 3, 0]

    ensemble = MemoryEnsemble()
    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)
