"""Member ids in two steps, and the limits of a classic group in members and bytes."""

from __future__ import annotations

from classic_driver import DELAY_MS, SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group import GroupState


def test_new_dynamic_member_gets_member_id_required_and_joins_with_its_id() -> None:
    group = Driver()
    result = group.join(two_step=True)
    assert result.error is ErrorCode.member_id_required
    assert result.member_id
    assert group.state is GroupState.EMPTY
    ticket = group.ask_join(result.member_id, two_step=True)
    group.advance(DELAY_MS)
    assert group.joined(ticket).member_id == result.member_id


def test_pending_member_id_expires_after_the_session_timeout() -> None:
    group = Driver()
    member_id = group.join(two_step=True).member_id
    group.advance(SESSION_MS)
    assert group.join(member_id, two_step=True).error is ErrorCode.unknown_member_id
    assert group.group.next_deadline_ms is None
    assert group.records == []


def test_static_member_joins_without_member_id_required() -> None:
    group = Driver()
    assert group.waits(group.ask_join(instance_id="i", two_step=True))


def test_rebalance_waits_for_pending_members() -> None:
    group = Driver()
    [member] = group.stable()
    pending = group.join(two_step=True).member_id
    assert group.state is GroupState.STABLE, "an id alone disturbs nobody"
    ticket = group.ask_join(member)
    assert group.waits(ticket)
    second = group.ask_join(pending)
    assert group.joined(ticket).generation == group.joined(second).generation == 2


def test_rebalance_continues_when_a_pending_member_expires() -> None:
    group = Driver()
    [member] = group.stable()
    group.join(two_step=True)
    ticket = group.ask_join(member)
    group.advance(SESSION_MS)
    assert group.joined(ticket).generation == 2


def test_rebalance_continues_when_a_pending_member_leaves() -> None:
    group = Driver()
    [member] = group.stable()
    pending = group.join(two_step=True).member_id
    ticket = group.ask_join(member)
    assert group.leave((pending, None)) == (ErrorCode.none,)
    assert group.joined(ticket).generation == 2


def test_pending_member_leaving_a_stable_group_causes_no_rebalance() -> None:
    group = Driver()
    group.stable()
    pending = group.join(two_step=True).member_id
    group.leave((pending, None))
    assert group.state is GroupState.STABLE
    assert group.join(pending).error is ErrorCode.unknown_member_id


def test_pending_member_expiring_in_a_stable_group_causes_no_rebalance() -> None:
    group = Driver()
    group.stable(session_ms=60_000)
    group.join(two_step=True)
    group.advance(SESSION_MS)
    assert group.state is GroupState.STABLE


def test_pending_member_can_neither_sync_nor_heartbeat_nor_commit() -> None:
    group = Driver()
    group.stable()
    pending = group.join(two_step=True).member_id
    assert group.heartbeat(pending, 1) is ErrorCode.unknown_member_id
    assert group.sync(pending, 1).error is ErrorCode.unknown_member_id
    assert group.commit(pending, 1) is ErrorCode.unknown_member_id


def test_static_member_cannot_join_with_a_pending_dynamic_member_id() -> None:
    group = Driver()
    pending = group.join(two_step=True).member_id
    assert group.join(pending, instance_id="i").error is ErrorCode.unknown_member_id
    assert group.waits(group.ask_join(pending))


def test_a_full_group_refuses_new_members() -> None:
    group = Driver(group_max_size=2)
    group.stable(2)
    for options in ({}, {"two_step": True}, {"instance_id": "i"}):
        assert group.join(**options).error is ErrorCode.group_max_size_reached
    assert group.state is GroupState.STABLE


def test_a_full_group_refuses_new_members_while_it_rebalances() -> None:
    group = Driver(group_max_size=2)
    group.ask_join()
    group.ask_join()
    assert group.join().error is ErrorCode.group_max_size_reached
    group.advance(2 * DELAY_MS)
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.join().error is ErrorCode.group_max_size_reached


def test_pending_members_count_against_the_maximum_group_size() -> None:
    group = Driver(group_max_size=2)
    first = group.join(two_step=True).member_id
    second = group.join(two_step=True).member_id
    assert group.join(two_step=True).error is ErrorCode.group_max_size_reached
    group.settle([group.ask_join(first), group.ask_join(second)])


def test_members_of_a_full_group_may_rejoin() -> None:
    group = Driver(group_max_size=2)
    leader, follower = group.stable(2)
    tickets = [group.ask_join(leader), group.ask_join(follower)]
    assert {group.joined(ticket).generation for ticket in tickets} == {2}


def test_static_member_of_a_full_group_may_rejoin_without_its_id() -> None:
    group = Driver(group_max_size=1)
    group.stable_static("i")
    assert group.join(instance_id="i").generation == 1


def test_members_may_rejoin_after_the_maximum_group_size_was_lowered() -> None:
    group = Driver()
    members = group.stable(3)
    group.settings.max_size = 1
    tickets = [group.ask_join(member) for member in members]
    assert {group.joined(ticket).generation for ticket in tickets} == {2}
    assert group.join().error is ErrorCode.group_max_size_reached


def test_full_group_admits_a_member_after_another_has_left() -> None:
    group = Driver(group_max_size=1)
    [member] = group.stable()
    group.leave((member, None))
    group.stable()


def test_total_metadata_of_members_is_limited() -> None:
    group = Driver(group_max_metadata_bytes=1_024)
    group.stable(protocols=(("range", b"x" * 600),))
    refused = group.join(protocols=(("range", b"x" * 600),))
    assert refused.error is ErrorCode.group_max_size_reached
    [member] = [described.member_id for described in group.group.describe().members]
    grown = group.join(member, protocols=(("range", b"x" * 1_100),))
    assert grown.error is ErrorCode.group_max_size_reached
    assert group.state is GroupState.STABLE


def test_member_may_rejoin_with_less_metadata_above_a_lowered_limit() -> None:
    group = Driver()
    [member] = group.stable(protocols=(("range", b"x" * 600),))
    group.settings.max_metadata_bytes = 500
    group.settle([group.ask_join(member, protocols=(("range", b"x" * 550),))])


def test_pending_members_count_against_the_byte_limit() -> None:
    group = Driver(group_max_metadata_bytes=1_024)
    assert group.join(two_step=True, client_id="c" * 400).error is ErrorCode.member_id_required
    assert group.join(two_step=True, client_id="c" * 400).error is ErrorCode.group_max_size_reached
    group.advance(SESSION_MS)
    assert group.join(two_step=True, client_id="c" * 400).error is ErrorCode.member_id_required


def test_assignment_above_the_byte_limit_is_refused_and_the_group_rebalances() -> None:
    group = Driver(group_max_metadata_bytes=1_024)
    ticket = group.ask_join()
    group.advance(DELAY_MS)
    leader = group.joined(ticket).member_id
    result = group.sync(leader, 1, {leader: b"x" * 1_100, "nobody": b""})
    assert result.error is ErrorCode.unknown_server_error
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.records == []
    assert group.join(leader).generation == 2


def test_assignment_for_an_unknown_member_does_not_count_against_the_byte_limit() -> None:
    group = Driver(group_max_metadata_bytes=1_024)
    ticket = group.ask_join()
    group.advance(DELAY_MS)
    leader = group.joined(ticket).member_id
    assert group.sync(leader, 1, {leader: b"x", "nobody": b"x" * 2_000}).assignment == b"x"


def test_ten_thousand_members_that_left_take_no_memory() -> None:
    group = Driver()
    ids = [group.join(two_step=True).member_id for _ in range(10_000)]
    members = group.settle([group.ask_join(member_id) for member_id in ids])
    for member_id in members:
        assert group.heartbeat(member_id, 1) is ErrorCode.none
    for start in range(0, 10_000, 100):
        group.leave(*((member_id, None) for member_id in members[start : start + 100]))
    assert group.state is GroupState.EMPTY
    held = group.group._members
    assert (held.size, held.joining, held.held_bytes, held._supporters) == (0, 0, 0, {})
    assert len(group.group._state._sessions) == 0
    assert len(group.group._state._sessions._heap) <= 64
