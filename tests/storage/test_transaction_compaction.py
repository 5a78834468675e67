"""Compaction of logs with transactions: aborted records are removed, markers stay as long as they decide something."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from compaction_helpers import batches, compact, compacting, roll
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import EPOCH, NOW_MS, checkpoint, make_context, make_log, open_manager, the_log
from transaction_helpers import Writer, append_marker, commit_all, read_committed

from penstock.model import BrokerEpoch, Offset
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import Marker, read_marker
from penstock.storage.file_cache import FileCache
from penstock.storage.log import Log
from penstock.storage.log_state import StorageContext
from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace

RETENTION_MS = 1_000
EXPIRED_MS = 2 * 86_400_000


@dataclass
class Stage:
    context: StorageContext
    log: Log

    @property
    def files(self) -> FileCache:
        return self.context.files

    def compact(self, now_ms: int = NOW_MS) -> bool:
        """Close the active segment and run one pass over all closed ones."""
        roll(self.log)
        commit_all(self.log)
        return compact(self.log, self.files, now_ms=now_ms)

    def markers(self) -> list[Marker]:
        found = (read_marker(batch, header) for header, batch in batches(self.log) if header.is_control)
        return [marker for marker in found if marker is not None]

    def values(self) -> list[bytes]:
        return [value for _, value in read_committed(self.log) if not value.startswith(b"xxx")]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    context = make_context(tmp_path)
    return Stage(context, make_log(context, compacting(delete_retention_ms=RETENTION_MS)))


def test_aborted_records_are_removed_and_replace_nothing(stage: Stage) -> None:
    writer = Writer(stage.log)
    writer.write(b"old", keys=[b"key"])
    writer.commit()
    writer.write(b"aborted", keys=[b"key"])
    writer.abort()
    Writer(stage.log, 2).write(b"last of the producer", keys=[b"other"], transactional=False)
    stage.compact()
    assert [value for _, value in read_committed(stage.log)][:2] == [b"old", b"last of the producer"]
    assert b"aborted" not in b"".join(bytes(batch) for _, batch in batches(stage.log))


def test_committed_records_replace_older_ones(stage: Stage) -> None:
    writer = Writer(stage.log)
    for number in range(4):
        writer.write(b"%d" % number, keys=[b"key"])
        writer.commit()
    stage.compact()
    assert stage.values() == [b"3"]


def test_records_from_the_first_open_transaction_on_are_not_compacted(stage: Stage) -> None:
    writer = Writer(stage.log, 1)
    plain = Writer(stage.log, 2)
    plain.write(b"one", keys=[b"key"], transactional=False)
    roll(stage.log)
    writer.write(b"open", keys=[b"key"])
    stage.compact()
    writer.abort()
    commit_all(stage.log)
    assert stage.values() == [b"one"]


def test_a_marker_stays_while_records_of_its_transaction_are_left(stage: Stage) -> None:
    writer = Writer(stage.log)
    writer.write(b"kept", keys=[b"key"])
    writer.commit()
    for now_ms in (NOW_MS, NOW_MS + 2 * RETENTION_MS, NOW_MS + EXPIRED_MS):
        stage.compact(now_ms)
        assert len(stage.markers()) == 1


def test_marker_is_removed_some_time_after_its_transaction(stage: Stage) -> None:
    writer = Writer(stage.log)
    for number in range(2):
        writer.write(b"%d" % number, keys=[b"key"])
        writer.commit()
    stage.compact()
    assert len(stage.markers()) == 2, "the pass that removed the records"
    stage.compact()
    assert len(stage.markers()) == 2, "the one that found them gone sets the time"
    stage.compact(NOW_MS + RETENTION_MS // 2)
    assert len(stage.markers()) == 2
    stage.compact(NOW_MS + RETENTION_MS)
    assert len(stage.markers()) == 1
    assert stage.values() == [b"1"]


def test_marker_stays_if_nothing_else_is_known_of_its_producer(stage: Stage) -> None:
    writer = Writer(stage.log)
    writer.write(b"gone", keys=[b"key"])
    writer.abort(bump=True)
    for pass_number in range(4):
        stage.compact(NOW_MS + pass_number * 2 * RETENTION_MS)
    assert stage.markers() == [Marker(1, 1, False, 0)]


def test_only_the_last_marker_of_a_producer_without_sequences_stays(stage: Stage) -> None:
    """A coordinator writes offsets for it like this, transaction after transaction in one epoch."""
    for number in range(5):
        batch = memoryview(
            build_batch(
                [NewRecord(b"key", b"%d" % number, NOW_MS)],
                producer_id=1,
                producer_epoch=0,
                transactional=True,
            )
        )
        stage.log.append(batch, read_header(batch), EPOCH, NOW_MS)
        append_marker(stage.log, Marker(1, 0, number % 2 == 0, 0))
    for pass_number in range(5):
        stage.compact(NOW_MS + pass_number * 2 * RETENTION_MS)
    assert stage.values() == [b"4"]
    assert len(stage.markers()) == 1


def test_aborted_transaction_is_forgotten_with_its_marker(stage: Stage) -> None:
    """Readers that know of it without the marker would skip what the producer wrote next."""
    writer = Writer(stage.log)
    writer.write(b"aborted", keys=[b"a"])
    writer.abort()
    writer.write(b"committed", keys=[b"b"])
    writer.commit()
    for pass_number in range(5):
        stage.compact(NOW_MS + pass_number * 2 * RETENTION_MS)
        told = len(stage.log.producers.aborted)
        assert told <= sum(not marker.is_commit for marker in stage.markers())
        assert stage.values() == [b"committed"]
    assert stage.markers() == [Marker(1, 0, True, 0)]
    assert len(stage.log.producers.aborted) == 0


def test_abandoned_pass_removes_no_marker_that_readers_need(stage: Stage) -> None:
    """The pass that set the time ended before readers stopped being told of the transaction."""
    writer = Writer(stage.log)
    writer.write(b"aborted", keys=[b"a"])
    writer.abort()
    writer.write(b"committed", keys=[b"b"])
    writer.commit()
    stage.compact()
    told = stage.log.producers.aborted
    stage.compact()
    stage.log.producers.aborted = told
    stage.compact(NOW_MS + 2 * RETENTION_MS)
    assert Marker(1, 0, False, 0) in stage.markers()
    assert len(stage.log.producers.aborted) == 0
    stage.compact(NOW_MS + 2 * RETENTION_MS)
    assert Marker(1, 0, False, 0) not in stage.markers()


def test_keys_that_look_like_markers_remove_none(stage: Stage) -> None:
    writer = Writer(stage.log)
    writer.write(b"a", keys=[b"key"])
    writer.commit()
    writer.write(b"b", keys=[b"\0\0\0\1"])
    writer.commit()
    stage.compact()
    assert len(stage.markers()) == 2
    assert stage.values() == [b"a", b"b"]


def test_older_snapshot_does_not_restore_compacted_transactions(tmp_path: Path) -> None:
    disk = SimulatedDisk(Random(1), Trace(lambda: 0.0))
    manager = open_manager(disk)
    log = the_log(manager, compacting(delete_retention_ms=0))
    stage = Stage(manager.context, log)
    writer = Writer(log)
    writer.write(b"aborted", keys=[b"a"])
    writer.abort()
    writer.write(b"committed", keys=[b"b"])
    writer.commit()
    roll(log)
    commit_all(log)
    with_aborted = log.producers.aborted
    for _ in range(3):
        compact(log, stage.files)
        log.cleaned_offset = Offset(0)  # so that the next pass has something to do, without an append
    log.cleaned_offset = Offset(1)
    assert with_aborted.reaches(0)
    assert len(log.producers.aborted) == 0
    manager.write_checkpoints(both=True)
    log = the_log(open_manager(disk.process_crash()), compacting())
    assert len(log.producers.aborted) == 0
    commit_all(log)
    assert b"committed" in [value for _, value in read_committed(log)]


# --- compared with a model


@dataclass
class Model:
    """Everything that was ever committed, in the order of the log."""

    history: list[tuple[bytes, bytes]] = field(default_factory=list)

    def newest(self) -> dict[bytes, bytes]:
        return dict(self.history)


Transactions = st.lists(
    st.tuples(
        st.integers(1, 3),  # producer
        st.lists(st.integers(0, 4), min_size=1, max_size=3),  # keys
        st.sampled_from(["commit", "abort", "commit anew", "abort anew"]),
    ),
    min_size=1,
    max_size=8,
)
Rounds = st.lists(
    st.tuples(Transactions, st.sampled_from(["", "restart", "crash", "power"])), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(rounds=Rounds, seed=st.integers(0, 2**32), retention_ms=st.sampled_from([0, RETENTION_MS]))
def test_readers_find_the_newest_committed_value_of_every_key(
    rounds: list[tuple[list[tuple[int, list[int], str]], str]], seed: int, retention_ms: int
) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random, Trace(lambda: 0.0))
    config = compacting(delete_retention_ms=retention_ms)
    manager = open_manager(disk)
    log = the_log(manager, config)
    model = Model()
    now_ms = NOW_MS
    for transactions, disturbance in rounds:
        _write(log, transactions, model)
        roll(log)
        commit_all(log)
        manager.write_checkpoints(both=True)
        compact(log, manager.context.files, now_ms=now_ms)
        now_ms += random.choice([0, RETENTION_MS // 2, 3 * RETENTION_MS, EXPIRED_MS])
        if disturbance == "restart":
            manager.close(BrokerEpoch(1))
        elif disturbance:
            disk = disk.power_loss(random) if disturbance == "power" else disk.process_crash()
        if disturbance:
            manager = open_manager(disk)
            log = the_log(manager, config)
            commit_all(log)
        assert log.last_stable_offset == log.log_end_offset
        for max_bytes in (1, 1_000):
            found = _committed(log, max_bytes)
            assert dict(found) == model.newest()
            assert set(found) <= set(model.history)


def _write(log: Log, transactions: list[tuple[int, list[int], str]], model: Model) -> None:
    for producer_id, keys, outcome in transactions:
        writer = Writer(log, producer_id)
        state = log.producers.get(producer_id)
        if state is not None:
            writer.epoch = state.epoch
            writer.sequence = state.batches[-1].last_sequence + 1 if state.batches else 0
        pairs = [
            (b"key-%d" % key, b"key-%d=%d.%d" % (key, log.log_end_offset, place))
            for place, key in enumerate(keys)
        ]
        writer.write(*(value for _, value in pairs), keys=[key for key, _ in pairs])
        is_commit = outcome.startswith("commit")
        writer.end(commit=is_commit, bump=outcome.endswith("anew"))
        if is_commit:
            model.history += pairs
    assert log.producers.unstable.first_open() is None


def _committed(log: Log, max_bytes: int) -> list[tuple[bytes, bytes]]:
    values = [value for _, value in read_committed(log, max_bytes) if value.startswith(b"key-")]
    return [(value.partition(b"=")[0], value) for value in values]


def test_marker_without_records_is_removed(stage: Stage) -> None:
    append_marker(stage.log, Marker(1, 0, True, 0))
    checkpoint(stage.log)
    Writer(stage.log, 1).write(b"later", keys=[b"k"], transactional=False)
    for pass_number in range(3):
        stage.compact(NOW_MS + pass_number * 2 * RETENTION_MS)
    assert stage.markers() == []
