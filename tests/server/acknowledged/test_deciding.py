"""Decision of `retention.acknowledged`: the lowest position counts, and everything unknown blocks."""

from __future__ import annotations

import pytest

from penstock.server.acknowledged.deciding import UNKNOWN, DeletionVerdict, SettledPosition, decide


def test_lowest_position_of_all_groups_is_the_new_start() -> None:
    verdict = decide(
        [SettledPosition("a", 7), SettledPosition("b", 5), SettledPosition("c", 9)], ("b",), 2, 20
    )
    assert verdict == DeletionVerdict(5, "group b has settled records up to offset 5")


def test_deletion_stops_at_the_given_limit() -> None:
    assert decide([SettledPosition("a", 7)], (), 2, 6) == DeletionVerdict(6)


def test_log_start_does_not_move_back() -> None:
    assert decide([SettledPosition("a", 1)], (), 2, 6).start_offset == 2


@pytest.mark.parametrize(
    ("positions", "queues", "reason"),
    [
        (None, (), "coordinators"),
        ([], (), "no queue or group"),
        ([], ("q",), "group q is unknown"),
        ([SettledPosition("a", 7)], ("q",), "group q is unknown"),
        ([SettledPosition("a", 7), SettledPosition("b", UNKNOWN)], (), "group b is unknown"),
    ],
)
def test_unknown_position_blocks_deletion(
    positions: list[SettledPosition] | None, queues: tuple[str, ...], reason: str
) -> None:
    verdict = decide(positions, queues, 2, 20)
    assert verdict.start_offset == 2
    assert reason in verdict.reason


def test_group_without_unsettled_records_is_not_named_as_a_reason() -> None:
    assert decide([SettledPosition("a", 20)], (), 2, 20) == DeletionVerdict(20)


def test_reason_names_some_of_many_groups_and_counts_the_others() -> None:
    reason = decide([SettledPosition(f"g{number}", 3) for number in range(9)], (), 0, 20).reason
    assert "and 4 more" in reason
