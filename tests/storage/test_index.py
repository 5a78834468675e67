"""The sparse index: lookups in memory and in the file, damage, truncation."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.disk import RealDisk
from penstock.storage.file_cache import CachedFile, FileCache
from penstock.storage.index import (
    ENTRY_SIZE,
    FIRST_ENTRY,
    MAX_TIMESTAMP,
    POSITION,
    RELATIVE_OFFSET,
    IndexDamaged,
    IndexEntry,
    SegmentIndex,
    encode_entries,
)

BASE = 1000
ENTRIES = [IndexEntry(number * 3, number * 50, number // 4) for number in range(1, 301)]


def make_index(path: Path, stored: list[IndexEntry], in_memory: list[IndexEntry]) -> SegmentIndex:
    disk = RealDisk(str(path))
    disk.replace("index", encode_entries(BASE, stored))
    index = SegmentIndex(BASE, CachedFile(FileCache(disk), "index"), None)
    assert index.last(wait=True) == (stored[-1] if stored else FIRST_ENTRY)
    for entry in in_memory:
        index.add(*entry)
    return index


@pytest.mark.parametrize("stored", [0, 1, 31, 32, 33, 150, 299, 300])
@pytest.mark.parametrize("field", [RELATIVE_OFFSET, POSITION, MAX_TIMESTAMP])
def test_index_lookup_finds_the_last_entry_below_a_limit(tmp_path: Path, stored: int, field: int) -> None:
    index = make_index(tmp_path, ENTRIES[:stored], ENTRIES[stored:])
    keys = [entry[field] for entry in ENTRIES]
    for limit in [*range(keys[0] - 1, keys[-1] + 3, max(1, keys[-1] // 100)), 2**31]:
        place = bisect_left(keys, limit) - 1
        expected = ENTRIES[place] if place >= 0 else FIRST_ENTRY
        assert index.find(field, limit, wait=False) == expected


def test_lookup_in_an_empty_index_returns_the_segment_start(tmp_path: Path) -> None:
    index = make_index(tmp_path, [], [])
    assert index.find(RELATIVE_OFFSET, 5, wait=False) == FIRST_ENTRY
    assert index.last(wait=False) == FIRST_ENTRY


def test_saved_index_entries_leave_memory_and_are_read_from_the_file(tmp_path: Path) -> None:
    index = make_index(tmp_path, ENTRIES[:10], ENTRIES[10:30])
    assert index.unsaved() == ENTRIES[10:30]
    disk = RealDisk(str(tmp_path))
    disk.replace("index", encode_entries(BASE, ENTRIES[:25]))
    index.file.discard()
    index.saved(15, 25)
    assert index.unsaved() == ENTRIES[25:30]
    for entry in ENTRIES[:30]:
        assert index.find(RELATIVE_OFFSET, entry.relative_offset + 1, wait=False) == entry


@given(stored=st.integers(0, 60), in_memory=st.integers(0, 60), position=st.integers(0, 130 * 50))
def test_index_truncation_keeps_exactly_the_entries_up_to_a_position(
    tmp_path_factory: pytest.TempPathFactory, stored: int, in_memory: int, position: int
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = make_index(path, ENTRIES[:stored], ENTRIES[stored : stored + in_memory])
    index.truncate(position)
    kept = [entry for entry in ENTRIES[: stored + in_memory] if entry.position <= position]
    assert index.last(wait=True) == (kept[-1] if kept else FIRST_ENTRY)
    for limit in (1, 7, 90, 91, 200, 10_000):
        below = [entry for entry in kept if entry.relative_offset < limit]
        assert index.find(RELATIVE_OFFSET, limit, wait=True) == (below[-1] if below else FIRST_ENTRY)


def test_every_flipped_bit_is_detected_on_lookup(tmp_path: Path) -> None:
    content = encode_entries(BASE, ENTRIES[:2])
    disk = RealDisk(str(tmp_path))
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        disk.open("index", create=True).pwrite(0, (bytes(damaged),))
        index = SegmentIndex(BASE, CachedFile(FileCache(disk), "index"), 2)
        with pytest.raises(IndexDamaged):
            index.find(RELATIVE_OFFSET, 5, wait=True)


def test_index_file_of_another_segment_is_detected(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.replace("index", encode_entries(BASE + 1, ENTRIES))
    index = SegmentIndex(BASE, CachedFile(FileCache(disk), "index"), None)
    with pytest.raises(IndexDamaged):
        index.find(RELATIVE_OFFSET, 5, wait=True)


@pytest.mark.parametrize("length", [0, 1, ENTRY_SIZE, ENTRY_SIZE * 299, ENTRY_SIZE * 300 - 1])
def test_index_file_with_missing_entries_is_detected(tmp_path: Path, length: int) -> None:
    disk = RealDisk(str(tmp_path))
    disk.replace("index", encode_entries(BASE, ENTRIES)[:length])
    index = SegmentIndex(BASE, CachedFile(FileCache(disk), "index"), 300)
    with pytest.raises(IndexDamaged):
        index.last(wait=True)


def test_missing_index_file_and_truncated_entry_are_detected(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    index = SegmentIndex(BASE, CachedFile(FileCache(disk), "index"), None)
    with pytest.raises(IndexDamaged):
        index.last(wait=True)
    disk.replace("index", encode_entries(BASE, ENTRIES) + b"x")
    with pytest.raises(IndexDamaged):
        index.last(wait=True)


def test_repaired_index_entries_replace_those_of_the_file(tmp_path: Path) -> None:
    index = make_index(tmp_path, ENTRIES[:3], ENTRIES[100:])
    index.repair(encode_entries(BASE, ENTRIES[:100]))
    for entry in ENTRIES:
        assert index.find(RELATIVE_OFFSET, entry.relative_offset + 1, wait=False) == entry
