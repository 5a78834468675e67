"""Classic groups: heartbeats, leaving, offsets, descriptions, and restarts of the coordinator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from classic_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer_protocol import Subscription, encode_subscription
from penstock.groups.group import GroupKind, GroupState
from penstock.groups.records import ClassicGroupKey, ClassicGroupValue, GroupRecord


def subscription(*topics: str, owned: dict[str, frozenset[int]] | None = None) -> bytes:
    return encode_subscription(Subscription(1, frozenset(topics), owned or {}))


# Heartbeats and sessions


def test_heartbeats_keep_a_member_in_the_group() -> None:
    group = Driver()
    [member] = group.stable()
    for _ in range(10):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat(member, 1) is ErrorCode.none
    group.advance(SESSION_MS)
    assert group.heartbeat(member, 1) is ErrorCode.unknown_member_id
    assert group.state is GroupState.EMPTY


def test_forged_heartbeat_is_refused_and_extends_no_session() -> None:
    group = Driver()
    assert group.heartbeat("forged", 0) is ErrorCode.unknown_member_id
    [member] = group.stable()
    group.advance(SESSION_MS - 1)
    assert group.heartbeat("forged", 1) is ErrorCode.unknown_member_id
    for generation in (-1, 0, 2, 2**31 - 1):
        assert group.heartbeat(member, generation) is ErrorCode.illegal_generation
    assert group.heartbeat(member, 1, "instance") is ErrorCode.unknown_member_id
    group.advance(1)
    assert group.state is GroupState.EMPTY


def test_heartbeat_during_a_rebalance_gets_rebalance_in_progress() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    ticket = group.ask_join(leader)
    for _ in range(5):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat(follower, 1) is ErrorCode.rebalance_in_progress
    assert group.waits(ticket)


def test_heartbeat_while_syncs_are_awaited_succeeds() -> None:
    group = Driver()
    ticket = group.ask_join()
    group.advance(DELAY_MS)
    member = group.joined(ticket).member_id
    for _ in range(5):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat(member, 1) is ErrorCode.none
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_heartbeat_with_a_guessed_generation_keeps_the_wait_of_a_new_member() -> None:
    group = Driver()
    group.stable(session_ms=200_000, rebalance_ms=200_000)
    pending = group.join(two_step=True).member_id
    ticket = group.ask_join(pending)
    group.heartbeat(pending, 1)
    group.advance(SESSION_MS * 2)
    assert group.waits(ticket)


def test_expired_session_causes_a_rebalance() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.advance(SESSION_MS - 1)
    group.heartbeat(leader, 1)
    group.advance(1)
    assert group.heartbeat(leader, 1) is ErrorCode.rebalance_in_progress
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id
    assert group.join(leader).generation == 2


# Leaving


def test_leaving_member_causes_a_rebalance() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    assert group.leave((leader, None)) == (ErrorCode.none,)
    assert group.heartbeat(follower, 1) is ErrorCode.rebalance_in_progress
    assert group.join(follower).leader == follower


def test_last_member_that_leaves_writes_an_empty_group() -> None:
    group = Driver()
    [member] = group.stable()
    group.leave((member, None))
    assert group.state is GroupState.EMPTY
    value = group.records[-1]
    assert value == ClassicGroupValue("consumer", 2, None, None, group.wall_ms(), ())
    assert group.group.empty_since_ms == group.wall_ms()
    assert group.group.next_deadline_ms is None


def test_members_that_leave_before_their_first_generation_empty_the_group() -> None:
    group = Driver()
    pending = group.join(two_step=True).member_id
    ticket = group.ask_join(pending)
    assert group.leave((pending, None)) == (ErrorCode.none,)
    assert group.joined(ticket).error is ErrorCode.unknown_member_id
    assert group.state is GroupState.EMPTY
    assert group.group.next_deadline_ms is None


def test_leave_has_an_error_for_each_named_member() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    answers = group.leave(("forged", None), (follower, None), (follower, None), ("", None), ("", "i"))
    unknown = ErrorCode.unknown_member_id
    assert answers == (unknown, ErrorCode.none, unknown, unknown, unknown)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.join(leader).generation == 2


def test_refused_leave_causes_no_rebalance() -> None:
    group = Driver()
    [member] = group.stable_static("i")
    assert group.leave(("forged", None)) == (ErrorCode.unknown_member_id,)
    assert group.leave((member, "other")) == (ErrorCode.unknown_member_id,)
    assert group.leave(("forged", "i")) == (ErrorCode.fenced_instance_id,)
    assert group.state is GroupState.STABLE
    assert group.leave() == ()


def test_leave_of_an_empty_group_gets_unknown_member_id() -> None:
    assert Driver().leave(("m", None), ("", "i")) == (ErrorCode.unknown_member_id,) * 2


def test_a_rebalance_continues_when_an_awaited_member_leaves() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    ticket = group.ask_join(leader)
    group.leave((follower, None))
    assert group.joined(ticket).generation == 2


def test_leave_during_the_initial_delay_does_not_end_the_delay() -> None:
    group = Driver()
    first = group.ask_join()
    pending = group.join(two_step=True).member_id
    group.ask_join(pending)
    group.leave((pending, None))
    assert group.waits(first)
    group.advance(2 * DELAY_MS)
    assert group.joined(first).generation == 1


def test_new_members_of_an_empty_group_continue_its_generation() -> None:
    group = Driver()
    [member] = group.stable()
    group.leave((member, None))
    ticket = group.ask_join()
    assert group.waits(ticket), "the first rebalance of an empty group waits for more members"
    group.advance(DELAY_MS)
    assert group.joined(ticket).generation == 3


# Offsets


def test_commit_is_checked_by_member_generation_and_group_state() -> None:
    group = Driver()
    assert group.commit("", -1) is ErrorCode.none
    assert group.commit("", 0) is ErrorCode.unknown_member_id
    leader, follower = group.stable(2)
    assert group.commit(leader, 1) is ErrorCode.none
    assert group.commit(leader, 0) is ErrorCode.illegal_generation
    assert group.commit(leader, 2) is ErrorCode.illegal_generation
    assert group.commit(leader, -1) is ErrorCode.illegal_generation
    assert group.commit("forged", 1) is ErrorCode.unknown_member_id
    assert group.commit("", -1) is ErrorCode.unknown_member_id
    ticket = group.ask_join(leader)
    assert group.commit(follower, 1) is ErrorCode.none, "before it rejoins it commits what it has done"
    group.ask_join(follower)
    assert group.joined(ticket).generation == 2
    assert group.commit(leader, 2) is ErrorCode.rebalance_in_progress
    assert group.commit(leader, 1) is ErrorCode.illegal_generation


def test_commit_extends_the_session_of_a_classic_member() -> None:
    group = Driver()
    [member] = group.stable()
    for _ in range(3):
        group.advance(SESSION_MS - 1)
        assert group.commit(member, 1) is ErrorCode.none
    assert group.state is GroupState.STABLE


def test_a_commit_of_a_fenced_instance_is_refused() -> None:
    group = Driver()
    [member] = group.stable_static("i")
    assert group.commit(member, 1, "i") is ErrorCode.none
    assert group.commit("other", 1, "i") is ErrorCode.fenced_instance_id
    assert group.commit(member, 1, "other") is ErrorCode.unknown_member_id


def test_any_client_may_fetch_the_offsets_of_a_classic_group() -> None:
    group = Driver()
    group.stable()
    group.group.check_fetch(None, -1)
    group.group.check_fetch("stranger", 5)


def test_classic_group_counts_as_reading_the_topics_of_its_members() -> None:
    group = Driver()
    assert not group.group.reads("a")
    first = group.ask_join(protocols=(("range", subscription("a", "b")),))
    second = group.ask_join(protocols=(("range", subscription("c")),))
    assert group.group.reads("c")
    _, other = group.settle([first, second])
    assert [topic for topic in "abcd" if group.group.reads(topic)] == ["a", "b", "c"]
    group.leave((other, None))
    assert not group.group.reads("c")


@pytest.mark.parametrize("options", [{}, {"protocol_type": "connect"}])
def test_group_with_unreadable_subscriptions_counts_as_reading_every_topic(options: dict[str, Any]) -> None:
    group = Driver()
    [member] = group.stable(**options)
    assert group.group.reads("a")
    group.leave((member, None))
    assert not group.group.reads("a")


# Descriptions


def test_description_has_metadata_and_assignments_only_in_a_stable_group() -> None:
    group = Driver()
    assert group.group.describe().state is GroupState.EMPTY
    leader, follower = group.stable(2)
    described = group.group.describe()
    assert (described.kind, described.state) == (GroupKind.CLASSIC, GroupState.STABLE)
    assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [
        (leader, b"meta", leader.encode()),
        (follower, b"meta", follower.encode()),
    ]
    assert described.members[0].client_host == "/127.0.0.1"
    group.ask_join(leader)
    described = group.group.describe()
    assert (described.protocol_type, described.protocol_name) == ("consumer", "")
    assert {(m.metadata, m.assignment) for m in described.members} == {(b"", b"")}


def test_tombstone_removes_a_classic_group() -> None:
    assert Driver().group.tombstones() == [GroupRecord(ClassicGroupKey("g"), None)]


def test_waiting_requests_fail_when_the_group_is_unloaded() -> None:
    group = Driver()
    joins = [group.ask_join(), group.ask_join()]
    group.take(group.group.give_up(ErrorCode.not_coordinator))
    assert {group.joined(ticket).error for ticket in joins} == {ErrorCode.not_coordinator}
    assert group.group.next_deadline_ms is None
    group = Driver()
    joins = [group.ask_join(), group.ask_join()]
    group.advance(2 * DELAY_MS)
    sync = group.ask_sync(group.joined(joins[1]).member_id, 1)
    group.take(group.group.give_up(ErrorCode.coordinator_not_available))
    assert group.synced(sync).error is ErrorCode.coordinator_not_available


def test_unloaded_group_answers_coordinator_not_available() -> None:
    group = Driver()
    [member] = group.stable()
    group.group.give_up(ErrorCode.not_coordinator)
    gone = ErrorCode.coordinator_not_available
    assert group.state is GroupState.DEAD
    assert group.join().error is gone
    assert group.join(member).error is gone
    assert group.sync(member, 1).error is gone
    assert group.heartbeat(member, 1) is gone
    assert group.commit(member, 1) is gone
    assert group.leave((member, None)) == (gone,)
    with pytest.raises(BrokerError) as refusal:
        group.group.check_fetch(None, -1)
    assert refusal.value.code is ErrorCode.group_id_not_found


# Restarts of the coordinator


def test_after_a_restart_members_continue_without_a_rebalance() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.restart()
    assert group.state is GroupState.STABLE
    assert group.heartbeat(leader, 1) is group.heartbeat(follower, 1) is ErrorCode.none
    assert group.sync(follower, 1).assignment == follower.encode()
    assert group.commit(leader, 1) is ErrorCode.none
    assert group.group.saved() == group.records[-1]


def test_after_a_restart_sessions_begin_anew() -> None:
    group = Driver()
    [member] = group.stable()
    group.now_ms = 500_000_000
    group.restart()
    group.advance(SESSION_MS - 1)
    assert group.heartbeat(member, 1) is ErrorCode.none
    group.advance(SESSION_MS)
    assert group.state is GroupState.EMPTY
    assert group.records[-1].generation == 2


def test_after_a_restart_a_leader_is_still_the_leader() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.restart()
    assert group.join(follower).leader == leader
    assert group.waits(group.ask_join(leader))


def test_empty_group_keeps_its_empty_time_and_generation_over_a_restart() -> None:
    group = Driver()
    [member] = group.stable()
    group.leave((member, None))
    since_ms = group.wall_ms()
    group.advance(100)
    group.restart()
    assert group.state is GroupState.EMPTY
    assert group.group.empty_since_ms == since_ms
    ticket = group.ask_join()
    group.advance(DELAY_MS)
    assert group.joined(ticket).generation == 3


def test_after_a_restart_new_members_must_support_the_protocol_in_use() -> None:
    group = Driver()
    group.stable(protocols=(("range", b""), ("sticky", b"")))
    group.restart()
    assert group.join(protocols=(("sticky", b""),)).error is ErrorCode.inconsistent_group_protocol
    assert group.waits(group.ask_join(protocols=(("sticky", b""), ("range", b""))))


def test_rebalance_interrupted_by_a_restart_begins_again_with_rejoins() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.ask_join(leader)
    newcomer = group.ask_join()
    group.restart()
    assert group.state is GroupState.STABLE
    assert group.waits(newcomer)
    again = group.ask_join(leader)
    group.ask_join(follower)
    assert group.joined(again).generation == 2


def test_group_record_whose_leader_is_no_member_is_loaded() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.records.append(replace(group.records[-1], leader="gone"))
    group.restart()
    assert group.join(follower).leader == leader


def test_refused_append_has_no_effect_after_a_reload() -> None:
    group = Driver()
    leader, follower = group.stable(2)
    group.ask_join(leader)
    group.ask_join(follower)
    group.ask_sync(leader, 2, {leader: b"lost"})
    del group.records[-1]
    group.restart()
    assert group.heartbeat(leader, 2) is ErrorCode.illegal_generation
    assert group.sync(leader, 1).assignment == leader.encode()


def test_group_that_never_had_members_has_no_empty_time() -> None:
    group = Driver()
    assert group.group.is_empty
    assert group.group.empty_since_ms is None
    group.ask_join()
    assert not group.group.is_empty
    assert group.group.empty_since_ms is None


def test_prepare_rebalance_starts_a_rebalance() -> None:
    group = Driver()
    [member] = group.stable()
    group.take(group.group.prepare_rebalance(group.now_ms))
    assert group.heartbeat(member, 1) is ErrorCode.rebalance_in_progress
    group.advance(REBALANCE_MS)
    assert group.state is GroupState.EMPTY


def test_prepare_rebalance_of_an_empty_group_does_nothing() -> None:
    group = Driver()
    group.take(group.group.prepare_rebalance(group.now_ms))
    assert group.state is GroupState.EMPTY
