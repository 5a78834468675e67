from __future__ import annotations

import random

import pytest

from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import assign, crc_matches
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import read_batches
from simulation.faults.file_damage import ClosedSegment, change_byte, lose, spoil
from simulation.machine.disk import SimulatedDisk

TRIES = 50


def segment(disk: SimulatedDisk, name: str) -> ClosedSegment:
    content = bytearray()
    for offset in range(3):
        batch = bytearray(build_batch([NewRecord(b"key", f"{name} {offset}".encode(), 1_700_000_000_000)]))
        assign(memoryview(batch), Offset(offset), LeaderEpoch(0))
        content += batch
    disk.replace(name, bytes(content))
    return ClosedSegment(("orders", 0), name, bytes(content))


@pytest.fixture
def one(disk: SimulatedDisk) -> ClosedSegment:
    return segment(disk, "one.log")


def test_lost_file_is_deleted_emptied_truncated_or_swapped(disk: SimulatedDisk, one: ClosedSegment) -> None:
    other = segment(disk, "other.log")
    found: set[bytes | None] = set()
    for seed in range(TRIES):
        copy = disk.copy()
        damaged = lose(random.Random(seed), copy, one, [other])
        found.add(copy.content(one.path) if copy.has(one.path) else None)
        assert (other in damaged) == (copy.content(other.path) == one.content)
    ends = one.batch_ends()
    assert found == {None, b"", *(one.content[:end] for end in ends), other.content}
    assert len(ends) == 2


def test_changed_byte_makes_the_crc_of_one_batch_wrong(disk: SimulatedDisk, one: ClosedSegment) -> None:
    for seed in range(TRIES):
        copy = disk.copy()
        change_byte(random.Random(seed), copy, one)
        batches = list(read_batches(memoryview(copy.content(one.path))))
        assert sum(not crc_matches(batch, header) for header, batch in batches) == 1


def test_derived_file_is_never_as_it_was(disk: SimulatedDisk) -> None:
    disk.replace("some.index", b"content")
    for seed in range(TRIES):
        copy = disk.copy()
        spoil(random.Random(seed), copy, "some.index")
        assert not copy.has("some.index") or copy.content("some.index") != b"content"
