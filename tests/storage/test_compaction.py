from __future__ import annotations

from pathlib import Path

import pytest
from compaction_helpers import COMPACT, batches, compact, compacting, pairs, put, records, roll
from log_helpers import EPOCH, NOW_MS, checkpoint, make_context, make_log, open_manager, the_log

from penstock.config import CleanupPolicy
from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import CODEC_MASK, read_header, write_crc
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.storage import compaction
from penstock.storage.batch_filter import DELETE_HORIZON_FLAG
from penstock.storage.damage import DamagedRange
from penstock.storage.disk import RealDisk
from penstock.storage.key_offsets import BYTES_PER_KEY
from penstock.storage.log import Log
from penstock.storage.log_state import StorageContext


@pytest.fixture
def context(tmp_path: Path) -> StorageContext:
    return make_context(tmp_path)


@pytest.fixture
def log(context: StorageContext) -> Log:
    return make_log(context, compacting())


def test_compaction_keeps_the_newest_record_of_each_key_at_its_offset(
    log: Log, context: StorageContext
) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"), (b"b", b"2"))
    before = records(log)
    roll(log)
    assert compact(log, context.files)
    assert pairs(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert records(log) == [before[2], before[3], before[4]], "timestamps and headers too"


def test_active_segment_is_not_compacted(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    checkpoint(log)
    assert not compact(log, context.files)
    assert len(pairs(log)) == 2


def test_record_in_the_active_segment_removes_no_older_record(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    compact(log, context.files)
    assert pairs(log) == [(0, b"a", b"1"), (2, b"a", b"2")]


def test_records_above_the_high_watermark_are_not_compacted(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    assert not compact(log, context.files, high_watermark=1)
    assert len(pairs(log)) == 2


def test_read_at_a_compacted_offset_returns_the_next_record(log: Log, context: StorageContext) -> None:
    for number in range(20):
        put(log, (b"a", b"%d" % number))
    roll(log)
    compact(log, context.files)
    for offset in range(20):
        content = log.read(Offset(offset), 10_000, below=log.log_end_offset, at_least_one=True, wait=True)
        assert len(content) > 0
    found = log.find_timestamp(NOW_MS, log.log_end_offset)
    assert found is not None
    assert found.offset == 19


def test_segments_that_became_small_are_merged(log: Log, context: StorageContext) -> None:
    for number in range(20):
        put(log, (b"a", b"%d" % number))
    roll(log)
    before = len(log.segments)
    compact(log, context.files)
    put(log, (b"a", b"last"))
    roll(log)
    compact(log, context.files)
    assert before > 5
    assert len(log.segments) <= 4
    assert pairs(log) == [(21, b"a", b"last")]


def test_a_reader_in_the_middle_of_an_old_segment_can_finish(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    held = log.read(Offset(0), 10_000, below=Offset(2), at_least_one=True, wait=True)
    before = held.read()
    compact(log, context.files)
    assert held.read() == before


def test_old_segments_are_readable_until_the_swap_is_finished(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    before = pairs(log)
    pass_ = compaction.begin_compaction(log, context.files, NOW_MS, log.log_end_offset, 1 << 20)
    assert pass_ is not None
    while pass_.step() is not compaction.CompactionProgress.CLEANED:
        pass
    cleaned = pass_.cleaned
    assert cleaned is not None
    assert log.jobs.begin_swap(cleaned.replaced)
    assert log.jobs.begin_checkpoint() is None
    cleaned.swap()
    assert pairs(log) == before
    log.jobs.finish_swap(cleaned.replaced, cleaned.segment())
    assert pairs(log) == before[1:]


def test_segment_deleted_during_a_pass_ends_it(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    pass_ = compaction.begin_compaction(log, context.files, NOW_MS, log.log_end_offset, 1 << 20)
    assert pass_ is not None
    assert pass_.step() is compaction.CompactionProgress.CLEANED
    log.advance_log_start(Offset(2))
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)
    assert pass_.cleaned is not None
    assert not log.jobs.begin_swap(pass_.cleaned.replaced)
    pass_.abandon()
    assert not [name for name in context.disk.list(log.directory) if name.endswith(".cleaned")]


def test_records_below_the_log_start_are_removed(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    roll(log)
    log.advance_log_start(Offset(1))
    compact(log, context.files)
    assert [record.offset for record in records(log)] == [1, 2]
    assert batches(log)[0][0].record_count == 2


def test_records_without_a_key_are_removed_as_in_kafka(log: Log, context: StorageContext) -> None:
    put(log, (None, b"1"), (b"a", b"1"))
    roll(log)
    compact(log, context.files)
    assert pairs(log) == [(1, b"a", b"1")]


def test_control_batches_are_not_compacted_away(log: Log, context: StorageContext) -> None:
    marker = memoryview(build_batch([NewRecord(b"key", b"1", NOW_MS)], control=True))
    for _ in range(2):
        log.append(marker, read_header(marker), EPOCH, NOW_MS)
    put(log, (b"key", b"2"))
    roll(log)
    compact(log, context.files)
    assert [header.is_control for header, _ in batches(log)][:3] == [True, True, False]


def test_unreadable_batch_is_kept_and_removes_no_older_record(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    unreadable = bytearray(build_batch([NewRecord(b"a", b"2", NOW_MS), NewRecord(b"b", b"2", NOW_MS)]))
    unreadable[-1] = 5  # it claims more headers than it has
    write_crc(memoryview(unreadable))
    log.append(memoryview(unreadable), read_header(unreadable), EPOCH, NOW_MS)
    roll(log)
    compact(log, context.files)
    assert [header.base_offset for header, _ in batches(log)][:2] == [0, 1]


def test_records_with_an_empty_key_are_compacted(log: Log, context: StorageContext) -> None:
    put(log, (b"", b"1"), (b"", b"2"))
    roll(log)
    compact(log, context.files)
    assert pairs(log) == [(1, b"", b"2")]


def test_tombstone_outlives_its_records_by_delete_retention(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    roll(log)
    assert compact(log, context.files, now_ms=NOW_MS)
    assert pairs(log) == [(1, b"a", None), (2, b"b", b"1")]
    assert [record.timestamp for record in records(log)] == [NOW_MS, NOW_MS], (
        "the horizon is not a record's time"
    )
    put(log, (b"c", b"1"))
    roll(log)
    compact(log, context.files, now_ms=NOW_MS + 999)
    assert (1, b"a", None) in pairs(log)
    put(log, (b"c", b"2"))
    roll(log)
    compact(log, context.files, now_ms=NOW_MS + 1_000)
    assert pairs(log) == [(2, b"b", b"1"), (6, b"c", b"2")]


def test_replaced_tombstone_is_removed_at_once(log: Log, context: StorageContext) -> None:
    put(log, (b"a", None))
    put(log, (b"a", b"1"))
    roll(log)
    compact(log, context.files)
    assert pairs(log) == [(1, b"a", b"1")]


@pytest.mark.parametrize("retention_ms", [0, 2**63 - 1])
def test_delete_retention_applies_at_its_minimum_and_maximum(
    context: StorageContext, retention_ms: int
) -> None:
    log = make_log(context, compacting(delete_retention_ms=retention_ms))
    put(log, (b"a", None))
    roll(log)
    compact(log, context.files)
    assert pairs(log) == [(0, b"a", None)]
    assert records(log)[0].timestamp == NOW_MS
    put(log, (b"b", b"1"))
    roll(log)
    compact(log, context.files, now_ms=NOW_MS + 1)
    assert pairs(log)[0][1] == (b"b" if retention_ms == 0 else b"a")


@pytest.mark.parametrize("codec", list(Codec))
def test_compaction_keeps_the_codec_of_a_batch(log: Log, context: StorageContext, codec: Codec) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    roll(log)
    compact(log, context.files)
    header, _ = batches(log)[0]
    assert header.attributes & CODEC_MASK == codec
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_a_batch_keeps_its_range_producer_and_epoch(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"), producer_id=7, base_sequence=0)
    put(log, (b"b", b"3"), producer_id=7, base_sequence=4)
    (before, _), *_ = batches(log)
    roll(log)
    compact(log, context.files)
    after, _ = batches(log)[0]
    for field in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(after, field) == getattr(before, field)
    assert after.leader_epoch == before.leader_epoch
    assert after.record_count == 1


def test_last_batch_of_a_live_producer_stays_without_records(tmp_path: Path) -> None:
    config = compacting()
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, config)
    put(log, (b"a", b"1"), producer_id=7, base_sequence=0, codec=Codec.GZIP)
    put(log, (b"a", b"2"), producer_id=7, base_sequence=1, codec=Codec.GZIP)
    put(log, (b"a", b"3"))
    roll(log)
    compact(log, manager.context.files)
    assert [(header.last_offset, header.record_count) for header, _ in batches(log)[:2]] == [(1, 0), (2, 1)]
    manager.write_checkpoints()
    for snapshot in tmp_path.glob("logs/*/*.snapshot"):
        snapshot.unlink()
    log.discard()
    manager._disk.close()
    reopened = the_log(open_manager(RealDisk(str(tmp_path))), config)
    again = put(reopened, (b"a", b"2"), producer_id=7, base_sequence=1)
    assert again == 1, "a retry of the batch that is gone is still recognised"


def test_empty_batch_is_removed_after_its_producer_wrote_again(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), producer_id=7, base_sequence=0)
    put(log, (b"a", b"2"))
    roll(log)
    compact(log, context.files)
    assert batches(log)[0][0].record_count == 0
    put(log, (b"b", b"1"), producer_id=7, base_sequence=1)
    roll(log)
    compact(log, context.files)
    assert all(header.record_count for header, _ in batches(log))


def test_more_keys_than_fit_are_compacted_in_several_passes(log: Log, context: StorageContext) -> None:
    for number in range(30):
        put(log, (b"k%d" % (number % 15), b"%d" % number))
    roll(log)
    expected = [(number, b"k%d" % (number % 15), b"%d" % number) for number in range(15, 30)]
    passes = 0
    while compact(log, context.files, buffer_bytes=4 * BYTES_PER_KEY):
        passes += 1
    assert passes > 5
    assert pairs(log) == expected


def test_compaction_pass_runs_in_short_steps(
    context: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "STEP_BYTES", 100)
    log = make_log(context, compacting(segment_bytes=100_000))
    for number in range(20):
        put(log, (b"a", b"%d" % number))
    roll(log)
    pass_ = compaction.begin_compaction(log, context.files, NOW_MS, log.log_end_offset, 1 << 20)
    assert pass_ is not None
    steps = 1
    while pass_.step() is compaction.CompactionProgress.MORE:
        steps += 1
    assert steps > 20


def test_low_dirty_ratio_waits_for_max_compaction_lag(context: StorageContext) -> None:
    log = make_log(context, compacting(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=10_000))
    for number in range(12):
        put(log, (b"k%d" % number, b"1"))
    roll(log)
    assert compact(log, context.files)
    put(log, (b"k0", b"2"), now_ms=NOW_MS)
    put(log, (b"x" * 10, b"x" * 10), now_ms=NOW_MS)
    log.config = compacting(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=10_000)
    roll(log)
    assert not compact(log, context.files, now_ms=NOW_MS + 10_000)
    assert compact(log, context.files, now_ms=NOW_MS + 10_001)
    assert (0, b"k0", b"1") not in pairs(log)


def test_young_records_are_not_compacted(context: StorageContext) -> None:
    log = make_log(context, compacting(min_compaction_lag_ms=1_000))
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    assert not compact(log, context.files, now_ms=NOW_MS + 999)
    assert len(pairs(log)) == 2
    assert compact(log, context.files, now_ms=NOW_MS + 1_000)
    assert len(pairs(log)) == 1


def test_log_without_dirty_segments_is_not_compacted(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    assert compact(log, context.files)
    assert not compact(log, context.files)


def test_damage_ends_a_compaction_pass_and_is_reported(
    log: Log, context: StorageContext, tmp_path: Path
) -> None:
    put(log, (b"a", b"1" * 50), (b"a", b"2" * 50))
    roll(log)
    path = tmp_path / log.segments[0].log_file.path
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    pass_ = compaction.begin_compaction(log, context.files, NOW_MS, log.log_end_offset, 1 << 20)
    assert pass_ is not None
    with pytest.raises(CorruptLog):
        pass_.step()
    pass_.abandon()
    assert path.read_bytes() == content


def test_a_log_can_be_compacted_and_deleted_from(context: StorageContext) -> None:
    both = (*COMPACT, CleanupPolicy.DELETE)
    log = make_log(context, compacting(cleanup_policy=both))
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    assert compact(log, context.files)
    assert pairs(log) == [(1, b"a", b"2")]


def test_unread_tombstone_gets_no_delete_horizon(log: Log, context: StorageContext) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"b", None))
    roll(log)
    assert compact(log, context.files, buffer_bytes=BYTES_PER_KEY)
    assert log.cleaned_offset == 1
    assert not any(header.attributes & DELETE_HORIZON_FLAG for header, _ in batches(log))
    assert compact(log, context.files, buffer_bytes=BYTES_PER_KEY)
    assert [bool(header.attributes & DELETE_HORIZON_FLAG) for header, _ in batches(log)][:2] == [False, True]


def test_damaged_log_is_not_compacted(tmp_path: Path) -> None:
    manager = open_manager(RealDisk(str(tmp_path)))
    log = the_log(manager, compacting())
    for number in range(4):
        put(log, (b"key", b"%d" % number))
        roll(log)
    log.add_damage(DamagedRange(Offset(1), Offset(2), "lost"))
    assert not compact(log, manager.context.files)
    with pytest.raises(CorruptLog):
        log.read(Offset(1), 1, below=Offset(4), at_least_one=True, wait=True)
