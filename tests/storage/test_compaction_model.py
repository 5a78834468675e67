"""Compaction compared with a log that is never compacted, with a power loss at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from compaction_helpers import compact, compacting, put, records
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import NOW_MS, checkpoint, open_manager, the_log

from penstock.records.compression import Codec
from penstock.records.iteration import Record
from penstock.storage.key_offsets import BYTES_PER_KEY
from penstock.storage.log import Log
from penstock.storage.log_manager import LogManager
from simulation.machine.disk import SimulatedDisk
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace

CONFIG = compacting(delete_retention_ms=5_000)


@dataclass
class Model:
    """Everything that was ever appended, and how far each pass may have gone."""

    history: list[Record] = field(default_factory=list)
    tombstone_seen_ms: dict[int, int] = field(default_factory=dict)

    def append(self, log: Log, keys: list[int], now_ms: int, codec: Codec) -> None:
        """Make every seventh record a tombstone."""
        start = log.log_end_offset
        pairs = []
        for place, key in enumerate(keys):
            offset = start + place
            value = None if offset % 7 == 0 else b"value-%d" % offset
            pairs.append((b"key-%d" % key, value))
            self.history.append(Record(offset, now_ms, b"key-%d" % key, value, (("h", b"x"),)))
        put(log, *pairs, now_ms=now_ms, codec=codec)

    def met_tombstones(self, below: int, now_ms: int) -> None:
        for record in self.history:
            if record.value is None and record.offset < below:
                self.tombstone_seen_ms.setdefault(record.offset, now_ms)

    def check(self, log: Log, now_ms: int) -> None:
        left = records(log)
        by_offset = {record.offset: record for record in self.history}
        offsets = [record.offset for record in left]
        assert offsets == sorted(set(offsets))
        assert all(by_offset[record.offset] == record for record in left), "no record was changed"
        for record in {record.key: record for record in self.history}.values():
            if record.offset in offsets:
                continue
            assert record.value is None, f"the newest record of a key is gone: {record}"
            seen_ms = self.tombstone_seen_ms.get(record.offset)
            assert seen_ms is not None
            assert now_ms >= seen_ms + CONFIG.delete_retention_ms, "a tombstone went too early"
        readers_see = {record.key: record.value for record in left}
        expected = {record.key: record.value for record in self.history}
        assert {k: v for k, v in readers_see.items() if v is not None} == {
            k: v for k, v in expected.items() if v is not None
        }, "what was deleted never comes back"


def make_disk(seed: int, trace: Trace | None = None) -> SimulatedDisk:
    return SimulatedDisk(Random(seed), trace or Trace(lambda: 0.0))


steps = st.one_of(
    st.tuples(
        st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from(list(Codec))
    ),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("compact"), st.integers(1, 8)),
    st.tuples(st.just("wait"), st.integers(0, 4_000)),
    st.tuples(st.just("restart")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40), st.integers(0, 2**32))
def test_compacted_and_uncompacted_logs_have_the_same_values(
    plan: list[tuple[object, ...]], seed: int
) -> None:
    disk, model, now_ms = make_disk(seed), Model(), NOW_MS
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for step in plan:
        match step:
            case ("append", list(keys), Codec() as codec):
                model.append(log, keys, now_ms, codec)
            case ("checkpoint",):
                checkpoint(log)
                manager.write_checkpoints()
            case ("compact", int(keys)):
                if compact(log, manager.context.files, now_ms=now_ms, buffer_bytes=keys * BYTES_PER_KEY):
                    model.met_tombstones(log.cleaned_offset, now_ms)
            case ("wait", int(ms)):
                now_ms += ms
            case ("restart",):
                end = log.log_end_offset
                disk = disk.process_crash()
                manager = open_manager(disk)
                log = the_log(manager, CONFIG)
                assert log.log_end_offset == end
        model.check(log, now_ms)


def prepare(
    seed: int, kept_mark: bool, trace: Trace | None = None
) -> tuple[SimulatedDisk, LogManager, Log, Model]:
    """A durable log that was compacted once and can be compacted again.

    With `keep_mark` the recovery mark is durable too; without, the mark on disk points into a segment that is about to
    be replaced.
    """
    disk, model, random = make_disk(seed, trace), Model(), Random(seed)
    manager = open_manager(disk)
    log = the_log(manager, CONFIG)
    for part in range(2):
        for _ in range(6):
            keys = [random.randrange(6) for _ in range(random.randint(1, 4))]
            model.append(log, keys, NOW_MS + part, random.choice(list(Codec)))
        checkpoint(log)
        if part == 0 or kept_mark:
            manager.write_checkpoints(both=True)
        if part == 0:
            assert compact(log, manager.context.files, now_ms=NOW_MS)
            model.met_tombstones(log.cleaned_offset, NOW_MS)
    return disk, manager, log, model


def count_operations(seed: int, kept_mark: bool) -> int:
    trace = Trace(lambda: 0.0)
    _, manager, log, _ = prepare(seed, kept_mark, trace)
    before = trace.events
    assert compact(log, manager.context.files, now_ms=NOW_MS + 6_000)
    return trace.events - before


@pytest.mark.slow
@pytest.mark.parametrize("kept_mark", [False, True], ids=["old mark", "new mark"])
@pytest.mark.parametrize("power", [False, True], ids=["crash", "power loss"])
def test_a_crash_at_any_disk_operation_loses_nothing(power: bool, kept_mark: bool) -> None:
    seed = 5
    operations = count_operations(seed, kept_mark)
    assert operations > 50
    for place in range(1, operations + 1):
        disk, manager, log, model = prepare(seed, kept_mark)
        end = log.log_end_offset
        disk.faults.crash_after(place)
        with pytest.raises(SimulatedCrash):
            compact(log, manager.context.files, now_ms=NOW_MS + 6_000)
        disk.faults.heal()
        survivor = disk.power_loss(Random(place)) if power else disk.process_crash()
        model.met_tombstones(end, NOW_MS)
        for _ in range(2):  # and again after the recovery itself
            manager = open_manager(survivor)
            log = the_log(manager, CONFIG)
            assert log.log_end_offset == end, f"crash at operation {place}"
            model.check(log, NOW_MS + 6_000)
            names = survivor.list(log.directory)
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            survivor = survivor.process_crash()
        manager = open_manager(survivor)
        log = the_log(manager, CONFIG)
        compact(log, manager.context.files, now_ms=NOW_MS + 6_000)
        model.check(log, NOW_MS + 6_000)
