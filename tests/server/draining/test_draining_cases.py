"""A smaller partition count on whole brokers: delayed messages, restarts, plans, many topics and conflicts."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from test_draining_on_brokers import (
    ACTIVE,
    DRAINING,
    ORDERS,
    QUICK,
    SEALED,
    ask,
    commit,
    metadata,
    phases,
    set_count,
    topic,
)

from penstock.cluster.image import PartitionPhase
from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord
from penstock.server.draining import draining
from penstock.server.handlers import consumer_group_heartbeat, join_group, share_group_heartbeat
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

DELAYED = {"delivery_delay": "true"}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(draining, "OBSERVED_SECONDS", 0.2)


async def delay(harness: Harness, delay_ms: int) -> None:
    headers = (("penstock-delay-ms", b"%d" % delay_ms),)
    await harness.append_records(ORDERS, [NewRecord(b"k", b"later", 1_000, headers)], 1)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["set", "seal-now"])
def test_delayed_messages_are_delivered_before_a_partition_is_sealed(tmp_path: Path, change: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, retention_ms="-1", **QUICK, **DELAYED)
        await delay(harness, 1_500)
        due = time.monotonic() + 1.4
        await set_count(harness, 1, change=change)
        replica = harness.context.replicas.get(ORDERS, 1)
        await eventually_async(lambda: phases(harness)[1] is SEALED)
        assert time.monotonic() >= due
        assert replica.log.log_end_offset == 2
        assert replica.delayed is not None
        assert replica.delayed.pending.is_empty

    run(tmp_path, scenario)


def test_a_pending_message_keeps_its_partition(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, retention_ms="-1", **QUICK, **DELAYED)
        await delay(harness, 3_600_000)
        await set_count(harness, 1, change="seal-now")
        verdicts = harness.context.draining.advancer.verdicts  # type: ignore[union-attr]
        await eventually_async(
            lambda: any("delayed messages are pending" in each.reasons for each in verdicts.values())
        )
        assert phases(harness)[1] is PartitionPhase.SEALING
        await brokers.stop(1)
        harness = await brokers.start(1)
        await asyncio.sleep(0.5)
        assert phases(harness)[1] is PartitionPhase.SEALING
        await set_count(harness, 2)
        assert phases(harness) == [ACTIVE, ACTIVE]

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_restarted_leader_continues_the_quiet_time(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 2, retention_ms="-1", partition_drain_quiet_ms="2500")
        await harness.append(ORDERS, b"0", partition=1)
        await set_count(harness, 1)
        await asyncio.sleep(1.5)
        await brokers.stop(1)
        harness = await brokers.start(1)
        started = time.monotonic()
        assert phases(harness)[1] is DRAINING
        await eventually_async(lambda: phases(harness)[1] is SEALED)
        assert time.monotonic() - started < 2.4

    run(tmp_path, scenario)


def test_many_partitions_are_sealed_and_removed_in_few_writes(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        names = [f"topic-{number}" for number in range(5)]
        for name in names:
            await harness.create(name, 16, **QUICK)
        state = harness.context.draining
        assert state is not None
        writes = []
        make = state.counts._changes.make

        async def counted(*arguments: object) -> object:
            writes.append(arguments)
            return await make(*arguments)  # type: ignore[arg-type]

        state.counts._changes.make = counted  # type: ignore[method-assign, assignment]
        for name in names:
            await ask(harness, "set_partition_count", topic=name, count=4)
        await eventually_async(
            lambda: all(len(harness.context.image.topics[name].partitions) == 4 for name in names)
        )
        assert len(writes) < 40, "60 partitions have three phases each"
        await eventually_async(lambda: state.advancer.removed == 60)

    run(tmp_path, scenario)


def test_a_plan_names_writers_and_groups_of_partitions_that_would_go(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4)
        await harness.append(ORDERS, b"0", b"1", partition=3)
        await commit(harness, "billing", {3: 1, 0: 0})
        asked = asyncio.ensure_future(ask(harness, "drain_progress", topic=ORDERS, count=2))
        await asyncio.sleep(0.05)
        replica = harness.context.replicas.get(ORDERS, 3)
        assert replica.notes_writers
        harness.context.on_draining_write(harness.session, replica.name)
        plan = await asked
        assert not replica.notes_writers
        assert sorted(plan["led"]) == [2, 3]
        assert [each[:1] for each in plan["led"][3]["writers"]] == [[str(harness.session.principal)]]
        assert plan["groups"] == {3: [["billing", 1]]}
        assert phases(harness) == [ACTIVE] * 4

    run(tmp_path, scenario)


def test_two_administrators_at_once_leave_one_of_their_counts(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_async(lambda: len(first.context.image.brokers) == 2)
        await first.create(ORDERS, 8, partition_drain_quiet_ms="600000")
        await eventually_async(lambda: ORDERS in second.context.image.topics)
        results = await asyncio.gather(set_count(first, 3), set_count(second, 5), return_exceptions=True)
        await eventually_async(lambda: topic(first) == topic(second))
        assert topic(first).active_count in (3, 5)
        assert phases(first) == [ACTIVE] * topic(first).active_count + [DRAINING] * (
            8 - topic(first).active_count
        )
        assert any(not isinstance(each, BaseException) for each in results)

    run(tmp_path, scenario)


def test_a_deleted_or_growing_topic_is_not_left_half_done(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4, partition_drain_quiet_ms="600000")
        grown = {"topics": [{"name": ORDERS, "count": 6, "assignments": None}], "timeout": 5_000}
        growth = harness.ask(37, 3, {**grown, "validate_only": False})
        results = await asyncio.gather(set_count(harness, 2), growth, return_exceptions=True)
        shown = phases(harness)
        active = topic(harness).active_count
        assert (len(shown), active) in ((4, 2), (6, 2), (6, 6)), results
        assert shown[active:] == [DRAINING] * (len(shown) - active)
        deleted = {"topics": [{"name": ORDERS, "topic_id": None}], "timeout": 5_000}
        await asyncio.gather(harness.ask(20, 6, deleted), set_count(harness, 1), return_exceptions=True)
        assert ORDERS not in harness.context.image.topics
        with pytest.raises(BrokerError) as caught:
            await set_count(harness, 1)
        assert caught.value.code is ErrorCode.unknown_topic_or_partition

    run(tmp_path, scenario)


def test_metrics_count_partitions_writers_and_groups(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 3, partition_drain_quiet_ms="600000")
        await harness.append(ORDERS, b"0", partition=2)
        await commit(harness, "billing", {2: 0})
        await set_count(harness, 1)
        harness.context.on_draining_write(harness.session, harness.context.replicas.get(ORDERS, 2).name)

        def value(name: str) -> float:
            return next(each.read() for each in harness.context.metrics.readings if each.name == name)

        await eventually_async(lambda: value("penstock_draining_groups_behind") == 1)
        assert value("penstock_draining_partitions") == 2
        assert value("penstock_draining_writers") == 1
        await set_count(harness, 1, change="seal-now")
        await eventually_async(
            lambda: value("penstock_sealed_partitions") + value("penstock_removed_partitions") == 2
        )

    run(tmp_path, scenario)


@pytest.mark.parametrize("handler", [join_group, consumer_group_heartbeat, share_group_heartbeat])
def test_a_member_of_a_group_is_shown_partitions_that_go(tmp_path: Path, handler: ModuleType) -> None:
    """The leader of a classic group asks for Metadata on the connection to its coordinator, which sees no other
    request of a consumer.
    """

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create(ORDERS, 4, partition_drain_quiet_ms="600000")
        await set_count(harness, 2)
        state = harness.context.draining
        assert state is not None
        await eventually_async(lambda: state.clients.others is not None)
        harness.session.is_consumer = False
        assert await metadata(harness, "new") == 2
        request = SimpleNamespace(session=harness.session)
        with suppress(AttributeError):  # the request has no other fields
            await handler.handle(request, SimpleNamespace())
        assert await metadata(harness, "new") == 4

    run(tmp_path, scenario)
