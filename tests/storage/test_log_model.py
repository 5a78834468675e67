"""A log on a simulated disk compared with a plain list, through truncation, crashes and power losses."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_helpers import NOW_MS, append, open_manager, read_all, the_log

from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.storage.jobs import CheckpointJob, DeleteJob, FlushJob
from penstock.storage.log_config import LogConfig
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(self.random, Trace(lambda: 0.0))
        self.batches: list[list[tuple[bytes, int]]] = []
        self.flushed = 0
        self.log_start = 0
        self.epoch = 1
        self.counter = 0
        self.clean = False
        self.sequences: dict[int, int] = {}
        self._open()

    def _open(self) -> None:
        self.manager = open_manager(self.disk)
        self.log = the_log(self.manager, CONFIG)
        self.flush_job: FlushJob | None = None
        self.checkpoint_job: CheckpointJob | None = None
        self.delete_job: DeleteJob | None = None

    @property
    def records(self) -> list[tuple[bytes, int]]:
        return [record for batch in self.batches for record in batch]

    # --- operations of a broker

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 80),
        shift=st.integers(-50, 50),
        producer=st.integers(0, 2),
    )
    def append(self, count: int, size: int, shift: int, producer: int) -> None:
        self.counter += 1
        values = [b"%d.%d" % (self.counter, place) + b"x" * size for place in range(count)]
        timestamp = NOW_MS + shift
        sequence = self.sequences.get(producer, 0)
        info = append(
            self.log,
            *values,
            timestamp=timestamp,
            epoch=LeaderEpoch(self.epoch),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        assert (info.base_offset, info.duplicate) == (len(self.records), False)
        self.sequences[producer] = sequence + count
        self.batches.append([(value, timestamp) for value in values])
        again = append(
            self.log,
            *values,
            timestamp=timestamp,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        assert (again.base_offset, again.duplicate) == (info.base_offset, True)

    @rule()
    def begin_flush(self) -> None:
        self.flush_job = self.log.jobs.begin_flush()

    @precondition(lambda self: self.flush_job is not None)
    @rule()
    def finish_flush(self) -> None:
        assert self.flush_job is not None
        self.flush_job.work()
        self.log.jobs.finish_flush(self.flush_job)
        self.flush_job = None
        self.flushed = self.log.flushed_offset

    @precondition(lambda self: self.checkpoint_job is None)
    @rule()
    def begin_checkpoint(self) -> None:
        self.checkpoint_job = self.log.jobs.begin_checkpoint()

    @precondition(lambda self: self.checkpoint_job is not None)
    @rule()
    def finish_checkpoint(self) -> None:
        assert self.checkpoint_job is not None
        self.checkpoint_job.work()
        self.log.jobs.finish_checkpoint(self.checkpoint_job)
        self.checkpoint_job = None
        self.flushed = self.log.flushed_offset

    @rule(both=st.booleans())
    def write_checkpoints(self, both: bool) -> None:
        self.manager.write_checkpoints(both=both)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.log_start + int((self.flushed - self.log_start) * part)
        self.log.advance_log_start(Offset(offset))
        self.manager.write_checkpoints(both=True)
        self.log_start = max(self.log_start, offset)

    @precondition(lambda self: self.delete_job is None)
    @rule()
    def begin_delete(self) -> None:
        self.delete_job = self.log.jobs.begin_delete()

    @precondition(lambda self: self.delete_job is not None)
    @rule()
    def finish_delete(self) -> None:
        assert self.delete_job is not None
        self.delete_job.work()
        self.log.jobs.finish_delete(self.delete_job)
        self.delete_job = None

    @precondition(lambda self: self.checkpoint_job is None and self.delete_job is None)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        end = len(self.records)
        offset = self.log_start + int((end - self.log_start) * part)
        self.manager.truncate(self.log, Offset(offset), NOW_MS)
        kept, total = [], 0
        for batch in self.batches:
            if total + len(batch) > offset:
                break
            kept.append(batch)
            total += len(batch)
        self.batches = kept
        self.log_start = min(self.log_start, total)
        self.flushed = min(self.flushed, total)
        self._after_change()

    def _after_change(self) -> None:
        """Begin a new leader epoch; producers go on from the state that the log has."""
        self.epoch += 1
        self.sequences = {
            producer: entry.batches[-1].last_sequence + 1
            for producer, entry in self.log.producers.copy().items()
        }

    # --- faults

    @rule()
    def crash(self) -> None:
        self.disk = self.disk.process_crash()
        self._open()
        assert self.log.log_end_offset == len(self.records)
        self.flushed = self.log.flushed_offset
        self._after_change()

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        before = self.records
        self.disk = self.disk.power_loss(random.Random(seed))
        self._open()
        end = self.log.log_end_offset
        assert self.flushed <= end <= len(before)
        while len(self.records) > end:
            self.batches.pop()
        assert len(self.records) == end
        self.flushed = self.log.flushed_offset
        self._after_change()

    @rule()
    def stop_cleanly(self) -> None:
        for job in (self.checkpoint_job, self.delete_job):
            if job is not None:
                job.work()
        if self.checkpoint_job is not None:
            self.log.jobs.finish_checkpoint(self.checkpoint_job)
        if self.delete_job is not None:
            self.log.jobs.finish_delete(self.delete_job)
        self.manager.close(BrokerEpoch(9))
        self.disk = self.disk.power_loss(self.random)
        self._open()
        assert self.manager.was_clean == 9
        assert self.manager.reports == []
        assert self.log.log_end_offset == len(self.records)
        self.flushed = self.log.flushed_offset
        self._after_change()

    # --- invariants

    @invariant()
    def reads_are_what_was_appended(self) -> None:
        records = self.records
        assert self.log.log_start_offset == self.log_start
        expected = [(offset, value) for offset, (value, _) in enumerate(records)][self.log_start :]
        assert read_all(self.log) == expected
        if expected:
            middle = expected[len(expected) // 2][0]
            assert read_all(self.log, middle, max_bytes=200) == expected[middle - self.log_start :]

    @invariant()
    def times_lead_to_the_first_record_that_is_new_enough(self) -> None:
        visible = list(enumerate(self.records))[self.log_start :]
        for timestamp in (NOW_MS - 30, NOW_MS + 10, NOW_MS + 45):
            found = self.log.find_timestamp(timestamp, self.log.log_end_offset)
            expected = next((offset for offset, (_, time) in visible if time >= timestamp), None)
            assert (None if found is None else found.offset) == expected

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.log_end_offset
        assert log.flushed_offset <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
