"""Runs of refused sequences: which batches have to wait for the retry of an earlier one, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_replica import ME, NOW_MS, Bench, batch

from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch
from penstock.records.batch import MAX_SEQUENCE, BatchHeader
from penstock.replication.in_sync import InSync
from penstock.replication.refused_batches import MAX_RUNS, REMEMBERED_SECONDS, RefusedBatches
from penstock.replication.replica import Replica

ORDERS = ("orders", 0)
NOT_LEADER = ErrorCode.not_leader_or_follower


class SteppedClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds


class Memory:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.batches = RefusedBatches(self.clock)

    def refuse(self, sequence: int, count: int = 1, code: ErrorCode = NOT_LEADER, **header: int) -> None:
        self.batches.remember(ORDERS, header_of(sequence, count, **header), code)

    def cause(self, sequence: int, count: int = 1, **header: int) -> ErrorCode | None:
        error = self.batches.cause(header_of(sequence, count, **header), ORDERS)
        return None if error is None else error.code


def header_of(sequence: int, count: int = 1, producer: int = 7, epoch: int = 0) -> BatchHeader:
    _, header = batch(b"k", producer_id=1, sequence=0)
    return header._replace(
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, last_offset_delta=count - 1
    )


def test_batches_behind_a_refused_one_get_its_error() -> None:
    memory = Memory()
    memory.refuse(10, 5)
    assert [memory.cause(15), memory.cause(16), memory.cause(17, 3)] == [NOT_LEADER] * 3
    assert memory.cause(20) is NOT_LEADER


def test_refused_batch_and_earlier_ones_are_checked_against_the_log() -> None:
    memory = Memory()
    memory.refuse(10)
    assert [memory.cause(10), memory.cause(9), memory.cause(0)] == [None, None, None]


def test_gap_behind_refused_batches_is_checked_against_the_log() -> None:
    memory = Memory()
    memory.refuse(10)
    assert memory.cause(12) is None


def test_refused_batch_affects_only_its_producer_epoch_and_partition() -> None:
    memory = Memory()
    memory.refuse(10)
    assert memory.cause(11, producer=8) is None
    assert memory.cause(11, epoch=1) is None
    assert memory.batches.cause(header_of(11), ("orders", 1)) is None


def test_newer_epoch_replaces_refused_batches_of_the_old_one() -> None:
    memory = Memory()
    memory.refuse(10)
    memory.refuse(0, epoch=1)
    assert memory.cause(1, epoch=1) is NOT_LEADER
    assert memory.cause(11) is None
    memory.refuse(11)
    assert memory.cause(1, epoch=1) is NOT_LEADER


def test_batches_behind_a_refused_one_get_the_error_of_its_last_refusal() -> None:
    memory = Memory()
    memory.refuse(10)
    memory.refuse(10, code=ErrorCode.not_enough_replicas)
    assert memory.cause(11) is ErrorCode.not_enough_replicas


def test_run_stored_by_another_leader_is_replaced_by_the_next_refusal() -> None:
    memory = Memory()
    memory.refuse(10)
    memory.refuse(50)
    assert memory.cause(51) is NOT_LEADER


def test_refusal_of_an_earlier_batch_extends_the_run_of_refused_batches() -> None:
    memory = Memory()
    memory.refuse(11)
    memory.refuse(10)
    assert [memory.cause(10), memory.cause(11), memory.cause(12)] == [None, NOT_LEADER, NOT_LEADER]


def test_run_of_refused_batches_continues_over_a_sequence_wrap() -> None:
    memory = Memory()
    memory.refuse(MAX_SEQUENCE - 1, 2)
    assert [memory.cause(0), memory.cause(1)] == [NOT_LEADER, NOT_LEADER]
    assert memory.cause(MAX_SEQUENCE - 1) is None
    memory.batches.on_append(header_of(MAX_SEQUENCE - 1, 2), ORDERS)
    assert len(memory.batches) == 0


@pytest.mark.parametrize(("sequence", "epoch", "left"), [(9, 0, 1), (10, 0, 0), (11, 0, 0), (0, 1, 0)])
def test_stored_batch_ends_the_run_of_refused_batches_unless_it_is_earlier(
    sequence: int, epoch: int, left: int
) -> None:
    memory = Memory()
    memory.refuse(10)
    memory.batches.on_append(header_of(sequence, epoch=epoch), ORDERS)
    assert len(memory.batches) == left


def test_run_of_refused_batches_expires_unless_its_first_batch_is_retried() -> None:
    memory = Memory()
    memory.refuse(10)
    memory.clock.seconds = REMEMBERED_SECONDS - 1
    memory.refuse(10)
    memory.clock.seconds += REMEMBERED_SECONDS - 1
    assert memory.cause(11) is NOT_LEADER
    assert memory.cause(11) is NOT_LEADER
    memory.clock.seconds += REMEMBERED_SECONDS + 1
    assert memory.cause(11) is None


def test_retry_of_a_later_batch_does_not_prolong_a_run_of_refused_batches() -> None:
    memory = Memory()
    memory.refuse(10, 2)
    memory.clock.seconds = REMEMBERED_SECONDS - 1
    memory.refuse(11)
    memory.clock.seconds += 2
    assert memory.cause(11) is None


def test_oldest_runs_of_refused_batches_are_dropped_above_the_limit() -> None:
    memory = Memory()
    for producer in range(MAX_RUNS + 50):
        memory.refuse(0, producer=producer)
    assert len(memory.batches) == MAX_RUNS
    assert memory.cause(1, producer=49) is None
    assert memory.cause(1, producer=50) is NOT_LEADER


def test_refused_batches_of_invalid_topic_names_are_not_remembered() -> None:
    memory = Memory()
    memory.batches.remember(("n" * 250, 0), header_of(0), ErrorCode.unknown_topic_or_partition)
    memory.batches.remember(("n" * 249, 0), header_of(0), ErrorCode.unknown_topic_or_partition)
    assert len(memory.batches) == 1


def test_refused_batches_without_a_producer_id_are_not_remembered() -> None:
    memory = Memory()
    memory.refuse(-1, producer=-1)
    assert len(memory.batches) == 0


# --- with a log


def lead(replica: Replica, epoch: int) -> None:
    in_sync = InSync(ME, (ME,), frozenset((ME,)), 0, replica.log.log_end_offset, {}, NOW_MS)
    replica.become_leader(LeaderEpoch(epoch), in_sync)


def send(bench: Bench, replica: Replica, sequence: int) -> int | ErrorCode:
    """Append as Produce does."""
    content, header = batch(b"k", producer_id=7, sequence=sequence)
    try:
        return replica.append_as_leader(content, header, NOW_MS).base_offset
    except BrokerError as error:
        bench.refused.remember(ORDERS, header, error.code)
        return error.code


@pytest.mark.parametrize("stored", [0, 1, 3])
async def test_pipelined_batches_around_a_leader_change_are_stored_in_sequence(
    tmp_path: Path, stored: int
) -> None:
    """A log that does not know the producer would take a later batch for the first one."""
    bench = Bench(tmp_path)
    replica = bench.replica()
    for sequence in range(stored):
        assert send(bench, replica, sequence) == sequence
    replica.stop_leading()
    assert send(bench, replica, stored) is NOT_LEADER
    lead(replica, 2)
    assert [send(bench, replica, stored + 1), send(bench, replica, stored + 2)] == [NOT_LEADER] * 2
    again = [send(bench, replica, sequence) for sequence in range(stored, stored + 5)]
    assert again == list(range(stored, stored + 5))
    assert send(bench, replica, stored + 6) is ErrorCode.out_of_order_sequence_number


async def test_batch_in_sequence_is_stored_despite_refused_ones(tmp_path: Path) -> None:
    """Another broker led meanwhile, and stored the batches that were refused here."""
    bench = Bench(tmp_path)
    replica = bench.replica()
    assert send(bench, replica, 0) == 0
    _, header = batch(b"k", producer_id=7, sequence=0)
    bench.refused.remember(ORDERS, header, NOT_LEADER)
    assert send(bench, replica, 1) == 1
    assert len(bench.refused) == 0
