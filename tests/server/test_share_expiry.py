"""Expiry in share groups: expired records are not delivered, and become dead letters with the reason `expired`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_dead_letters import headers_of, letters, set_topic

from penstock.queues import live_records
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from support.eventually import eventually_async
from support.harness import Harness
from support.queue_wire import QueueClient
from support.share_wire import RELEASE, ShareMember, acquired, configure, first_take, run

CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])


async def append(broker: Harness, *lifetimes: int | None, codec: Codec = Codec.NONE) -> None:
    """Append one batch of records; those with a lifetime in milliseconds have a header with it."""
    now_ms = broker.context.clock.now_ms()
    records = [
        NewRecord(b"k", b"v", now_ms, () if ttl is None else (("penstock-ttl-ms", str(ttl).encode()),))
        for ttl in lifetimes
    ]
    batch = memoryview(build_batch(records, codec=codec))
    replica = broker.context.replicas.get("t", 0)
    info = replica.append_as_leader(batch, read_header(batch), now_ms)
    committed = asyncio.Event()
    if not replica.when_committed(info, lambda _: committed.set()):
        await committed.wait()


@CODECS
@pytest.mark.parametrize("inline_bytes", [0, 4_096])
@pytest.mark.parametrize("mode", [0, 1])
def test_share_consumer_gets_only_records_that_have_not_expired(
    tmp_path: Path, codec: Codec, inline_bytes: int, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_records, "_INLINE_BYTES", inline_bytes)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await append(broker, 0, None, 0, 0, 3_600_000, None, 0, codec=codec)
        assert await first_take(member, share_acquire_mode=mode) == [(1, 1, 1), (4, 5, 1)]

    run(tmp_path, scenario, batches=0)


@CODECS
def test_record_that_expires_before_its_next_delivery_is_archived(tmp_path: Path, codec: Codec) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await append(broker, 400, None, codec=codec)
        assert await first_take(member) == [(0, 1, 1)]
        expired_ms = broker.context.clock.now_ms() + 400
        await eventually_async(lambda: broker.context.clock.now_ms() > expired_ms)
        assert acquired(await member.fetch("t", acks=[(0, 1, [RELEASE])], max_wait=2_000)) == [(1, 1, 2)]

    run(tmp_path, scenario, batches=0)


@CODECS
def test_receiver_of_a_queue_gets_dead_letters_for_expired_records(tmp_path: Path, codec: Codec) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        await append(broker, 0, None, 0, codec=codec)
        given = await QueueClient(broker).receive(10, wait_ms=5_000)
        assert [each.offset for each in given] == [1]
        await eventually_async(lambda: len(letters(broker)) == 2)
        shown = [headers_of(each) for each in letters(broker)]
        assert {each["penstock-dead-reason"] for each in shown} == {"expired"}
        assert sorted(each["__dlq.errors.offset"] for each in shown) == ["0", "2"]
        assert {each["penstock-dead-attempts"] for each in shown} == {"0"}

    run(tmp_path, scenario, batches=0)


def test_batches_that_are_read_in_a_pool_keep_their_delivery_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_records, "_INLINE_BYTES", 0)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await configure(broker, delivery_count_limit=2)
        for _ in range(5):
            await append(broker, None, None, codec=Codec.GZIP)
        taken: list[Any] = []
        while sum(last - first + 1 for first, last, _ in taken) < 10:
            taken += await member.take("t", max_wait=2_000)
        assert {count for _, _, count in taken} == {1}

    run(tmp_path, scenario, batches=0)


def test_many_expired_records_do_not_hide_a_live_one(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        for _ in range(60):
            await append(broker, *[0] * 10)
        await append(broker, None)
        taken: list[Any] = []
        while not taken:
            taken = await member.take("t", max_wait=500, max_records=10, batch_size=10)
        assert taken == [(600, 600, 1)]

    run(tmp_path, scenario, batches=0)
