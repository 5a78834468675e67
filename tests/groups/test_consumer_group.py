"""Consumer groups (KIP-848) with members of the consumer protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from consumer_driver import (
    REBALANCE_MS,
    SESSION_MS,
    WALL_OFFSET_MS,
    Driver,
    image_of,
    topic,
)
from group_log import GROUP, durable

from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.regexes import MAX_REGEX_CHARACTERS
from penstock.groups.group import ConsumerHeartbeat, GroupState
from penstock.groups.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    GroupRecord,
    MemberState,
    TargetEpochKey,
    TargetMemberKey,
)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def state_of(driver: Driver, member_id: str) -> MemberState:
    return driver.consumer.remembered.members[member_id].current.state


def two_members(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.settle("a", "b")
    assert driver.group.state is GroupState.STABLE


# Joining


def test_first_member_of_a_consumer_group_gets_all_partitions_at_once(driver: Driver) -> None:
    result = driver.join("a")
    assert (result.member_id, result.member_epoch) == ("a", 1)
    assert result.heartbeat_interval_ms == 5_000
    assert driver.named(result.assignment) == {"foo": {0, 1, 2, 3, 4, 5}}
    assert driver.group.state is GroupState.STABLE


def test_join_of_the_first_member_appends_a_record_of_each_type(driver: Driver) -> None:
    driver.join("a")
    kinds = {type(record.key) for record in driver.last}
    assert kinds == {
        ConsumerGroupKey,
        ConsumerMemberKey,
        TargetEpochKey,
        TargetMemberKey,
        CurrentAssignmentKey,
    }


def test_heartbeat_without_changes_appends_no_record_and_has_no_assignment(driver: Driver) -> None:
    driver.join("a")
    result = driver.beat("a", 1)
    assert result.error is ErrorCode.none
    assert result.assignment is None
    assert result.member_epoch == 1
    assert driver.last == []


def test_a_full_heartbeat_gets_its_assignment(driver: Driver) -> None:
    driver.join("a")
    result = driver.beat("a", 1, topics=("foo",), owned={}, rebalance_timeout_ms=REBALANCE_MS)
    assert driver.named(result.assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_member_gets_partitions_of_a_subscribed_topic_created_later(driver: Driver) -> None:
    assert driver.join("a", "bar").assignment == {}
    driver.see(driver.image.with_topics([topic("bar", 2)]))
    assert driver.named(driver.beat("a", 1).assignment) == {"bar": {0, 1}}


def test_member_gets_partitions_only_after_their_revocation(driver: Driver) -> None:
    driver.join("a")
    joined = driver.join("b")
    assert joined.assignment == {}
    assert joined.member_epoch == 2
    assert state_of(driver, "b") is MemberState.UNRELEASED_PARTITIONS
    before = driver.group.state
    assert before is GroupState.RECONCILING

    told = driver.beat("a", 1)
    assert told.member_epoch == 1
    kept = driver.named(told.assignment)
    assert kept is not None
    assert len(kept["foo"]) == 3
    assert state_of(driver, "a") is MemberState.UNREVOKED_PARTITIONS
    assert driver.beat("b", 2).assignment is None
    assert driver.beat("a", 1, owned={"foo": range(6)}).member_epoch == 1, "it still owns what it shall not"

    assert driver.beat("a", 1, owned=kept).member_epoch == 2
    assert state_of(driver, "a") is MemberState.STABLE
    got = driver.named(driver.beat("b", 2).assignment)
    assert got == {"foo": set(range(6)) - kept["foo"]}
    assert driver.group.state is GroupState.STABLE


def test_member_gets_free_partitions_before_others_are_revoked(driver: Driver) -> None:
    two_members(driver)
    driver.join("c")
    driver.beat("a", 2)
    kept = driver.assigned("a")
    driver.beat("a", 2, owned=kept)
    first = driver.named(driver.beat("c", 3).assignment)
    assert first is not None
    assert len(first["foo"]) == 1
    assert state_of(driver, "c") is MemberState.UNRELEASED_PARTITIONS
    driver.settle("a", "b", "c")
    assert len(driver.assigned("c")["foo"]) == 2


def test_revoked_partition_may_return_to_the_same_member(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    kept = driver.assigned("a")
    driver.beat("b", -1)
    result = driver.beat("a", 1, owned=kept)
    assert result.member_epoch == 3
    assert driver.named(result.assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_revocation_not_yet_sent_is_dropped_when_no_longer_needed(
    driver: Driver,
) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("b", -1)
    result = driver.beat("a", 1)
    assert result.member_epoch == 3
    assert result.assignment is None


# Subscriptions


def test_new_subscription_raises_the_group_epoch(driver: Driver) -> None:
    driver = Driver(image_of(foo=2, bar=2))
    driver.join("a")
    result = driver.beat("a", 1, topics=("foo", "bar"))
    assert result.member_epoch == 2
    assert driver.named(result.assignment) == {"foo": {0, 1}, "bar": {0, 1}}


def test_repeated_subscription_does_not_raise_the_group_epoch(driver: Driver) -> None:
    driver.join("a")
    driver.beat("a", 1, topics=("foo",))
    assert driver.consumer.describe().epoch == 1
    assert driver.last == []


def test_partitions_of_unsubscribed_topics_are_revoked() -> None:
    driver = Driver(image_of(foo=2, bar=2))
    driver.join("a", "foo", "bar")
    result = driver.beat("a", 1, topics=("foo",))
    assert driver.named(result.assignment) == {"foo": {0, 1}}
    assert result.member_epoch == 1
    assert driver.beat("a", 1, owned={"foo": {0, 1}}).member_epoch == 2


def test_empty_subscription_revokes_all_partitions(driver: Driver) -> None:
    driver.join("a")
    assert driver.beat("a", 1, topics=()).assignment == {}
    assert driver.beat("a", 1, owned={}).member_epoch == 2
    assert not driver.group.reads("foo")


def test_heartbeat_appends_only_the_changed_record(driver: Driver) -> None:
    two_members(driver)
    driver.beat("a", 2, rack_id="r1")
    assert [type(record.key) for record in driver.last] == [ConsumerMemberKey]


# Topics


def test_added_partitions_are_spread_over_members(driver: Driver) -> None:
    two_members(driver)
    driver.grow("foo", 8)
    driver.settle("a", "b")
    assert len(driver.assigned("a")["foo"]) == len(driver.assigned("b")["foo"]) == 4


def test_deleted_topic_is_removed_from_targets_and_then_from_members() -> None:
    driver = Driver(image_of(foo=2, bar=2))
    driver.join("a", "foo", "bar")
    gone = driver.image.topics["bar"].id
    driver.see(driver.image.without_topics(["bar"]))
    result = driver.beat("a", 1)
    assert driver.named(result.assignment) == {"foo": {0, 1}}
    assert gone not in driver.consumer.remembered.targets["a"]
    assert driver.beat("a", 1, owned={"foo": {0, 1}}).member_epoch == 2
    assert driver.group.state is GroupState.STABLE


def test_recreated_topic_is_assigned_as_a_new_topic(driver: Driver) -> None:
    driver.join("a")
    old = driver.image.topics["foo"].id
    driver.see(driver.image.without_topics(["foo"]).with_topics([topic("foo", 6)]))
    driver.beat("a", 1)
    result = driver.beat("a", 1, owned={})
    assert result.assignment == {driver.image.topics["foo"].id: frozenset(range(6))}
    assert old not in (result.assignment or {})


def test_change_of_an_unsubscribed_topic_begins_no_epoch(driver: Driver) -> None:
    driver.join("a")
    driver.see(driver.image.with_topics([topic("other", 3)]))
    assert driver.last == []
    assert driver.consumer.describe().epoch == 1


def test_topic_changes_during_a_coordinator_restart_are_applied(driver: Driver) -> None:
    driver.join("a")
    grown = driver.image.with_topics([topic("foo", 8, driver.image.topics["foo"].id)])
    driver.image = grown
    driver.restart()
    result = driver.beat("a", 1)
    assert result.member_epoch == 2
    assert driver.named(result.assignment) == {"foo": set(range(8))}


# Regular expressions


def test_regex_subscription_matches_whole_names_and_new_topics(driver: Driver) -> None:
    driver = Driver(image_of(foo=1, foobar=1, bar=1, __consumer_offsets=3))
    result = driver.beat("a", 0, regex="foo.*|offsets")
    assert driver.named(result.assignment) == {"foo": {0}, "foobar": {0}}
    driver.see(driver.image.with_topics([topic("food", 1)]))
    assert driver.named(driver.beat("a", 1).assignment) == {"foo": {0}, "foobar": {0}, "food": {0}}
    assert driver.group.reads("food")
    assert not driver.group.reads("bar")


def test_regex_subscription_matches_internal_topics() -> None:
    driver = Driver(image_of(foo=1, __consumer_offsets=2))
    result = driver.beat("a", 0, regex=".*")
    assert driver.named(result.assignment) == {"foo": {0}, "__consumer_offsets": {0, 1}}


def test_regex_and_topic_names_are_both_subscribed() -> None:
    driver = Driver(image_of(foo=1, bar=1))
    result = driver.beat("a", 0, topics=("bar",), regex="f.*")
    assert driver.named(result.assignment) == {"foo": {0}, "bar": {0}}
    result = driver.beat("a", 1, regex="")
    assert driver.named(result.assignment) == {"bar": {0}}


def test_invalid_regex_is_refused_and_changes_no_subscription(
    driver: Driver, capfd: pytest.CaptureFixture[str]
) -> None:
    for regex in ("(", "(?=x)", r"(a)\1", "x" * (MAX_REGEX_CHARACTERS + 1)):
        assert driver.beat("a", 0, regex=regex).error is ErrorCode.invalid_regular_expression
    assert driver.group.is_empty
    assert driver.log.records == []
    assert capfd.readouterr().err == ""


def test_regex_with_exponential_backtracking_elsewhere_is_quick() -> None:
    driver = Driver(image_of(**{"a" * 200: 1, "b": 1}))
    assert driver.beat("m", 0, regex="(a*)*b").error is ErrorCode.none
    assert driver.named(driver.beat("m", 1, topics=(), owned={}, rebalance_timeout_ms=1).assignment) == {
        "b": {0}
    }


def test_regex_subscription_survives_a_restart() -> None:
    driver = Driver(image_of(foo=2))
    driver.beat("a", 0, regex="fo+")
    driver.restart()
    assert driver.beat("a", 1).member_epoch == 1
    driver.see(driver.image.with_topics([topic("foooo", 1)]))
    assert driver.beat("a", 1).member_epoch == 2


# Epochs


def test_an_unknown_member_gets_unknown_member_id(driver: Driver) -> None:
    driver.join("a")
    assert driver.beat("b", 1).error is ErrorCode.unknown_member_id
    assert driver.beat("b", -1).error is ErrorCode.unknown_member_id


@pytest.mark.parametrize("epoch", [1, 3, 2**31 - 1])
def test_heartbeat_with_another_member_epoch_is_fenced(driver: Driver, epoch: int) -> None:
    two_members(driver)
    assert driver.beat("b", epoch).error is ErrorCode.fenced_member_epoch
    assert driver.last == []


def test_lost_response_is_repeated_for_a_member_of_the_previous_epoch(driver: Driver) -> None:
    two_members(driver)
    driver.beat("b", -1)
    lost = driver.beat("a", 2)
    assert lost.member_epoch == 3
    again = driver.beat("a", 2, owned={"foo": {0}}, topics=("foo",), rebalance_timeout_ms=REBALANCE_MS)
    assert (again.error, again.member_epoch) == (ErrorCode.none, 3)
    assert again.assignment == lost.assignment


def test_heartbeat_of_the_previous_epoch_with_other_or_no_partitions_is_fenced(driver: Driver) -> None:
    two_members(driver)
    kept, others = driver.assigned("a"), driver.assigned("b")
    driver.grow("foo", 8)
    assert driver.beat("a", 2).member_epoch == 3
    assert driver.beat("a", 2).error is ErrorCode.fenced_member_epoch
    assert driver.beat("a", 2, owned=others).error is ErrorCode.fenced_member_epoch
    assert driver.beat("a", 1, owned=kept).error is ErrorCode.fenced_member_epoch
    assert driver.beat("a", 2, owned=kept).error is ErrorCode.none


def test_fenced_member_rejoins_under_its_id_with_its_assignment(driver: Driver) -> None:
    two_members(driver)
    had = driver.assigned("a")
    result = driver.beat("a", 0, topics=("foo",))
    assert result.member_epoch == 2
    assert driver.named(result.assignment) == had
    assert driver.consumer.describe().epoch == 2


def test_rejoin_confirms_the_requested_revocations(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    assert driver.beat("a", 0, topics=("foo",)).member_epoch == 2
    result = driver.beat("b", 2)
    assert len((driver.named(result.assignment) or {})["foo"]) == 3


# Leaving


def test_leaving_member_is_removed_and_its_partitions_become_free(driver: Driver) -> None:
    two_members(driver)
    result = driver.beat("a", -1)
    assert (result.error, result.member_epoch, result.member_id) == (ErrorCode.none, -1, "a")
    tombstones = {type(record.key) for record in driver.last if record.value is None}
    assert tombstones == {ConsumerMemberKey, TargetMemberKey, CurrentAssignmentKey}
    assert driver.named(driver.beat("b", 2).assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_consumer_group_records_when_it_became_empty(driver: Driver) -> None:
    assert driver.group.empty_since_ms is None
    driver.join("a")
    assert driver.group.empty_since_ms is None
    driver.pass_ms(10)
    driver.beat("a", -1)
    assert driver.group.is_empty
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.empty_since_ms == WALL_OFFSET_MS + driver.now_ms
    assert driver.group.next_deadline_ms is None


def test_tombstones_of_a_group_cover_all_its_records(driver: Driver) -> None:
    two_members(driver)
    forgotten = {record.key for record in driver.group.tombstones()}
    assert forgotten == {record.key for record in driver.log.records}


# Timeouts


def test_silent_member_is_removed_after_its_session(driver: Driver) -> None:
    two_members(driver)
    driver.pass_ms(SESSION_MS - 1)
    driver.beat("b", 2)
    driver.pass_ms(1)
    assert driver.beat("a", 2).error is ErrorCode.unknown_member_id
    assert driver.named(driver.beat("b", 2).assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_members_whose_sessions_end_together_are_removed_in_one_epoch(driver: Driver) -> None:
    for member_id in "abcd":
        driver.join(member_id)
    driver.pass_ms(SESSION_MS)
    assert driver.group.is_empty
    assert driver.consumer.describe().epoch == 5


def test_member_that_does_not_revoke_in_time_is_removed(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    for _ in range(REBALANCE_MS // 10_000):
        assert driver.beat("a", 1, owned={"foo": range(6)}).error is ErrorCode.none
        driver.beat("b", 2)
        driver.pass_ms(10_000)
    assert driver.beat("a", 1).error is ErrorCode.unknown_member_id
    assert driver.named(driver.beat("b", 2).assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_member_that_revokes_in_time_stays(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    driver.settle("a", "b")
    for _ in range(10):
        driver.pass_ms(10_000)
        driver.settle("a", "b")
    assert len(driver.consumer.describe().members) == 2


def test_new_coordinator_restarts_session_and_revocation_timeouts(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    driver.pass_ms(SESSION_MS - 1)
    driver.restart()
    driver.pass_ms(SESSION_MS - 1)
    driver.beat("a", 1)
    driver.beat("b", 2)
    driver.pass_ms(REBALANCE_MS - SESSION_MS)
    assert driver.beat("a", 1).error is ErrorCode.none
    driver.pass_ms(1)
    assert driver.beat("a", 1).error is ErrorCode.unknown_member_id


# Static members


def test_returning_static_member_keeps_its_assignment_and_epoch(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.join("b1", instance_id="b")
    driver.settle("a1", "b1")
    had = driver.assigned("a1")
    left = driver.beat("a1", -2, instance_id="a")
    assert (left.error, left.member_epoch) == (ErrorCode.none, -2)
    driver.pass_ms(SESSION_MS // 2)
    back = driver.join("a2", instance_id="a")
    assert driver.named(back.assignment) == had
    assert back.member_epoch == 2
    assert driver.consumer.describe().epoch == 2
    assert driver.beat("b1", 2).assignment is None


def test_absent_static_member_is_removed_after_its_session(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.join("b1", instance_id="b")
    driver.settle("a1", "b1")
    driver.beat("a1", -2, instance_id="a")
    driver.pass_ms(SESSION_MS - 1)
    driver.beat("b1", 2, instance_id="b")
    driver.pass_ms(1)
    assert driver.named(driver.beat("b1", 2).assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_join_with_an_instance_id_in_use_gets_unreleased_instance_id(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    assert driver.beat("a2", 0, topics=("foo",), instance_id="a").error is ErrorCode.unreleased_instance_id
    assert set(driver.consumer.remembered.members) == {"a1"}
    assert driver.last == []


def test_replaced_static_member_gets_fenced_instance_id(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.beat("a1", -2, instance_id="a")
    driver.join("a2", instance_id="a")
    assert driver.beat("a1", 1, instance_id="a").error is ErrorCode.fenced_instance_id
    assert driver.beat("a1", -1, instance_id="a").error is ErrorCode.fenced_instance_id
    assert driver.beat("x", 1, instance_id="x").error is ErrorCode.unknown_member_id


def test_temporarily_absent_static_member_must_rejoin_with_epoch_0(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.beat("a1", -2, instance_id="a")
    assert driver.beat("a1", 1, instance_id="a").error is ErrorCode.fenced_member_epoch
    with pytest.raises(BrokerError) as stale:
        driver.group.check_commit("a1", "a", 1, driver.now_ms)
    assert stale.value.code is ErrorCode.stale_member_epoch
    assert driver.beat("a1", 0, topics=("foo",), instance_id="a").member_epoch == 1


def test_static_member_that_leaves_permanently_is_removed(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.beat("a1", -1, instance_id="a")
    assert driver.group.is_empty
    assert driver.join("a2", instance_id="a").error is ErrorCode.none


def test_static_member_that_leaves_during_a_revocation_counts_as_revoked(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.join("b")
    driver.beat("a1", 1, instance_id="a")
    driver.beat("a1", -2, instance_id="a")
    assert len((driver.named(driver.beat("b", 2).assignment) or {})["foo"]) == 3


def test_a_static_member_survives_a_restart_of_the_coordinator(driver: Driver) -> None:
    driver.join("a1", instance_id="a")
    driver.beat("a1", -2, instance_id="a")
    driver.restart()
    assert driver.beat("a1", 1, instance_id="a").error is ErrorCode.fenced_member_epoch
    assert driver.named(driver.join("a2", instance_id="a").assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


# Limits


def test_a_full_group_refuses_further_members(driver: Driver) -> None:
    driver = Driver(group_max_size=2)
    driver.join("a", instance_id="a")
    driver.join("b")
    assert driver.beat("c", 0, topics=("foo",)).error is ErrorCode.group_max_size_reached
    assert driver.beat("b", 0, topics=("foo",)).error is ErrorCode.none
    driver.beat("a", -2, instance_id="a")
    assert driver.join("a2", instance_id="a").error is ErrorCode.none, "it takes the place it had"


def test_subscriptions_above_the_metadata_limit_are_refused(driver: Driver) -> None:
    driver = Driver(group_max_metadata_bytes=1_024)
    names = [f"{number:0200}" for number in range(4)]
    driver.join("a", *names)
    assert driver.beat("b", 0, topics=names).error is ErrorCode.group_max_size_reached
    assert (
        driver.beat("a", 1, topics=[*names, *"x" * 300, "y" * 300]).error is ErrorCode.group_max_size_reached
    )
    driver.beat("a", 1, topics=names[:2])
    assert driver.join("b", *names[:2]).error is ErrorCode.none


# Assignors


def test_an_unknown_assignor_is_refused(driver: Driver) -> None:
    assert driver.beat("a", 0, topics=("foo",), assignor="sticky").error is ErrorCode.unsupported_assignor
    assert driver.group.is_empty


def test_most_votes_decide_the_assignor(driver: Driver) -> None:
    driver.join("a", assignor="range")
    assert driver.consumer.describe().protocol_name == "range"
    driver.join("b", assignor="uniform")
    assert driver.consumer.describe().protocol_name == "uniform"
    driver.join("c")
    driver.join("d", assignor="range")
    assert driver.consumer.describe().protocol_name == "range"
    assert Driver().consumer.describe().protocol_name == "uniform"


def test_range_is_the_default_assignor_if_uniform_is_disabled() -> None:
    driver = Driver(group_consumer_assignors="range")
    driver.join("a")
    assert driver.consumer.describe().protocol_name == "range"
    assert driver.beat("b", 0, topics=("foo",), assignor="uniform").error is ErrorCode.unsupported_assignor


# Offsets


def test_commit_with_the_current_member_epoch_is_accepted(driver: Driver) -> None:
    def code(member_id: str, epoch: int) -> ErrorCode:
        try:
            driver.group.check_commit(member_id, None, epoch, driver.now_ms)
        except BrokerError as error:
            return error.code
        return ErrorCode.none

    assert code("", -1) is ErrorCode.none, "nobody is in the group"
    two_members(driver)
    assert code("a", 2) is ErrorCode.none
    assert code("a", 1) is ErrorCode.stale_member_epoch
    assert code("a", 3) is ErrorCode.stale_member_epoch
    assert code("x", 2) is ErrorCode.unknown_member_id
    assert code("", -1) is ErrorCode.unknown_member_id


def test_offset_fetch_is_allowed_with_the_current_epoch_or_without_membership(driver: Driver) -> None:
    two_members(driver)
    driver.group.check_fetch(None, -1)
    driver.group.check_fetch("a", 2)
    for member_id, epoch, code in (
        ("a", 1, ErrorCode.stale_member_epoch),
        ("x", 2, ErrorCode.unknown_member_id),
        ("x", -1, ErrorCode.unknown_member_id),
    ):
        with pytest.raises(BrokerError) as refused:
            driver.group.check_fetch(member_id, epoch)
        assert refused.value.code is code


def test_commit_does_not_extend_the_session_of_a_consumer_protocol_member(driver: Driver) -> None:
    driver.join("a")
    driver.pass_ms(SESSION_MS - 1)
    driver.group.check_commit("a", None, 1, driver.now_ms)
    driver.pass_ms(1)
    assert driver.group.is_empty


# Descriptions


def test_description_has_current_and_target_assignments(driver: Driver) -> None:
    driver.join("a", instance_id="i", rack_id="r")
    driver.join("b")
    described = driver.consumer.describe()
    assert (described.epoch, described.assignment_epoch) == (2, 2)
    assert described.state is GroupState.RECONCILING
    a, b = described.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch) == ("a", "i", "r", 1)
    assert a.subscribed_topics == ("foo",)
    assert len((driver.named(a.current) or {})["foo"]) == 6
    assert len((driver.named(a.target) or {})["foo"]) == 3
    assert b.current == {}
    assert not b.is_classic


def test_heartbeats_follow_the_interval_of_the_group() -> None:
    driver = Driver()
    driver.settings.update(BrokerConfig({}), {GROUP: {"consumer.heartbeat.interval.ms": "1000"}})
    assert driver.join("a").heartbeat_interval_ms == 1_000


def test_records_in_the_order_of_a_compacted_log_give_the_same_group(driver: Driver) -> None:
    two_members(driver)
    driver.join("c")
    driver.settle("a", "b", "c")
    before = durable(driver.consumer)
    newest = {record.key: record for record in driver.log.records}
    log = tuple(driver.log.records)
    driver.log.records[:] = sorted(newest.values(), key=lambda record: -log.index(record))
    driver.restart()
    assert durable(driver.consumer) == before
    driver.settle("a", "b", "c")
    assert durable(driver.consumer) == before


# Hostile and unlucky members


def test_one_request_appends_no_record_key_twice(driver: Driver) -> None:
    requests: tuple[Callable[[], object], ...] = (
        lambda: driver.join("a", instance_id="i"),
        lambda: driver.join("b"),
        lambda: driver.beat("a", 1, topics=("foo", "bar"), owned={"foo": {0}}, instance_id="i"),
        lambda: driver.beat("b", -1),
    )
    for request in requests:
        request()
        keys = [record.key for record in driver.last]
        assert len(keys) == len(set(keys))


def test_member_that_changes_its_instance_id_frees_the_former_one(driver: Driver) -> None:
    driver.join("a", instance_id="i")
    driver.join("a", instance_id="j")
    assert driver.beat("a", 1, instance_id="i").error is ErrorCode.unknown_member_id
    driver.beat("a", -1, instance_id="j")
    assert driver.group.is_empty
    assert driver.join("b", instance_id="i").error is ErrorCode.none
    assert driver.join("c", instance_id="j").error is ErrorCode.none


def test_dynamic_member_cannot_take_over_a_static_member(driver: Driver) -> None:
    driver.join("a")
    driver.join("s", instance_id="i")
    driver.settle("a", "s")
    driver.beat("s", -2, instance_id="i")
    before = durable(driver.consumer)
    refused = driver.beat("a", 0, topics=("foo",), instance_id="i")
    assert refused.error is ErrorCode.invalid_request
    assert durable(driver.consumer) == before


def test_a_static_member_that_comes_back_with_another_subscription_begins_an_epoch() -> None:
    driver = Driver(image_of(foo=2, bar=2))
    driver.join("a1", instance_id="a")
    driver.beat("a1", -2, instance_id="a")
    result = driver.join("a2", "bar", instance_id="a")
    assert result.member_epoch == 2
    assert driver.named(result.assignment) == {"bar": {0, 1}}


def test_target_changed_during_a_revocation_applies_after_it(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    kept = driver.assigned("a")
    driver.join("c")
    told = driver.beat("a", 1, owned=kept)
    assert told.member_epoch == 1, "there is more to give up now"
    assert len((driver.named(told.assignment) or {})["foo"]) == 2
    assert driver.beat("a", 1, owned=driver.assigned("a")).member_epoch == 3
    driver.settle("a", "b", "c")
    assert driver.group.state is GroupState.STABLE


def test_additional_revocations_restart_the_rebalance_timeout(driver: Driver) -> None:
    driver.join("a")
    driver.join("b")
    driver.beat("a", 1)
    driver.pass_ms(40_000)
    driver.join("c")
    driver.beat("b", 2)
    driver.beat("a", 1, owned=driver.assigned("a"))
    driver.pass_ms(40_000)
    assert driver.beat("a", 1).error is ErrorCode.none


def test_removed_partitions_leave_targets_and_members(driver: Driver) -> None:
    two_members(driver)
    driver.grow("foo", 2)
    driver.settle("a", "b")
    assert driver.assigned("a")["foo"] | driver.assigned("b")["foo"] == {0, 1}
    assert driver.group.state is GroupState.STABLE


def test_group_with_a_regex_that_became_invalid_is_loaded(driver: Driver) -> None:
    driver.join("a")
    (key, value) = next(
        (record.key, record.value)
        for record in driver.log.records
        if isinstance(record.key, ConsumerMemberKey)
    )
    assert isinstance(value, ConsumerMemberValue)
    driver.log.append([GroupRecord(key, replace(value, subscribed_regex="("))])
    driver.restart()
    assert driver.beat("a", 1).error is ErrorCode.none


def test_forged_owned_partitions_do_not_change_the_assignment(driver: Driver) -> None:
    two_members(driver)
    before = durable(driver.consumer)
    forged = {"foo": set(range(-5, 1_000))}
    assert driver.beat("a", 2, owned=forged).assignment is None
    assert durable(driver.consumer) == before


def test_three_hundred_expired_members_leave_no_state() -> None:
    driver = Driver(image_of(foo=50))
    group = driver.consumer
    for number in range(300):
        member_id = f"m{number}"
        request = ConsumerHeartbeat(
            member_id, 0, f"i{number}", None, "c", "h", REBALANCE_MS, frozenset({"foo"}), "f.*", None, {}
        )
        group.consumer_heartbeat(request, driver.image, None, driver.now_ms)
    assert sum(len(pairs) for member in group.describe().members for pairs in member.target.values()) == 50
    group.tick(driver.now_ms + SESSION_MS)
    kept = group.remembered
    assert group.is_empty
    assert (kept.targets, kept._owners, kept._instances, kept.said_bytes) == ({}, {}, {}, 0)
    assert +kept._patterns == {}
    assert group.next_deadline_ms is None


def test_empty_list_of_assignors_means_the_default_assignor() -> None:
    driver = Driver()
    driver.settings.assignors = ()
    assert driver.join("a").error is ErrorCode.none
