"""Share consumers that take few records of a large batch: the response has these records, not the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.records.batch import crc_matches, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.content import Headers
from penstock.records.iteration import iterate, read_batches
from support.harness import Harness
from support.share_wire import ACCEPT, RELEASE, ShareMember, partition_of, run

RECORDS, SIZE = 200, 1_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("order", ["none", "key"])
def test_one_record_of_a_large_batch_is_delivered_alone(order: str, codec: Codec, tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await append_with_headers(broker, [()] * RECORDS, codec)
        acks: list[tuple[int, int, list[int]]] = []
        for offset in range(5):
            limits: dict[str, Any] = {"share_acquire_mode": 1, "max_records": 1, "max_wait": 5_000}
            answer = partition_of(await member.fetch("t", acks=acks, **limits))
            while not answer.acquired_records:
                answer = partition_of(await member.fetch("t", **limits))
            records = memoryview(bytes(answer.records))
            header = read_header(records)
            assert crc_matches(records, header)
            assert [each.offset for each in iterate(records, header)] == [offset]
            assert header.last_offset == RECORDS - 1
            assert len(records) < 2 * SIZE
            acks = [(offset, offset, [ACCEPT])]

    run(tmp_path, scenario, batches=0, order=order)


async def append_with_headers(broker: Harness, headers: Sequence[Headers], codec: Codec = Codec.NONE) -> None:
    """Append a batch with one record for each element."""
    now_ms = broker.context.clock.now_ms()
    records = [NewRecord(None, bytes(SIZE), now_ms, each) for each in headers]
    batch = memoryview(build_batch(records, codec=codec))
    replica = broker.context.replicas.get("t", 0)
    replica.append_as_leader(batch, read_header(batch), now_ms)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_response_has_every_record_that_was_acquired(seed: int, mode: int, tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        random = Random(seed)
        for codec in (Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.NONE):
            await append_with_headers(broker, [()] * random.randint(1, 60), codec)
        end = broker.context.replicas.get("t", 0).log.log_end_offset
        done: set[int] = set()
        acks: list[tuple[int, int, list[int]]] = []
        while len(done) < end:
            limits: dict[str, Any] = {"max_records": random.randint(1, 9), "max_wait": 5_000}
            answer = partition_of(await member.fetch("t", acks=acks, share_acquire_mode=mode, **limits))
            content = memoryview(bytes(answer.records or b""))
            sent = {each.offset for header, batch in read_batches(content) for each in iterate(batch, header)}
            acks = []
            for each in answer.acquired_records:
                offsets = set(range(each.first_offset, each.last_offset + 1))
                assert offsets <= sent
                kind = random.choice([ACCEPT, ACCEPT, RELEASE]) if each.delivery_count < 3 else ACCEPT
                acks.append((each.first_offset, each.last_offset, [kind]))
                done |= offsets if kind == ACCEPT else set()

    run(tmp_path, scenario, batches=0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batch_with_a_record_that_expired_is_delivered_without_it(codec: Codec, tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        headers = [(("penstock-ttl-ms", b"0"),) if number == 0 else () for number in range(RECORDS)]
        await append_with_headers(broker, headers, codec)
        answer = partition_of(await member.fetch("t", share_acquire_mode=1, max_records=2, max_wait=5_000))
        while not answer.acquired_records:
            answer = partition_of(
                await member.fetch("t", share_acquire_mode=1, max_records=2, max_wait=5_000)
            )
        records = memoryview(bytes(answer.records))
        assert [each.offset for each in iterate(records, read_header(records))] == [1]
        assert [(each.first_offset, each.last_offset) for each in answer.acquired_records] == [(1, 1)]

    run(tmp_path, scenario, batches=0)
