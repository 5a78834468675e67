"""The model of views, on claims about a source whose replicas are compacted at different times."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.records.iteration import Record
from simulation.models.history import InvariantViolated
from simulation.models.view_model import Claim, ViewModel

ALL = 'headers.region == "eu"'


def record(offset: int, key: str) -> Record:
    return Record(offset, 0, key.encode(), b"value", (("region", b"eu"),))


SOURCE = [record(0, "a"), record(1, "b"), record(2, "a")]


def check(shown: Sequence[Record], *, is_compacted: bool) -> None:
    values = tuple((each.offset, each.value or b"") for each in shown)
    claim = Claim("view", ("source", 0), 0, 2, values, (ALL,))
    ViewModel(may_lose=is_compacted).check_claim(claim, 0, SOURCE)


def test_a_complete_response_is_right_with_and_without_compaction() -> None:
    check(SOURCE[:2], is_compacted=False)
    check(SOURCE[:2], is_compacted=True)


def test_a_replica_may_have_removed_a_replaced_record_earlier_than_others() -> None:
    check(SOURCE[1:2], is_compacted=True)


@pytest.mark.parametrize(("shown", "is_compacted"), [(SOURCE[1:2], False), (SOURCE[:1], True)])
def test_a_missing_record_is_a_violation(shown: list[Record], is_compacted: bool) -> None:
    with pytest.raises(InvariantViolated, match="missing"):
        check(shown, is_compacted=is_compacted)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_records_in_another_order_are_a_violation(is_compacted: bool) -> None:
    with pytest.raises(InvariantViolated):
        check([SOURCE[1], SOURCE[0]], is_compacted=is_compacted)
