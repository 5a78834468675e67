"""A log that fails in a cluster: its broker leaves, others lead, and it comes back with their records."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from test_reassignment_on_brokers import ORDERS, state, values
from test_replicas_on_brokers import create, started

from support.eventually import eventually_async
from support.whole_brokers import Brokers, run


@pytest.mark.parametrize("leader", [1, 2])
def test_broker_with_a_failed_log_leaves_and_rejoins_with_all_records(tmp_path: Path, leader: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second, _ = await started(brokers, 3)
        await create(first, [leader, 3 - leader, 3])
        await eventually_async(
            lambda: all((ORDERS, 0) in each.context.replicas._replicas for each in (first, second))
        )
        leading = first if leader == 1 else second
        await eventually_async(lambda: leading.context.replicas._replicas[ORDERS, 0].partition.is_leader)
        await leading.append(ORDERS, b"before")
        first.context.replicas._replicas[ORDERS, 0].log.fail(OSError(errno.EIO, "the disk is broken"))
        await eventually_async(lambda: brokers.running[1].is_lost)
        await brokers.stop(1)
        await eventually_async(lambda: state(second).leader == 2)
        await eventually_async(lambda: second.context.replicas.get(ORDERS, 0))
        await second.append(ORDERS, b"after")
        first = await brokers.start(1)
        await eventually_async(lambda: set(state(second).isr) == {1, 2, 3})
        assert values(second) == [b"before", b"after"]
        assert first.context.replicas._replicas[ORDERS, 0].log.log_end_offset == 2

    run(tmp_path, scenario)


def test_single_broker_continues_with_its_other_logs_after_a_failure(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        (first,) = await started(brokers, 1)
        await create(first, [1])
        replica = first.context.replicas.get(ORDERS, 0)
        replica.log.fail(OSError(errno.EIO, "the disk is broken"))
        await brokers.running[1]._maintenance._watch_failed_logs()
        assert not brokers.running[1].is_lost

    run(tmp_path, scenario)
