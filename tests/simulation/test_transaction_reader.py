"""Reads of committed data, and the check of copiers."""

from __future__ import annotations

import pytest

from penstock.records.building import NewRecord, build_batch
from penstock.records.control import AbortedTransaction, build_marker
from penstock.wire.fetch import FetchResult
from simulation.models.history import InvariantViolated
from simulation.transactions.copier import Copies
from simulation.transactions.transaction_reader import readable

SOURCE, TARGET = ("ledger-0", 0), ("ledger-1", 0)


def batch(offset: int, value: bytes, producer_id: int = -1) -> bytes:
    record = NewRecord(None, value, 0)
    is_transactional = producer_id >= 0
    return bytes(
        build_batch(
            [record],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=offset if is_transactional else -1,
            transactional=is_transactional,
        )
    )


def abort_marker(offset: int, producer_id: int) -> bytes:
    marker = build_marker(producer_id, 0, False, 0, 0)
    marker[:8] = offset.to_bytes(8, "big")
    return bytes(marker)


def result(*batches: bytes, stable: int = 10) -> FetchResult:
    return FetchResult(
        0,
        high_watermark=10,
        last_stable_offset=stable,
        aborted_transactions=[AbortedTransaction(7, 1)],
        records=b"".join(batches),
    )


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    batches = (
        batch(0, b"plain"),
        batch(1, b"aborted", 7),
        batch(2, b"other", 8),
        abort_marker(3, 7),
        batch(4, b"next", 7),
    )
    end, shown = readable(SOURCE, result(*batches), 0, is_committed=True)
    assert end == 5
    assert shown == [(0, b"plain"), (2, b"other"), (4, b"next")]
    _, everything = readable(SOURCE, result(*batches), 0, is_committed=False)
    assert everything == [(0, b"plain"), (1, b"aborted"), (2, b"other"), (4, b"next")]


def test_records_above_the_last_stable_offset_are_not_shown() -> None:
    with pytest.raises(InvariantViolated, match=r"^I8: "):
        readable(SOURCE, result(batch(0, b"a"), batch(1, b"b"), stable=1), 0, is_committed=True)


def test_no_offset_is_skipped() -> None:
    with pytest.raises(InvariantViolated, match=r"^I5: "):
        readable(SOURCE, result(batch(0, b"a"), batch(2, b"b")), 0, is_committed=True)


@pytest.fixture
def copies() -> Copies:
    copies = Copies("copiers", SOURCE)
    copies.of = {b"copy of a": b"a", b"again": b"a", b"copy of b": b"b"}
    return copies


def test_records_before_the_offset_are_copied_once(copies: Copies) -> None:
    sources = [(0, b"a"), (1, b"b")]
    copies.check(1, {SOURCE: sources, TARGET: [(0, b"copy of a")]})
    copies.check(2, {SOURCE: sources, TARGET: [(0, b"copy of a"), (1, b"copy of b")]})


@pytest.mark.parametrize(
    "copied", [[], [(0, b"copy of a"), (1, b"again")], [(0, b"copy of a"), (1, b"copy of b")]]
)
def test_missing_doubled_and_early_copies_are_violations(
    copies: Copies, copied: list[tuple[int, bytes]]
) -> None:
    with pytest.raises(InvariantViolated, match=r"^I7: "):
        copies.check(1, {SOURCE: [(0, b"a"), (1, b"b")], TARGET: copied})
