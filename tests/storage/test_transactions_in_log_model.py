"""Transactions in a log on a simulated disk compared with plain lists, through truncation, restarts, crashes and power
losses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_helpers import NOW_MS, checkpoint, flush, open_manager, the_log
from transaction_helpers import Writer, read_committed

from penstock.model import BrokerEpoch, Offset
from penstock.storage.log_config import LogConfig
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200)


@dataclass
class Entry:
    """A batch of the model: records, or a marker without any."""

    offset: int
    producer_id: int
    values: list[bytes]
    is_commit: bool = False

    @property
    def end(self) -> int:
        return self.offset + max(1, len(self.values))


class TransactionMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(self.random, Trace(lambda: 0.0))
        self.entries: list[Entry] = []
        self.counter = 0
        self._open()

    def _open(self) -> None:
        self.manager = open_manager(self.disk)
        self.log = the_log(self.manager, CONFIG)
        self.writers: dict[int, Writer] = {}

    def _writer(self, producer_id: int) -> Writer:
        """A producer that learns its sequence from the log, so that only transactions are tested."""
        writer = self.writers.setdefault(producer_id, Writer(self.log, producer_id))
        state = self.log.producers.get(producer_id)
        if state is not None:
            writer.epoch = state.epoch
            writer.sequence = state.batches[-1].last_sequence + 1 if state.batches else 0
        return writer

    # --- operations of a leader

    @rule(producer_id=st.integers(0, 3), count=st.integers(1, 3), size=st.integers(0, 60))
    def write(self, producer_id: int, count: int, size: int) -> None:
        self.counter += 1
        values = [b"%d.%d" % (self.counter, place) + b"x" * size for place in range(count)]
        info = self._writer(producer_id).write(*values)
        self.entries.append(Entry(info.base_offset, producer_id, values))

    @rule(producer_id=st.integers(0, 3), commit=st.booleans(), bump=st.booleans())
    def end(self, producer_id: int, commit: bool, bump: bool) -> None:
        info = self._writer(producer_id).end(commit=commit, bump=bump)
        self.entries.append(Entry(info.base_offset, producer_id, [], commit))

    @rule(ends=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
    def run_transactions(self, ends: list[tuple[int, bool]]) -> None:
        for producer_id, commit in ends:
            self.write(producer_id, 1, 0)
            self.end(producer_id, commit, bump=True)

    @rule(part=st.floats(0, 1))
    def move_high_watermark(self, part: float) -> None:
        flush(self.log)
        end = self.log.log_end_offset
        offset = self.log.high_watermark + int((end - self.log.high_watermark) * part + 0.5)
        boundaries = [entry.end for entry in self.entries if self.log.high_watermark < entry.end <= offset]
        if boundaries:
            self.log.high_watermark = Offset(boundaries[-1])

    @rule()
    def checkpoint(self) -> None:
        checkpoint(self.log)
        self.manager.write_checkpoints()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = int(self.log.high_watermark * part)
        self.log.advance_log_start(Offset(max(offset, self.log.log_start_offset)))
        job = self.log.jobs.begin_delete()
        if job is not None:
            self.manager.write_checkpoints(both=True)
            job.work()
            self.log.jobs.finish_delete(job)

    # --- faults

    @rule(part=st.floats(0, 1))
    def cut(self, part: float) -> None:
        """Truncate as a follower does, above the high watermark."""
        watermark = self.log.high_watermark
        offset = watermark + int((self.log.log_end_offset - watermark) * part)
        self.manager.truncate(self.log, Offset(offset), NOW_MS)
        self._forget_lost()

    @rule()
    def restart(self) -> None:
        self.manager.close(BrokerEpoch(1))
        self._open()

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        self.disk = self.disk.power_loss(self.random) if power else self.disk.process_crash()
        self._open()
        self._forget_lost()

    def _forget_lost(self) -> None:
        end = self.log.log_end_offset
        self.entries = [entry for entry in self.entries if entry.end <= end]

    # --- invariants

    def _ends(self) -> dict[int, Entry | None]:
        """Marker that ends the transaction of each entry with records, by the offset of the entry."""
        ends: dict[int, Entry | None] = {}
        open_entries: dict[int, list[int]] = {}
        for entry in self.entries:
            if entry.values:
                ends[entry.offset] = None
                open_entries.setdefault(entry.producer_id, []).append(entry.offset)
            else:
                ends |= dict.fromkeys(open_entries.pop(entry.producer_id, ()), entry)
        return ends

    @invariant()
    def everything_below_the_last_stable_offset_is_decided(self) -> None:
        if not hasattr(self, "log"):
            return
        watermark, log_start, ends = self.log.high_watermark, self.log.log_start_offset, self._ends()
        unstable = [
            entry.offset
            for entry in self.entries
            if entry.values
            and entry.end > log_start
            and ((marker := ends[entry.offset]) is None or marker.offset >= watermark)
        ]
        expected = max(min([watermark, *unstable]), min(log_start, watermark))
        stable = self.log.last_stable_offset
        assert stable == expected or (
            # The first records of a transaction are gone: the log start is its limit then.
            stable == log_start < expected
        ), (stable, expected, unstable)

    @invariant()
    def readers_get_what_was_committed(self) -> None:
        if not hasattr(self, "log"):
            return
        stable, ends = self.log.last_stable_offset, self._ends()
        expected = [
            (entry.offset + place, value)
            for entry in self.entries
            for place, value in enumerate(entry.values)
            if entry.offset + place < stable
            and (marker := ends[entry.offset]) is not None
            and marker.is_commit
            and entry.offset + place >= self.log.log_start_offset
        ]
        for max_bytes in (1, 300, 10_000):
            assert read_committed(self.log, max_bytes) == expected


TransactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = TransactionMachine.TestCase
