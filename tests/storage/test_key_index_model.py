"""The key index compared with reading the whole log, through rolls, files, truncation, deletion, compaction, crashes
and damage.
"""

from __future__ import annotations

import random

from compaction_helpers import compact
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from key_helpers import KeyReader, scan, scan_original
from log_helpers import NOW_MS, checkpoint, header_of, open_manager, the_log
from transaction_helpers import append_marker

from penstock.config import CleanupPolicy
from penstock.model import LeaderEpoch, Offset
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.control import Marker
from penstock.storage.derived.file import PAGE_BYTES
from penstock.storage.keys.entries import IDEMPOTENCY_HEADER
from penstock.storage.log_config import LogConfig
from penstock.storage.segment import KEYS_SUFFIX
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

KEYS = [b"", b"a", b"b", b"\xff" * 20, b"long" * 30]
OWN_KEYS = [b"1", b"2", b"3"]
BOTH = (CleanupPolicy.COMPACT, CleanupPolicy.DELETE)

keys = st.sampled_from([*KEYS, None])
pairs = st.tuples(keys, st.none() | st.binary(max_size=30), st.none() | st.sampled_from(OWN_KEYS))


class KeyMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), compacts=st.booleans())
    def start(self, seed: int, compacts: bool) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(self.random, Trace(lambda: 0.0))
        self.config = LogConfig(
            segment_bytes=600,
            index_interval_bytes=150,
            index_by_key=True,
            cleanup_policy=BOTH if compacts else LogConfig().cleanup_policy,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=0,
        )
        self.epoch = 1
        self.producers = 10
        self.open_producer: int | None = None
        self._open()

    def _open(self) -> None:
        self.manager = open_manager(self.disk)
        self.log = the_log(self.manager, self.config)
        self.log.high_watermark = self.log.log_end_offset
        self.keys = KeyReader(self.log)
        self.epoch += 1
        self.open_producer = None
        for producer_id, entry in self.log.producers.copy().items():
            if entry.transaction_start >= 0:
                append_marker(self.log, Marker(producer_id, entry.epoch, False, 0))
        self.log.high_watermark = self.log.log_end_offset

    @rule(
        content=st.lists(pairs, min_size=1, max_size=6),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.SNAPPY]),
        is_committed=st.booleans(),
    )
    def append(
        self,
        content: list[tuple[bytes | None, bytes | None, bytes | None]],
        codec: Codec,
        is_committed: bool,
    ) -> None:
        records = [
            NewRecord(
                key or (b"" if self.config.compacts else key),
                value,
                NOW_MS,
                () if own is None else ((IDEMPOTENCY_HEADER, own), ("x", None)),
            )
            for key, value, own in content
        ]
        self._append(build_batch(records, codec=codec), is_committed)

    @rule(count=st.integers(1, 3))
    def write_in_a_transaction(self, count: int) -> None:
        if self.open_producer is None:
            self.producers += 1
            self.open_producer, self.sequence = self.producers, 0
        batch = build_batch(
            [NewRecord(self.random.choice(KEYS), b"t", NOW_MS) for _ in range(count)],
            producer_id=self.open_producer,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += count
        self._append(batch, True)

    @precondition(lambda self: self.open_producer is not None)
    @rule(is_commit=st.booleans())
    def end_the_transaction(self, is_commit: bool) -> None:
        assert self.open_producer is not None
        append_marker(self.log, Marker(self.open_producer, 0, is_commit, 0))
        self.open_producer = None
        self.log.high_watermark = self.log.log_end_offset

    def _append(self, batch: bytearray, is_committed: bool) -> None:
        view = memoryview(batch)
        self.log.append(view, header_of(view), LeaderEpoch(self.epoch), NOW_MS)
        if is_committed:
            self.log.high_watermark = self.log.log_end_offset

    @rule()
    def make_a_file(self) -> None:
        self.keys.file_one()

    @rule()
    def make_all_files(self) -> None:
        self.keys.file_all()

    @rule(part=st.floats(0, 1))
    def delete(self, part: float) -> None:
        start = self.log.log_start_offset
        self.log.advance_log_start(Offset(start + int((self.log.high_watermark - start) * part)))
        self.manager.write_checkpoints(both=True)
        job = self.log.jobs.begin_delete()
        if job is not None:
            job.work()
            self.log.jobs.finish_delete(job)

    @rule(part=st.floats(0.5, 1))
    def truncate(self, part: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.manager.truncate(self.log, Offset(start + int((end - start) * part)), NOW_MS)
        self.log.high_watermark = min(self.log.high_watermark, self.log.log_end_offset)
        self.epoch += 1
        for producer_id, entry in self.log.producers.copy().items():
            if entry.transaction_start >= 0 and producer_id != self.open_producer:
                append_marker(self.log, Marker(producer_id, entry.epoch, False, 0))
        if self.open_producer is not None:
            known = self.log.producers.get(self.open_producer)
            if known is None or not known.batches:
                self.open_producer = None
            else:
                self.sequence = known.batches[-1].last_sequence + 1

    @precondition(lambda self: self.config.compacts)
    @rule()
    def compact(self) -> None:
        checkpoint(self.log)
        self.log.high_watermark = self.log.log_end_offset
        compact(self.log, self.log.files)

    @rule()
    def crash(self) -> None:
        self.disk = self.disk.process_crash()
        self._open()

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.disk = self.disk.power_loss(random.Random(seed))
        self._open()

    @rule(
        page=st.integers(0, 2), place=st.integers(0, 100), which=st.integers(0, 100), flip=st.integers(1, 255)
    )
    def damage_a_file(self, page: int, place: int, which: int, flip: int) -> None:
        """Change bytes at the beginning of a page: its end is mostly empty here."""
        names = [name for name in self.disk.list(self.log.directory) if name.endswith(KEYS_SUFFIX)]
        if names:
            file = self.disk.open(f"{self.log.directory}/{names[which % len(names)]}")
            position = (page * PAGE_BYTES + place) % file.size()
            [byte] = file.pread(position, 1)
            file.pwrite(position, (bytes([byte ^ flip]),))

    @rule(which=st.integers(0, 100))
    def lose_a_file(self, which: int) -> None:
        """Damage a file while the broker is down."""
        self.disk = self.disk.process_crash()
        names = [name for name in self.disk.list(self.log.directory) if name.endswith(KEYS_SUFFIX)]
        if names:
            self.disk.remove(f"{self.log.directory}/{names[which % len(names)]}")
        self._open()

    @rule(from_part=st.floats(0, 1), max_records=st.integers(1, 5))
    def every_page_goes_on_where_the_last_one_ended(self, from_part: float, max_records: int) -> None:
        start = int(self.log.log_end_offset * from_part)
        for key in KEYS:
            assert self.keys.records(key, start, max_records) == scan(self.log, key, start)

    @rule()
    def originals_are_found(self) -> None:
        for key in (*KEYS, None):
            for own_key in OWN_KEYS:
                expected = scan_original(self.log, key, own_key)
                assert self.keys.original(key, own_key) == expected

    @invariant()
    def a_key_has_its_records_and_no_others(self) -> None:
        key = self.random.choice(KEYS)
        assert self.keys.records(key) == scan(self.log, key)

    @invariant()
    def no_file_is_left_without_its_segment(self) -> None:
        bases = {f"{segment.base_offset:020d}" for segment in self.log.segments}
        names = self.disk.list(self.log.directory)
        assert {name.removesuffix(KEYS_SUFFIX) for name in names if name.endswith(KEYS_SUFFIX)} <= bases


TestKeyIndex = KeyMachine.TestCase
TestKeyIndex.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
