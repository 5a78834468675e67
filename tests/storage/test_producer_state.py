"""Retries and gaps of idempotent producers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import NOW_MS, header_of, make_batch

from penstock.errors import BrokerError, ErrorCode
from penstock.model import ProducerId
from penstock.records.batch import MAX_SEQUENCE, BatchHeader
from penstock.records.control import Marker
from penstock.storage.producer_state import ProducerStates

DAY_MS = 86_400_000


class Writer:
    """A partition that stores the batches that the producer state accepts."""

    def __init__(self, max_producers: int = 100, expiration_ms: int = DAY_MS) -> None:
        self.states = ProducerStates(max_producers, expiration_ms)
        self.offset = 0

    def write(
        self, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, now_ms: int = NOW_MS
    ) -> int | None:
        """Append a batch; return its offset, for a duplicate the first offset."""
        header = batch_header(sequence, count, producer, epoch)
        earlier = self.states.check(header)
        if earlier is not None:
            return earlier.base_offset
        offset, self.offset = self.offset, self.offset + count
        self.states.record(header, offset, NOW_MS, now_ms)
        return offset

    def refusal(self, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0) -> ErrorCode:
        with pytest.raises(BrokerError) as refused:
            self.states.check(batch_header(sequence, count, producer, epoch))
        return refused.value.code


def batch_header(sequence: int, count: int, producer: int, epoch: int) -> BatchHeader:
    header = header_of(make_batch([b"x"], producer_id=producer, producer_epoch=epoch, base_sequence=0))
    return header._replace(base_sequence=sequence, last_offset_delta=count - 1, record_count=count)


def test_batches_in_sequence_are_accepted() -> None:
    writer = Writer()
    assert [writer.write(0, 3), writer.write(3, 2), writer.write(5)] == [0, 3, 5]


def test_retry_of_any_of_the_last_five_batches_is_recognised() -> None:
    writer = Writer()
    offsets = [writer.write(sequence, 2) for sequence in range(0, 12, 2)]
    for place in range(1, 6):
        assert writer.write(place * 2, 2) == offsets[place]
    assert writer.offset == 12


def test_retry_older_than_five_batches_is_a_duplicate_without_an_offset() -> None:
    writer = Writer()
    for sequence in range(6):
        writer.write(sequence)
    assert writer.refusal(0) is ErrorCode.duplicate_sequence_number


def test_overtaken_batch_that_was_never_stored_is_not_a_duplicate() -> None:
    """The first batch was lost with a fenced leader; the second was sent to the new leader at once."""
    writer = Writer()
    for sequence in range(1, 10):
        writer.write(sequence)
        assert writer.refusal(0) is ErrorCode.out_of_order_sequence_number
    assert writer.refusal(1) is ErrorCode.duplicate_sequence_number


def test_retry_older_than_five_batches_is_a_duplicate_after_a_marker() -> None:
    writer = Writer()
    for sequence in range(3):
        writer.write(sequence)
    writer.states.end_transaction(Marker(ProducerId(1), 0, True, 0), writer.offset, NOW_MS)
    for sequence in range(3, 9):
        writer.write(sequence)
    assert writer.refusal(0) is ErrorCode.duplicate_sequence_number


def test_sequence_gap_gets_out_of_order_sequence_number() -> None:
    writer = Writer()
    writer.write(0)
    assert writer.refusal(2) is ErrorCode.out_of_order_sequence_number


def test_batch_overlapping_stored_sequences_is_out_of_order() -> None:
    writer = Writer()
    writer.write(0, 3)
    assert writer.refusal(1, 5) is ErrorCode.out_of_order_sequence_number
    assert writer.refusal(0, 4) is ErrorCode.out_of_order_sequence_number


def test_refused_batch_does_not_change_producer_state() -> None:
    writer = Writer()
    writer.write(0)
    writer.refusal(7)
    assert writer.write(1) == 1


def test_sequences_wrap_around() -> None:
    writer = Writer()
    writer.write(MAX_SEQUENCE - 1, 2)
    assert writer.write(0) == 2
    assert writer.write(MAX_SEQUENCE - 1, 2) == 0


def test_sequences_may_wrap_around_inside_a_batch() -> None:
    writer = Writer()
    writer.write(MAX_SEQUENCE, 3)
    assert writer.write(2) == 3
    assert writer.write(MAX_SEQUENCE, 3) == 0
    assert writer.refusal(4) is ErrorCode.out_of_order_sequence_number


def test_unknown_producer_may_start_at_any_sequence() -> None:
    writer = Writer()
    assert writer.write(1234) == 0
    assert writer.write(1235) == 1


def test_new_producer_epoch_starts_at_sequence_zero() -> None:
    writer = Writer()
    writer.write(0)
    assert writer.refusal(1, epoch=1) is ErrorCode.out_of_order_sequence_number
    assert writer.write(0, epoch=1) == 1
    assert writer.write(1, epoch=1) == 2


def test_old_producer_epoch_is_fenced() -> None:
    writer = Writer()
    writer.write(0, epoch=5)
    assert writer.refusal(1, epoch=4) is ErrorCode.invalid_producer_epoch


def test_batches_of_an_old_epoch_are_not_duplicates_of_the_new_epoch() -> None:
    writer = Writer()
    writer.write(0)
    assert writer.write(0, epoch=1) == 1
    assert writer.write(0, epoch=1) == 1


def test_longest_idle_producers_are_removed_above_the_limit() -> None:
    writer = Writer(max_producers=3)
    for producer in (1, 2, 3):
        writer.write(0, producer=producer)
    writer.write(1, producer=1)
    writer.write(0, producer=4)
    assert writer.states.get(2) is None
    assert [writer.states.get(producer) is not None for producer in (1, 3, 4)] == [True] * 3


def test_number_of_remembered_producers_is_bounded() -> None:
    writer = Writer(max_producers=10)
    for producer in range(1000):
        writer.write(0, producer=producer)
    assert len(writer.states) == 10


def test_idle_producers_expire_when_new_producers_write() -> None:
    writer = Writer(expiration_ms=1000)
    for producer in range(10):
        writer.write(0, producer=producer, now_ms=NOW_MS)
    writer.write(1, producer=0, now_ms=NOW_MS + 999)
    for producer in range(10, 20):
        writer.write(0, producer=producer, now_ms=NOW_MS + 1000)
    assert [writer.states.get(producer) is not None for producer in range(10)] == [True] + [False] * 9


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=40))
def test_random_writes_and_retries_store_no_sequence_twice(attempts: list[tuple[int, int]]) -> None:
    """Compared with a list of stored batches: a batch is accepted exactly if it is the next, or the first."""
    writer = Writer()
    stored: list[tuple[int, int]] = []
    for sequence, count in attempts:
        expected = None if not stored else sum(stored[-1])
        before, refusal = writer.offset, None
        try:
            writer.write(sequence, count)
        except BrokerError as refused:
            refusal = refused.code
        if refusal is ErrorCode.duplicate_sequence_number:
            assert stored[0][0] <= sequence <= sequence + count - 1 < sum(stored[-1])
        if writer.offset > before:
            assert expected is None or sequence == expected
            stored.append((sequence, count))
        else:
            assert sequence != expected
