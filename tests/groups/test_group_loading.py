"""Loading a shard from its log: applied records, unknown records, and damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from shard_bench import ORDERS, Bench

from penstock.groups.group import LeavingMember
from penstock.groups.loading import Loading
from penstock.groups.offsets import CommittedOffset
from penstock.groups.record_codec import encode_record
from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    GroupRecord,
    Key,
    OffsetKey,
)
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch

Scenario = Callable[[Bench], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(scenario: Scenario) -> None:
        async def body() -> None:
            await scenario(Bench(tmp_path))

        asyncio.run(body())

    return run


def write(bench: Bench, *records: tuple[bytes | None, bytes | None]) -> None:
    now_ms = bench.clock.now_ms()
    batch = memoryview(build_batch([NewRecord(key, value, now_ms) for key, value in records]))
    bench.replica.append_as_leader(batch, read_header(batch), now_ms)


def offset_record(offset: int, group: str = "g", partition: int = 0) -> tuple[bytes, bytes | None]:
    value = CommittedOffset(offset, -1, "", ORDERS, 1)
    return encode_record(GroupRecord(OffsetKey(group, "orders", partition), value))


async def load(bench: Bench) -> Loading:
    await bench.threads.flush()
    loading = Loading(bench.replica, bench.threads, bench)
    state = await loading.run()
    bench.shard = bench._make_shard(state)
    return loading


def offsets_of(bench: Bench, group: str = "g") -> dict[int, int]:
    found = bench.shard.offsets.fetch(group, None, bench.image)
    return {partition.partition: value.offset for partition, value in found.items()}


def test_newest_record_of_a_key_is_loaded(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        write(bench, offset_record(1), offset_record(2, partition=1))
        write(bench, offset_record(3))
        await load(bench)
        assert offsets_of(bench) == {0: 3, 1: 2}

    run(scenario)


def test_offset_written_again_after_its_tombstone_is_loaded(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        key, value = offset_record(1)
        write(bench, (key, value), (key, None), offset_record(2))
        write(bench, offset_record(1, partition=1), (offset_record(1, partition=1)[0], None))
        await load(bench)
        assert offsets_of(bench) == {0: 2}

    run(scenario)


def test_unknown_records_are_passed_over_and_counted(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        write(
            bench, (b"\x00\x63what", b"x"), offset_record(1), (offset_record(9)[0] + b"x", b""), (None, b"v")
        )
        loading = await load(bench)
        assert loading.unknown == 3
        assert offsets_of(bench) == {0: 1}

    run(scenario)


@pytest.mark.parametrize("length", [1, 3], ids=["header", "header and length"])
def test_damage_loses_only_records_near_it(run: Run, length: int) -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(400):
            write(bench, offset_record(number, group=f"g{number}"))
        await bench.threads.flush()
        segment = bench.replica.log.segments[0]
        position, header = segment.locate(100, segment.size, wait=True)
        assert header is not None
        segment.file.pwrite(position + 8, (b"\xff" * 4 * length,))
        loading = await load(bench)
        assert loading.damaged_parts
        kept = {number for number in range(400) if offsets_of(bench, f"g{number}")}
        assert set(range(100)) | set(range(200, 400)) <= kept
        assert 100 not in kept

    run(scenario)


def test_group_with_offsets_but_no_group_record_is_loaded(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        write(bench, offset_record(1))
        await load(bench)
        assert bench.shard.groups["g"].is_empty

    run(scenario)


def test_tombstones_of_an_unknown_group_create_no_group(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        gone: list[Key] = [ConsumerMemberKey("g", "m"), ConsumerGroupKey("g"), ClassicGroupKey("g")]
        write(bench, *(encode_record(GroupRecord(key, None)) for key in gone))
        await load(bench)
        assert not bench.shard.groups

    run(scenario)


def test_group_has_the_protocol_of_its_last_group_record(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        classic = GroupRecord(ClassicGroupKey("g"), ClassicGroupValue("consumer", 1, None, None, 1, ()))
        consumer = GroupRecord(ConsumerGroupKey("g"), ConsumerGroupValue(1, 0))
        write(bench, encode_record(consumer), encode_record(classic))
        await load(bench)
        assert bench.shard.groups["g"].kind == "classic"
        write(bench, encode_record(consumer))
        await load(bench)
        assert bench.shard.groups["g"].kind == "consumer"

    run(scenario)


def test_members_and_assignments_are_loaded(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        generation = await bench.join_group()
        before = bench.shard.describe("g")
        await load(bench)
        assert bench.shard.describe("g") == before
        assert bench.shard.heartbeat("g", "m1", None, generation) == 0
        await bench.flushed(bench.shard.leave("g", [LeavingMember("m1", None)]))
        await load(bench)
        assert bench.shard.groups["g"].is_empty

    run(scenario)
