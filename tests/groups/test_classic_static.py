"""Static members of classic groups (KIP-345, KIP-814): restarts without a rebalance, and fencing."""

from __future__ import annotations

import pytest
from classic_driver import DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.consumer_protocol import Subscription, encode_subscription
from penstock.groups.group import GroupState


def subscription(*topics: str, owned: dict[str, frozenset[int]] | None = None) -> bytes:
    return encode_subscription(Subscription(1, frozenset(topics), owned or {}))


def test_a_follower_that_comes_back_without_its_id_keeps_its_assignment() -> None:
    group = Driver()
    leader, follower = group.stable_static("a", "b")
    result = group.join(instance_id="b")
    assert result.member_id not in (follower, leader)
    assert (result.error, result.generation, result.leader) == (ErrorCode.none, 1, leader)
    assert (result.members, result.skip_assignment) == ((), False)
    assert group.state is GroupState.STABLE
    assert group.sync(result.member_id, 1, instance_id="b").assignment == follower.encode()


def test_the_new_id_of_a_static_member_is_written() -> None:
    group = Driver()
    leader, follower = group.stable_static("a", "b")
    new_id = group.join(instance_id="b").member_id
    value = group.records[-1]
    assert {(m.member_id, m.instance_id, m.assignment) for m in value.members} == {
        (leader, "a", leader.encode()),
        (new_id, "b", follower.encode()),
    }
    group.restart()
    assert group.heartbeat(new_id, 1, "b") is ErrorCode.none
    assert group.heartbeat(follower, 1, "b") is ErrorCode.fenced_instance_id


def test_a_returning_leader_is_asked_to_skip_the_assignment() -> None:
    group = Driver()
    group.stable_static("a", "b")
    result = group.join(instance_id="a")
    assert result.leader == result.member_id
    assert result.skip_assignment
    assert {instance_id for _, instance_id, _ in result.members} == {"a", "b"}
    assert group.sync(result.member_id, 1, {}).assignment == b"a-1"
    assert group.waits(group.ask_join(result.member_id, instance_id="a")), (
        "it leads: it may force a rebalance"
    )


def test_returning_leader_without_skip_assignment_is_answered_as_a_follower() -> None:
    group = Driver()
    leader, _ = group.stable_static("a", "b")
    result = group.join(instance_id="a", skips=False)
    assert result.leader == leader != result.member_id
    assert (result.members, result.skip_assignment) == ((), False)


def test_previous_member_id_of_an_instance_is_fenced_in_every_request() -> None:
    group = Driver()
    _, old = group.stable_static("a", "b")
    group.join(instance_id="b")
    fenced = ErrorCode.fenced_instance_id
    assert group.heartbeat(old, 1, "b") is fenced
    assert group.sync(old, 1, instance_id="b").error is fenced
    assert group.join(old, instance_id="b").error is fenced
    assert group.commit(old, 1, "b") is fenced
    assert group.leave((old, "b")) == (fenced,)
    assert group.heartbeat(old, 1) is ErrorCode.unknown_member_id
    assert group.state is GroupState.STABLE


def test_waiting_join_is_fenced_by_a_later_join_of_its_instance() -> None:
    group = Driver()
    first = group.ask_join(instance_id="a")
    second = group.ask_join(instance_id="a")
    assert group.joined(first).error is ErrorCode.fenced_instance_id
    group.advance(2 * DELAY_MS)
    assert group.joined(second).error is ErrorCode.none
    assert len(group.joined(second).members) == 1


def test_waiting_sync_is_fenced_by_a_later_join_of_its_instance() -> None:
    group = Driver()
    tickets = [group.ask_join(instance_id=instance_id) for instance_id in "ab"]
    group.advance(2 * DELAY_MS)
    leader, follower = (group.joined(ticket).member_id for ticket in tickets)
    waiting = group.ask_sync(follower, 1)
    again = group.ask_join(instance_id="b")
    assert group.synced(waiting).error is ErrorCode.fenced_instance_id
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.join(leader, instance_id="a").generation == group.joined(again).generation == 2


def test_a_static_member_that_comes_back_during_a_rebalance_is_waited_for_no_longer() -> None:
    group = Driver()
    leader, _ = group.stable_static("a", "b")
    first = group.ask_join(leader, instance_id="a")
    second = group.ask_join(instance_id="b")
    assert group.joined(first).generation == group.joined(second).generation == 2


def test_static_member_that_changes_the_selected_protocol_forces_a_rebalance() -> None:
    group = Driver()
    both = (("range", b""), ("sticky", b""))
    group.stable_static("a", protocols=both)
    result = group.join(instance_id="a", protocols=(("sticky", b""), ("range", b"")))
    assert (result.generation, result.protocol_name) == (2, "sticky")


def test_a_static_member_that_wants_other_topics_forces_a_rebalance() -> None:
    group = Driver()
    group.stable_static("a", "b", protocols=(("range", subscription("t")),))
    assert group.waits(group.ask_join(instance_id="b", protocols=(("range", subscription("t", "u")),)))
    assert group.state is GroupState.PREPARING_REBALANCE


def test_static_member_without_owned_partitions_causes_no_rebalance() -> None:
    group = Driver()
    owned = {"t": frozenset({1, 2})}
    group.stable_static("a", "b", protocols=(("coop", subscription("t", owned=owned)),))
    result = group.join(instance_id="b", protocols=(("coop", subscription("t")),))
    assert (result.error, result.generation) == (ErrorCode.none, 1)


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_unreadable_metadata_of_a_static_member_forces_no_rebalance(protocol_type: str) -> None:
    group = Driver()
    group.stable_static("a", protocol_type=protocol_type, protocols=(("p", b"before"),))
    result = group.join(instance_id="a", protocol_type=protocol_type, protocols=(("p", b"after"),))
    assert result.generation == 1
    assert group.records[-1].members[0].subscription == b"after"


def test_static_members_that_do_not_rejoin_stay_in_the_group() -> None:
    group = Driver()
    _, _absent = group.stable_static("a", "b", session_ms=REBALANCE_MS * 3)
    first = group.group.describe().members[0].member_id
    ticket = group.ask_join(first, instance_id="a", session_ms=REBALANCE_MS * 3)
    group.advance(REBALANCE_MS)
    result = group.joined(ticket)
    assert result.generation == 2
    assert {instance_id for _, instance_id, _ in result.members} == {"a", "b"}


def test_group_of_absent_static_members_waits_for_a_rejoin_or_session_end() -> None:
    group = Driver()
    group.stable_static("a", "b", session_ms=REBALANCE_MS * 3)
    group.take(group.group.prepare_rebalance(group.now_ms))
    group.advance(REBALANCE_MS * 2)
    assert group.state is GroupState.PREPARING_REBALANCE
    ticket = group.ask_join(instance_id="b", session_ms=REBALANCE_MS * 3)
    group.advance(REBALANCE_MS)
    result = group.joined(ticket)
    assert result.leader == result.member_id


def test_absent_static_member_is_removed_when_its_session_expires() -> None:
    group = Driver()
    group.stable_static("a", "b")
    group.advance(SESSION_MS)
    assert group.state is GroupState.EMPTY
    ticket = group.ask_join(instance_id="a")
    group.advance(DELAY_MS)
    assert len(group.joined(ticket).members) == 1


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    group = Driver()
    _, follower = group.stable_static("a", "b")
    assert group.leave(("", "b"), ("", "c")) == (ErrorCode.none, ErrorCode.unknown_member_id)
    assert group.heartbeat(follower, 1, "b") is ErrorCode.unknown_member_id
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_leaves_by_its_member_id_alone() -> None:
    group = Driver()
    [member] = group.stable_static("a")
    assert group.leave((member, None)) == (ErrorCode.none,)
    assert group.state is GroupState.EMPTY


def test_instance_id_of_a_member_that_left_can_be_used_again() -> None:
    group = Driver()
    _, member = group.stable_static("a", "b")
    group.leave((member, "b"))
    assert group.join(member, instance_id="b").error is ErrorCode.unknown_member_id
    assert group.waits(group.ask_join(instance_id="b"))


def test_returning_static_member_without_a_sync_is_removed_in_time() -> None:
    group = Driver()
    tickets = [group.ask_join(instance_id=instance_id, session_ms=600_000) for instance_id in "ab"]
    group.advance(2 * DELAY_MS)
    leader = group.joined(tickets[0]).member_id
    group.ask_sync(leader, 1, {})
    new_id = group.join(instance_id="b", session_ms=600_000).member_id
    group.advance(REBALANCE_MS)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(new_id, 1, "b") is ErrorCode.unknown_member_id
    assert group.join(leader, instance_id="a").generation == 2


def test_returning_static_member_that_syncs_stays_in_the_group() -> None:
    group = Driver()
    tickets = [group.ask_join(instance_id=instance_id, session_ms=600_000) for instance_id in "ab"]
    group.advance(2 * DELAY_MS)
    leader = group.joined(tickets[0]).member_id
    group.ask_sync(leader, 1, {})
    new_id = group.join(instance_id="b", session_ms=600_000).member_id
    assert group.sync(new_id, 1, instance_id="b").error is ErrorCode.none
    group.advance(REBALANCE_MS * 2)
    assert group.state is GroupState.STABLE


def test_a_static_member_that_returned_has_its_new_session_timeout() -> None:
    group = Driver()
    group.stable_static("a", session_ms=SESSION_MS)
    new_id = group.join(instance_id="a", session_ms=6_000).member_id
    group.advance(5_999)
    assert group.heartbeat(new_id, 1, "a") is ErrorCode.none
    group.advance(6_000)
    assert group.state is GroupState.EMPTY


def test_new_static_member_replaced_while_waiting_outlives_its_session_timeout() -> None:
    group = Driver()
    group.stable(session_ms=200_000, rebalance_ms=200_000)
    group.ask_join(instance_id="a")
    second = group.ask_join(instance_id="a")
    group.advance(SESSION_MS * 2)
    assert group.waits(second)


def test_dynamic_member_cannot_send_requests_for_an_instance_id() -> None:
    group = Driver()
    tickets = [group.ask_join(), group.ask_join(instance_id="a")]
    dynamic, _ = group.settle(tickets)
    assert group.heartbeat(dynamic, 1, "a") is ErrorCode.fenced_instance_id
    assert group.join(dynamic, instance_id="a", protocols=RANGE).error is ErrorCode.fenced_instance_id
    assert group.join(dynamic, instance_id="new").error is ErrorCode.unknown_member_id


def test_returning_static_member_of_a_stable_group_needs_no_sync() -> None:
    group = Driver()
    group.stable_static("a", "b", session_ms=600_000)
    group.join(instance_id="b", session_ms=600_000)
    group.advance(REBALANCE_MS * 2)
    assert group.state is GroupState.STABLE


def test_later_client_with_the_same_instance_id_replaces_the_earlier() -> None:
    group = Driver()
    [first] = group.stable_static("a")
    second = group.join(instance_id="a").member_id
    third = group.join(instance_id="a").member_id
    assert group.heartbeat(first, 1, "a") is group.heartbeat(second, 1, "a") is ErrorCode.fenced_instance_id
    assert group.heartbeat(third, 1, "a") is ErrorCode.none
    assert len(group.group.describe().members) == 1


def test_static_leader_replaced_during_a_rebalance_stays_leader() -> None:
    group = Driver()
    _, follower = group.stable_static("a", "b")
    waiting = group.ask_join(follower, instance_id="b", protocols=(("range", b"other"),))
    result = group.join(instance_id="a")
    assert result.leader == result.member_id == group.joined(waiting).leader
    assert len(result.members) == 2


def test_longer_session_of_a_returning_static_member_is_restored() -> None:
    group = Driver()
    group.stable_static("a", session_ms=6_000)
    new_id = group.join(instance_id="a", session_ms=60_000).member_id
    group.restart()
    group.advance(59_999)
    assert group.heartbeat(new_id, 1, "a") is ErrorCode.none


def test_absent_dynamic_members_are_removed_and_static_ones_kept() -> None:
    group = Driver()
    tickets = [group.ask_join(session_ms=600_000)]
    tickets += [group.ask_join(instance_id="a", session_ms=600_000)]
    dynamic, static = group.settle(tickets)
    newcomer = group.ask_join()
    group.advance(REBALANCE_MS)
    result = group.joined(newcomer)
    assert {member_id for member_id, _, _ in result.members} == {static, result.member_id}
    assert group.heartbeat(dynamic, 1) is ErrorCode.unknown_member_id
    assert group.heartbeat(static, 1, "a") is ErrorCode.illegal_generation
    assert group.join(static, instance_id="a").generation == 2, "it may still take part"
