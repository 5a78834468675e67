"""The key index of a log: entries in memory, files, and files that are not valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from key_helpers import KeyReader, records_of, scan
from log_helpers import EPOCH, NOW_MS, header_of, make_context, make_log

from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE
from penstock.records.building import NewRecord, build_batch, rebuild_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record
from penstock.storage.damage import DamagedRange
from penstock.storage.derived import index as key_index
from penstock.storage.derived.file import PAGE_BYTES, EntryFile
from penstock.storage.derived.index import DerivedIndex, EntriesMissing, EntryFileJob
from penstock.storage.disk import RealFile
from penstock.storage.keys import entries as key_entries
from penstock.storage.keys import lookup as key_lookup
from penstock.storage.keys.entries import KEYS
from penstock.storage.keys.lookup import KeyQuery, look_up
from penstock.storage.log import Log
from penstock.storage.log_config import KEYED_SEGMENT_RECORDS, LogConfig
from penstock.storage.log_truncation import truncate_log
from penstock.storage.log_view import LogView
from penstock.storage.segment import KEYS_SUFFIX

HOT, COLD = b"hot", b"cold"


def indexed_log(path: Path, **settings: Any) -> Log:
    return make_log(make_context(path), LogConfig(index_by_key=True, **settings))


def put(log: Log, *keys: bytes) -> None:
    batch = memoryview(build_batch([NewRecord(key, b"value of %s" % key, NOW_MS) for key in keys]))
    log.append(batch, header_of(batch), EPOCH, NOW_MS)
    log.high_watermark = log.log_end_offset


def fill(log: Log, batches: int) -> None:
    """Many records of one key, a few of another, some of many."""
    for number in range(batches):
        put(log, HOT, b"user-%d" % number, HOT, *([COLD] if number % 50 == 0 else []))


def files(log: Log) -> list[str]:
    return [name for name in log.files.disk.list(log.directory) if name.endswith(KEYS_SUFFIX)]


def test_closed_segment_gets_a_key_file_and_frees_its_memory(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=20_000)
    fill(log, 600)
    keys = KeyReader(log)
    assert keys.file_all() == len(log.segments) - 1 == len(files(log)) > 1
    sources = [keys.index.source(segment) for segment in log.segments]
    assert [type(source) for source in sources[:-1]] == [EntryFile] * (len(sources) - 1)
    for key in (HOT, COLD, b"user-7", b"user-599", b"nobody"):
        assert keys.records(key) == scan(log, key)


def test_a_segment_of_an_indexed_topic_has_a_bounded_number_of_records(tmp_path: Path) -> None:
    log = indexed_log(tmp_path)
    batch = build_batch([NewRecord(None, None, NOW_MS)] * 1_000)
    for _ in range(KEYED_SEGMENT_RECORDS // 1_000 + 1):
        copy = memoryview(bytearray(batch))
        log.append(copy, header_of(copy), EPOCH, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, KEYED_SEGMENT_RECORDS // 1_000 * 1_000]


def test_page_of_a_hot_key_reads_only_the_records_it_returns(tmp_path: Path) -> None:
    log = indexed_log(tmp_path)
    fill(log, 4_000)
    log.config = LogConfig(index_by_key=True, segment_bytes=1_024)
    put(log, COLD)  # closes the segment
    keys = KeyReader(log)
    assert keys.file_all() == 1
    view = keys.view()
    reads = 0
    pread = RealFile.pread

    def counted(self: RealFile, position: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return pread(self, position, length)

    with patch.object(RealFile, "pread", counted):
        page = look_up(keys.index, view, KeyQuery(HOT, Offset(5_000), 20, 1 << 20))
    assert [record.offset for record in records_of(page)] == [
        record.offset for record in scan(log, HOT, 5_000)[:20]
    ]
    assert reads < 40, "a filter, a binary search, and ten batches"


def test_key_file_is_used_again_after_a_restart(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=20_000)
    fill(log, 300)
    KeyReader(log).file_all()
    again = KeyReader(log)
    view = again.view()
    assert again.index.unfiled(log.segments) is None
    assert look_up(again.index, view, KeyQuery(b"user-3", Offset(0), 10, 1 << 20)).batches


@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_damaged_key_file_is_detected_on_read_and_rebuilt(tmp_path: Path, place: int) -> None:
    log = indexed_log(tmp_path, segment_bytes=40_000)
    fill(log, 400)
    keys = KeyReader(log)
    keys.file_all()
    name = files(log)[0]
    file = log.files.disk.open(f"{log.directory}/{name}")
    pages = file.size() // PAGE_BYTES
    file.pwrite(place % pages * PAGE_BYTES + 77, (b"damage",))
    fresh = KeyReader(log)
    everything = {b"user-%d" % number: number for number in range(400)}
    found = {key: [record.value for record in fresh.records(key)] for key in everything}
    assert found == {key: [b"value of %s" % key] for key in everything}


@pytest.mark.parametrize(
    "users", [(b"bob", b"carl"), (b"ann", b"ann", b"ann")], ids=["same size", "another size"]
)
def test_key_file_of_another_segment_content_is_ignored(tmp_path: Path, users: tuple[bytes, ...]) -> None:
    """A power loss may bring back a file whose removal was not durable."""
    log = indexed_log(tmp_path)
    disk = log.files.disk
    for history in ((b"ann", b"eric"), users):
        truncate_log(log, Offset(0), NOW_MS, lambda: None)
        for user in history:
            put(log, user)
        log.config = LogConfig(index_by_key=True, segment_bytes=1_024)
        put(log, b"x" * 2_000)  # closes the segment
        log.config = LogConfig(index_by_key=True)
        if history is not users:
            KeyReader(log).file_all()
            [kept] = [disk.read(f"{log.directory}/{name}") for name in files(log)]
    segment = log.segments[0]
    disk.replace(segment.derived_path(KEYS_SUFFIX), kept)
    segment.derived |= {KEYS_SUFFIX}
    keys = KeyReader(log)
    for user in (b"ann", b"bob", b"carl", b"eric"):
        assert keys.records(user) == scan(log, user)


def test_missing_key_file_does_not_mean_missing_key(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=20_000)
    fill(log, 300)
    index = DerivedIndex(log.files, KEYS)
    view = LogView.of(log)
    index.catch_up(view, ())
    with pytest.raises(EntriesMissing):
        look_up(index, view, KeyQuery(b"user-1", Offset(0), 10, 1 << 20))


def test_a_large_old_segment_is_indexed_in_parts(tmp_path: Path) -> None:
    log = make_log(make_context(tmp_path), LogConfig(segment_bytes=100_000))
    fill(log, 1_500)
    log.config = LogConfig(segment_bytes=100_000, index_by_key=True)
    keys = KeyReader(log)
    with patch.object(key_index, "PART_ENTRIES", 700):
        assert keys.file_all() == len(log.segments) - 1
    for key in (HOT, COLD, b"user-7", b"user-800", b"nobody"):
        assert keys.records(key, max_records=300) == scan(log, key)
        assert keys.records(key, 2_500) == scan(log, key, 2_500)


def test_keys_with_the_same_hash_have_separate_lookups(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=5_000)

    class Same:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def digest(self) -> bytes:
            return b"samehash"

    with patch.object(key_entries, "blake2b", Same):
        fill(log, 100)
        keys = KeyReader(log)
        keys.file_all()
        for key in (HOT, COLD, b"user-99", b"nobody"):
            assert keys.records(key, max_records=7) == scan(log, key)


def test_entries_without_a_file_are_bounded_in_memory(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=2_000)
    keys = KeyReader(log)
    put(log, HOT)
    keys.view()
    fill(log, 600)
    keys.view()
    in_memory = [segment for segment in log.segments if segment in keys.index._sources]
    assert len(log.segments) > 10
    assert len(in_memory) == 5, "four that are closed, and the one that is written"
    assert keys.index.has_skipped, "whoever waits has to look again"
    assert keys.records(HOT) == scan(log, HOT)


def test_awaited_keys_are_reported_with_their_first_new_offset(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=5_000)
    index = DerivedIndex(log.files, KEYS)
    fill(log, 10)
    index.catch_up(LogView.of(log), ())
    end = log.log_end_offset
    fill(log, 100)
    put(log, b"late")
    awaited = {key_entries.key_hash(key) for key in (HOT, b"late", b"never")}
    found = index.catch_up(LogView.of(log), awaited)
    assert found == {
        key_entries.key_hash(HOT): end,
        key_entries.key_hash(b"late"): log.log_end_offset - 1,
    }


@pytest.mark.parametrize(
    ("codec", "is_indexed_first"), [(Codec.NONE, True), (Codec.NONE, False), (Codec.LZ4, True)]
)
def test_damaged_batch_ends_a_page_and_can_be_skipped(
    tmp_path: Path, codec: Codec, is_indexed_first: bool
) -> None:
    log = indexed_log(tmp_path)
    keys = KeyReader(log)
    put(log, COLD)
    position = log.segments[-1].size
    batch = memoryview(build_batch([NewRecord(COLD, b"x" * 100, NOW_MS)] * 2, codec=codec))
    log.append(batch, header_of(batch), EPOCH, NOW_MS)
    put(log, COLD)
    if is_indexed_first:
        keys.view()
    file = log.segments[-1].file
    [byte] = file.pread(position + HEADER_SIZE + 20, 1)
    file.pwrite(position + HEADER_SIZE + 20, (bytes([byte ^ 1]),))
    first = keys.page(COLD)
    assert [record.offset for record in records_of(first)] == [0]
    position, found, damaged = first.next_offset, [0], []
    while not (page := keys.page(COLD, position)).is_complete:
        damaged += [page.next_offset - 1] if page.damage is not None else []
        found += [record.offset for record in records_of(page)]
        position = page.next_offset
    found += [record.offset for record in records_of(page)]
    assert found[-1] == 3
    assert set(found).isdisjoint(damaged)
    assert 1 in damaged, "a record of it was hit, and its reader is told"


def test_lookup_stops_at_a_damaged_range_that_may_hold_the_key(tmp_path: Path) -> None:
    log = indexed_log(tmp_path)
    keys = KeyReader(log)
    for _ in range(5):
        put(log, COLD)
    log.add_damage(DamagedRange(Offset(2), Offset(3), "test"))
    first = keys.page(COLD)
    assert [record.offset for record in records_of(first)] == [0, 1]
    assert not first.is_complete
    second = keys.page(COLD, first.next_offset)
    assert (records_of(second), second.next_offset) == ([], 3)
    assert second.damage is not None
    assert [record.offset for record in records_of(keys.page(COLD, 3))] == [3, 4]
    assert keys.page(b"another").damage is not None


def test_a_lookup_reads_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    log = indexed_log(tmp_path)
    for _ in range(10):
        put(log, COLD, *[HOT] * 50)
    keys = KeyReader(log)
    with patch.object(key_lookup, "MAX_READ_BYTES", 3_000):
        page = keys.page(COLD)
        assert 1 <= len(records_of(page)) < 10
        assert keys.records(COLD) == scan(log, COLD)


def test_batch_with_unreadable_records_has_no_keys() -> None:
    batch = build_batch([NewRecord(b"key", b"value", NOW_MS)])
    batch[61] = 0xFF  # the length of its record
    header = header_of(memoryview(build_batch([NewRecord(b"key", b"value", NOW_MS)])))
    assert key_entries.entries_of(memoryview(batch), header, 0, 0, 1 << 20) == []


def test_abandoned_key_file_is_removed(tmp_path: Path) -> None:
    log = indexed_log(tmp_path, segment_bytes=2_000)
    fill(log, 100)
    disk = log.files.disk
    job = EntryFileJob(disk, log.files, KEYS, log.segments[0], None, 1 << 20, lambda: False)
    assert not job.write()
    job.discard()
    assert not [name for name in disk.list(log.directory) if KEYS_SUFFIX in name]


@pytest.mark.parametrize("offsets", [(1, 0), (0, 0), (0, 5)])
def test_invalid_offset_deltas_are_not_indexed(offsets: tuple[int, int]) -> None:
    header = header_of(memoryview(build_batch([NewRecord(HOT, b"", NOW_MS), NewRecord(COLD, b"", NOW_MS)])))
    made_up = [Record(offset, NOW_MS, key, b"", ()) for offset, key in zip(offsets, (HOT, COLD), strict=True)]
    batch = memoryview(rebuild_batch(header, made_up))
    assert key_entries.entries_of(batch, header_of(batch), 0, 0, 1 << 20) == []
