"""SyncGroup of classic groups: assignments, waits and refusals."""

from __future__ import annotations

from typing import Any

from classic_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver, Ticket

from penstock.errors import ErrorCode
from penstock.groups.group import GroupState


def joined(group: Driver, members: int, **options: Any) -> list[str]:
    """Members that have joined and not synced; the first is the leader."""
    tickets = [group.ask_join(**options) for _ in range(members)]
    group.advance(members * DELAY_MS)
    assert group.state is GroupState.COMPLETING_REBALANCE
    return [group.joined(ticket).member_id for ticket in tickets]


def errors(group: Driver, *tickets: Ticket) -> set[ErrorCode]:
    return {group.synced(ticket).error for ticket in tickets}


def test_sync_of_a_follower_waits_for_the_assignment_of_the_leader() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    waiting = group.ask_sync(follower, 1)
    assert group.waits(waiting)
    assert group.sync(leader, 1, {leader: b"L", follower: b"F"}).assignment == b"L"
    result = group.synced(waiting)
    assert (result.error, result.assignment) == (ErrorCode.none, b"F")
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert group.state is GroupState.STABLE


def test_assignment_is_appended_once_when_the_leader_syncs() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    assert group.records == []
    group.ask_sync(leader, 1, {leader: b"L", follower: b"F"})
    group.ask_sync(follower, 1)
    [value] = group.records
    assert (value.generation, value.leader, value.protocol_type, value.protocol_name) == (
        1,
        leader,
        "consumer",
        "range",
    )
    assert {(member.member_id, member.assignment, member.subscription) for member in value.members} == {
        (leader, b"L", b"meta"),
        (follower, b"F", b"meta"),
    }
    assert value.state_timestamp_ms == group.wall_ms()


def test_follower_syncing_after_the_leader_gets_its_assignment_each_time() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    group.ask_sync(leader, 1, {leader: b"L", follower: b"F"})
    assert group.sync(follower, 1).assignment == b"F"
    assert group.sync(follower, 1).assignment == b"F"


def test_assignment_sent_by_a_follower_is_ignored() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    assert group.waits(group.ask_sync(follower, 1, {leader: b"forged", follower: b"everything"}))
    group.ask_sync(leader, 1, {leader: b"L", follower: b"F"})
    assert group.sync(follower, 1, {follower: b"everything"}).assignment == b"F"
    assert group.sync(leader, 1, {leader: b"once more"}).assignment == b"L"


def test_assignments_of_unknown_members_are_ignored_and_missing_ones_empty() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    group.ask_sync(leader, 1, {"forged": b"x", leader: b"L"})
    assert group.sync(follower, 1).assignment == b""
    assert {member.member_id for member in group.records[-1].members} == {leader, follower}


def test_sync_of_an_unknown_member_or_empty_group_is_refused() -> None:
    group = Driver()
    assert group.sync("forged", 0).error is ErrorCode.unknown_member_id
    joined(group, 1)
    assert group.sync("forged", 1, {"forged": b"x"}).error is ErrorCode.unknown_member_id
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_sync_of_another_generation_is_refused() -> None:
    group = Driver()
    [leader] = joined(group, 1)
    for generation in (0, 2, -1, 2**31 - 1):
        assert group.sync(leader, generation, {leader: b"x"}).error is ErrorCode.illegal_generation
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_sync_of_another_protocol_is_refused() -> None:
    group = Driver()
    [leader] = joined(group, 1)
    assert group.sync(leader, 1, protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert group.sync(leader, 1, protocol_name="sticky").error is ErrorCode.inconsistent_group_protocol
    result = group.sync(leader, 1, protocol_type="consumer", protocol_name="range")
    assert result.error is ErrorCode.none


def test_a_sync_while_members_join_gets_rebalance_in_progress() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.ask_join(leader)
    assert group.sync(follower, 1).error is ErrorCode.rebalance_in_progress


def test_waiting_syncs_get_rebalance_in_progress_when_a_member_joins() -> None:
    group = Driver()
    _, second, third = joined(group, 3)
    waiting = [group.ask_sync(second, 1), group.ask_sync(third, 1)]
    group.ask_join()
    assert errors(group, *waiting) == {ErrorCode.rebalance_in_progress}
    assert group.state is GroupState.PREPARING_REBALANCE


def test_waiting_sync_of_a_leaving_member_gets_a_response() -> None:
    group = Driver()
    _, follower, _ = joined(group, 3)
    waiting = group.ask_sync(follower, 1)
    group.leave((follower, None))
    assert errors(group, waiting) == {ErrorCode.unknown_member_id}


def test_repeated_sync_replaces_the_waiting_one() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    first = group.ask_sync(follower, 1)
    second = group.ask_sync(follower, 1)
    assert errors(group, first) == {ErrorCode.rebalance_in_progress}
    group.ask_sync(leader, 1, {follower: b"F"})
    assert group.synced(second).assignment == b"F"


def test_a_member_that_waits_for_its_assignment_needs_no_heartbeat() -> None:
    group = Driver()
    leader, follower = joined(group, 2, session_ms=6_000)
    waiting = group.ask_sync(follower, 1)
    for _ in range(9):
        group.advance(5_999)
        assert group.heartbeat(leader, 1) is ErrorCode.none
    group.ask_sync(leader, 1, {follower: b"F"})
    assert group.synced(waiting).assignment == b"F"
    group.advance(5_999)
    assert group.heartbeat(follower, 1) is ErrorCode.none


def test_leader_that_never_assigns_is_removed_after_the_rebalance_timeout() -> None:
    group = Driver()
    leader, follower = joined(group, 2, session_ms=600_000)
    waiting = group.ask_sync(follower, 1)
    group.advance(REBALANCE_MS - 2 * DELAY_MS - 1)
    assert group.waits(waiting)
    group.advance(2 * DELAY_MS + 1)
    assert errors(group, waiting) == {ErrorCode.rebalance_in_progress}
    assert group.heartbeat(leader, 1) is ErrorCode.unknown_member_id
    assert group.join(follower).leader == follower


def test_follower_without_a_sync_is_removed_from_a_stable_group() -> None:
    group = Driver()
    leader, follower = joined(group, 2, session_ms=600_000)
    group.ask_sync(leader, 1, {leader: b"L"})
    group.advance(REBALANCE_MS)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id
    assert group.join(leader).generation == 2


def test_group_without_syncs_becomes_empty() -> None:
    group = Driver()
    joined(group, 3, session_ms=600_000)
    group.advance(REBALANCE_MS)
    assert group.state is GroupState.EMPTY
    assert group.group.next_deadline_ms is None


def test_no_member_is_removed_after_all_have_synced() -> None:
    group = Driver()
    members = group.stable(3, session_ms=600_000)
    group.advance(REBALANCE_MS * 2)
    assert group.state is GroupState.STABLE
    assert {group.heartbeat(member, 1) for member in members} == {ErrorCode.none}


def test_the_wait_for_syncs_begins_anew_with_each_generation() -> None:
    group = Driver()
    first, second = joined(group, 2, session_ms=600_000)
    group.advance(REBALANCE_MS - 2 * DELAY_MS - 10)
    other = (("range", b"other"),)
    again = group.ask_join(second, protocols=other, session_ms=600_000)
    assert group.join(first, session_ms=600_000).generation == group.joined(again).generation == 2
    group.advance(REBALANCE_MS - 1)
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_leader_whose_session_ends_before_it_assigned_is_replaced() -> None:
    group = Driver()
    leader, follower = joined(group, 2)
    waiting = group.ask_sync(follower, 1)
    group.advance(SESSION_MS)
    assert errors(group, waiting) == {ErrorCode.rebalance_in_progress}
    assert group.heartbeat(leader, 1) is ErrorCode.unknown_member_id
    assert group.join(follower).leader == follower
