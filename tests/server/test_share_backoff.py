"""Back-off of share groups: released records return at their time, not earlier, also after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.cluster.memory import MemoryEnsemble
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


async def first_again(member: ShareMember) -> tuple[float, list[tuple[int, int, int]]]:
    """Return the seconds until records arrive, and the records."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(50):
        taken = await member.take("t", max_wait=1_000)
        if taken:
            return loop.time() - began, taken
    raise AssertionError("no record was delivered again")


def test_released_record_returns_after_the_back_off_and_others_continue(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, retry_backoff_ms="300,10m")
        assert await first_take(member) == [(0, 9, 1)]
        assert partition_of(await member.acknowledge("t", [(2, 3, [RELEASE])])).error_code == 0
        await broker.append("t", b"later")
        assert await member.take("t") == [(10, 10, 1)]
        seconds, taken = await first_again(member)
        assert taken == [(2, 3, 2)]
        assert seconds > 0.2
        await member.acknowledge("t", [(2, 3, [RELEASE])])
        assert await member.take("t") == []

    run(tmp_path, scenario)


def test_expired_lock_waits_for_the_back_off(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, retry_backoff_ms="300ms", record_lock_duration_ms=200)
        assert await first_take(member) == [(0, 9, 1)]
        seconds, taken = await first_again(member)
        assert taken == [(0, 9, 2)]
        assert seconds > 0.4

    run(tmp_path, scenario)


def test_delayed_release_survives_a_restart(tmp_path: Path) -> None:
    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest", retry_backoff_ms="10m")
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", *[b"value"] * 10)
        assert await first_take(member) == [(0, 9, 1)]
        await member.acknowledge("t", [(0, 3, [RELEASE]), (4, 5, [ACCEPT])])

    async def after(broker: Harness) -> None:
        member = ShareMember(broker, "m2")
        await member.join("t")
        assert await first_take(member) == [(6, 9, 1)]
        assert await member.take("t") == []
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        assert leader.partition.waiting == 4
        deadline_ms = leader.partition.next_deadline_ms
        assert deadline_ms is not None

    ensemble = MemoryEnsemble()
    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)
