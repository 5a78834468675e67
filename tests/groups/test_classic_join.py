"""JoinGroup of classic groups: which members are admitted, and when and how a join gets its response."""

from __future__ import annotations

import pytest
from classic_driver import DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.classic.state_machine import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock.groups.group import GroupState


def test_the_first_member_waits_for_the_initial_delay_and_leads() -> None:
    group = Driver()
    ticket = group.ask_join()
    group.advance(DELAY_MS - 1)
    assert group.waits(ticket)
    before = group.state
    assert before is GroupState.PREPARING_REBALANCE
    group.advance(1)
    result = group.joined(ticket)
    assert (result.error, result.generation, result.leader) == (ErrorCode.none, 1, result.member_id)
    assert result.members == ((result.member_id, None, b"meta"),)
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_first_join_without_an_initial_delay_is_answered_at_once() -> None:
    group = Driver(group_initial_rebalance_delay_ms=0)
    assert group.join().generation == 1


def test_only_the_leaders_join_response_lists_the_members() -> None:
    group = Driver()
    tickets = [group.ask_join() for _ in range(3)]
    group.advance(DELAY_MS * 2)
    results = [group.joined(ticket) for ticket in tickets]
    assert len({result.leader for result in results}) == 1
    for result in results:
        assert len(result.members) == (3 if result.member_id == result.leader else 0)


def test_initial_delay_is_extended_by_joins_up_to_the_rebalance_timeout() -> None:
    group = Driver()
    tickets = [group.ask_join(rebalance_ms=10_000)]
    for _ in range(9):
        group.advance(1_000)
        assert group.waits(tickets[0])
        tickets.append(group.ask_join(rebalance_ms=10_000))
    group.advance(1_000)
    assert {group.joined(ticket).generation for ticket in tickets} == {1}


def test_initial_delay_is_not_extended_without_joins() -> None:
    group = Driver()
    first, second = group.ask_join(), group.ask_join()
    group.advance(DELAY_MS)
    assert group.waits(first)
    group.advance(DELAY_MS)
    assert not group.waits(first)
    assert not group.waits(second)


def test_initial_delay_applies_even_if_the_rebalance_timeout_is_shorter() -> None:
    group = Driver()
    first = group.ask_join(rebalance_ms=100)
    group.ask_join(rebalance_ms=100)
    group.advance(DELAY_MS - 1)
    assert group.waits(first)
    group.advance(1)
    assert group.joined(first).generation == 1


@pytest.mark.parametrize("session_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    group = Driver()
    assert group.join(session_ms=session_ms).error is ErrorCode.invalid_session_timeout
    assert group.state is GroupState.EMPTY
    assert group.group.next_deadline_ms is None


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_a_session_timeout_on_the_bound_is_accepted(session_ms: int) -> None:
    group = Driver()
    assert group.waits(group.ask_join(session_ms=session_ms))


def test_join_without_protocols_gets_inconsistent_protocol_in_an_empty_group() -> None:
    group = Driver()
    assert group.join(protocol_type="").error is ErrorCode.inconsistent_group_protocol
    assert group.join(protocols=()).error is ErrorCode.inconsistent_group_protocol


def test_join_without_a_common_protocol_gets_inconsistent_group_protocol() -> None:
    group = Driver()
    group.stable()
    assert group.join(protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert group.join(protocols=(("sticky", b""),)).error is ErrorCode.inconsistent_group_protocol
    assert group.state is GroupState.STABLE


def test_the_last_common_protocol_cannot_be_dropped_by_a_member() -> None:
    group = Driver()
    group.stable(protocols=(("range", b""), ("sticky", b"")))
    leader = group.group.describe().members[0].member_id
    only_range = group.ask_join(protocols=(("range", b""),))
    assert group.waits(only_range)
    assert group.join(leader, protocols=(("sticky", b""),)).error is ErrorCode.inconsistent_group_protocol


def test_an_empty_group_may_become_one_of_another_protocol_type() -> None:
    group = Driver()
    [member] = group.stable()
    group.leave((member, None))
    group.stable(protocol_type="connect", protocols=(("default", b"x"),))
    assert group.group.describe().protocol_type == "connect"


def test_most_preferred_common_protocol_is_selected() -> None:
    group = Driver()
    group.ask_join(protocols=(("range", b"r1"), ("sticky", b"s1"), ("own", b"o1")))
    group.ask_join(protocols=(("own", b"o2"), ("sticky", b"s2"), ("range", b"r2")))
    last = group.ask_join(protocols=(("sticky", b"s3"), ("range", b"r3")))
    group.advance(3 * DELAY_MS)
    assert group.joined(last).protocol_name == "sticky"


def test_a_protocol_named_twice_counts_once_with_its_first_metadata() -> None:
    group = Driver()
    ticket = group.ask_join(protocols=(("range", b"1"), ("sticky", b"3"), ("range", b"2")))
    other = group.ask_join(protocols=(("sticky", b""), ("own", b"")))
    group.advance(2 * DELAY_MS)
    assert group.joined(ticket).protocol_name == "sticky"
    assert group.joined(other).error is ErrorCode.none
    assert group.join(protocols=(("range", b""),)).error is ErrorCode.inconsistent_group_protocol
    assert group.group.protocols_of(group.joined(ticket).member_id) == (("range", b"1"), ("sticky", b"3"))


def test_invented_member_id_is_unknown() -> None:
    group = Driver()
    assert group.join("forged").error is ErrorCode.unknown_member_id
    group.stable()
    assert group.join("forged").error is ErrorCode.unknown_member_id
    assert group.state is GroupState.STABLE


def test_follower_rejoining_a_stable_group_unchanged_keeps_its_generation() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    result = group.join(follower)
    assert (result.error, result.generation, result.leader, result.members) == (ErrorCode.none, 1, leader, ())
    assert group.state is GroupState.STABLE


def test_a_leader_that_rejoins_a_stable_group_forces_a_rebalance() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    ticket = group.ask_join(leader)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(follower, 1) is ErrorCode.rebalance_in_progress
    other = group.ask_join(follower)
    assert group.joined(ticket).generation == group.joined(other).generation == 2
    assert group.joined(ticket).leader == leader


def test_a_follower_that_rejoins_with_other_metadata_forces_a_rebalance() -> None:
    group = Driver()
    _, follower = group.stable(2)
    assert group.waits(group.ask_join(follower, protocols=(("range", b"other"),)))
    assert group.state is GroupState.PREPARING_REBALANCE


def test_member_rejoining_unchanged_before_its_sync_gets_the_same_response() -> None:
    group = Driver()
    first, second = group.ask_join(), group.ask_join()
    group.advance(2 * DELAY_MS)
    for ticket in (first, second):
        result = group.joined(ticket)
        assert group.join(result.member_id) == result
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_rejoin_with_other_metadata_before_the_sync_starts_a_rebalance() -> None:
    group = Driver()
    first, second = group.ask_join(), group.ask_join()
    group.advance(2 * DELAY_MS)
    leader, follower = group.joined(first).member_id, group.joined(second).member_id
    waiting_sync = group.ask_sync(follower, 1)
    assert group.waits(waiting_sync)
    again = group.ask_join(follower, protocols=(("range", b"other"),))
    assert group.synced(waiting_sync).error is ErrorCode.rebalance_in_progress
    assert group.waits(again)
    assert group.join(leader).generation == 2
    assert group.joined(again).generation == 2


def test_repeated_join_replaces_the_waiting_one() -> None:
    group = Driver()
    leader, _ = group.stable(2)
    first = group.ask_join(leader)
    second = group.ask_join(leader)
    assert group.joined(first).error is ErrorCode.rebalance_in_progress
    assert group.waits(second)
    group.advance(REBALANCE_MS)
    assert group.joined(second).generation == 2


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    group = Driver()
    leader, follower = group.stable(2, session_ms=REBALANCE_MS * 2)
    ticket = group.ask_join()
    group.advance(REBALANCE_MS - 1)
    assert group.waits(ticket)
    group.advance(1)
    result = group.joined(ticket)
    assert result.leader == result.member_id
    assert [member for member, _, _ in result.members] == [result.member_id]
    assert group.heartbeat(leader, 1) is ErrorCode.unknown_member_id
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id


def test_rebalance_waits_for_the_longest_rebalance_timeout_of_its_members() -> None:
    group = Driver()
    first = group.ask_join(rebalance_ms=5_000, session_ms=600_000)
    second = group.ask_join(rebalance_ms=90_000, session_ms=600_000)
    group.settle([first, second])
    ticket = group.ask_join(rebalance_ms=1_000)
    group.advance(89_999)
    assert group.waits(ticket)
    group.advance(1)
    assert group.joined(ticket).generation == 2


def test_a_new_leader_is_elected_when_the_old_one_does_not_rejoin() -> None:
    group = Driver()
    _, follower = group.stable(2, session_ms=REBALANCE_MS * 2)
    ticket = group.ask_join(follower, protocols=(("range", b"other"),))
    group.advance(REBALANCE_MS)
    assert group.joined(ticket).leader == follower


def test_a_member_that_waits_for_a_rebalance_needs_no_heartbeat() -> None:
    group = Driver()
    leader, _ = group.stable(2, session_ms=6_000)
    ticket = group.ask_join(leader, session_ms=6_000, rebalance_ms=REBALANCE_MS)
    group.advance(5_999)
    assert group.waits(ticket)
    group.advance(1)
    assert group.joined(ticket).generation == 2, (
        "the silent follower's session has ended, the leader's has not"
    )


def test_a_new_member_waits_five_minutes_for_its_first_generation_and_no_longer() -> None:
    group = Driver()
    group.stable(session_ms=1_800_000, rebalance_ms=1_800_000)
    ticket = group.ask_join()
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert group.waits(ticket)
    group.advance(1)
    assert group.joined(ticket).error is ErrorCode.unknown_member_id
    assert len(group.group.describe().members) == 1


def test_after_its_first_generation_a_new_member_has_its_own_session_timeout() -> None:
    group = Driver()
    group.stable()
    group.advance(SESSION_MS - 1)
    before = group.state
    assert before is GroupState.STABLE
    group.advance(1)
    assert group.state is GroupState.EMPTY


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_group_with_an_invalid_rebalance_timeout_removes_its_absent_member(rebalance_ms: int) -> None:
    group = Driver()
    [member] = group.stable_static("i", rebalance_ms=rebalance_ms)
    group.take(group.group.prepare_rebalance(group.now_ms))
    group.advance(100)
    before = group.state
    assert before is GroupState.PREPARING_REBALANCE
    group.advance(SESSION_MS)
    assert group.state is GroupState.EMPTY
    assert member not in {described.member_id for described in group.group.describe().members}


def test_description_has_client_id_and_host_of_the_last_join() -> None:
    group = Driver()
    [member] = group.stable(client_id="before")
    group.settle([group.ask_join(member, client_id="after")])
    assert group.group.describe().members[0].client_id == "after"
    assert group.group.protocols_of(member) == RANGE
