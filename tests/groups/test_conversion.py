"""Conversion of groups between the classic and the consumer protocol, and classic members of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_driver import (
    CLASSIC_SESSION_MS,
    REBALANCE_MS,
    SESSION_MS,
    Driver,
    image_of,
    topic,
)

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeats import check_heartbeat
from penstock.groups.consumer_protocol import encode_assignment
from penstock.groups.group import ConsumerHeartbeat, GroupKind, GroupState, JoinResult, SyncRequest
from penstock.groups.records import ClassicGroupKey


@pytest.fixture
def driver() -> Driver:
    return Driver(group_initial_rebalance_delay_ms=0)


def classic(driver: Driver, *assignments: dict[str, set[int]], **options: Any) -> list[str]:
    """A stable classic group with these members and assignments."""
    driver.groups.add_classic("g")
    member_ids = [f"c{number}" for number in range(len(assignments))]
    for member_id in member_ids:
        driver.ask_classic_join("", new_member_id=member_id, **options)
    for member_id in member_ids[:-1]:  # all rejoin for the newest member
        driver.ask_classic_join(member_id, **options)
    assert isinstance(driver.group, ClassicGroup)
    saved = driver.group.saved()
    assert saved.leader is not None
    encoded = {
        member_id: encode_assignment({name: frozenset(n) for name, n in assigned.items()}, 1)
        for member_id, assigned in zip(member_ids, assignments, strict=True)
    }
    for member_id in sorted(member_ids, key=lambda each: each != saved.leader):
        request = SyncRequest(
            member_id, None, saved.generation, saved.protocol_type, saved.protocol_name, encoded
        )
        driver.take(driver.group.sync(request, object(), driver.now_ms))
    assert driver.group.state is GroupState.STABLE
    return member_ids


def generation(driver: Driver) -> int:
    assert isinstance(driver.group, ClassicGroup)
    return driver.group.generation


# Upgrade


def test_consumer_protocol_member_upgrades_a_classic_group(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2}}, {"foo": {3, 4, 5}})
    before = generation(driver)
    result = driver.join("n")
    assert driver.group.kind is GroupKind.CONSUMER
    assert driver.consumer.describe().epoch == before + 1
    assert result.member_epoch == before + 1
    assert result.assignment == {}, "everything is with the others still"
    assert driver.assigned("c0") == {"foo": {0, 1, 2}}
    assert driver.assigned("c1") == {"foo": {3, 4, 5}}
    assert driver.last[0].key == ClassicGroupKey("g")
    assert driver.last[0].value is None


def test_classic_members_revoke_partitions_for_a_consumer_member(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2}}, {"foo": {3, 4, 5}})
    before = generation(driver)
    epoch = driver.join("n").member_epoch
    for member_id in ("c0", "c1"):
        assert driver.classic_beat(member_id, before) is ErrorCode.rebalance_in_progress
        owned = driver.assigned(member_id)
        joined = driver.classic_join(member_id, owned=owned)
        assert joined.error is ErrorCode.none
        assert joined.generation == before, "it has something to give up first"
        kept = driver.classic_assignment(member_id, before)
        assert len(kept["foo"]) == 2
        assert driver.classic_beat(member_id, before) is ErrorCode.rebalance_in_progress
        assert driver.beat("n", epoch).assignment is None or member_id == "c1"
        joined = driver.classic_join(member_id, owned=kept)
        assert joined.generation == epoch
        assert driver.classic_assignment(member_id, epoch) == kept
        assert driver.classic_beat(member_id, epoch) is ErrorCode.none
    driver.beat("n", epoch)
    assert len(driver.assigned("n")["foo"]) == 2
    assert driver.group.state is GroupState.STABLE


def test_join_of_an_eager_classic_member_revokes_all_its_partitions(driver: Driver) -> None:
    classic(driver, {"foo": set(range(6))}, version=0, protocols=("range",))
    epoch = driver.join("n").member_epoch
    joined = driver.classic_join("c0", version=0, protocols=("range",))
    assert joined.generation == epoch
    assert len(driver.classic_assignment("c0", epoch)["foo"]) == 3
    driver.beat("n", epoch)
    assert len(driver.assigned("n")["foo"]) == 3


def test_upgrade_ends_waiting_joins_and_keeps_their_members(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2}}, {"foo": {3, 4, 5}})
    group = driver.group
    _, answers = driver.ask_classic_join("", new_member_id="c2")
    assert answers == {}
    driver.join("n")
    assert group is not driver.group
    assert set(driver.consumer.remembered.members) == {"c0", "c1", "c2", "n"}
    assert driver.assigned("c2") == {}
    assert driver.assigned("c0") == {"foo": {0, 1, 2}}, "it may still own them"


def test_owned_partitions_are_kept_after_an_unfinished_rebalance(driver: Driver) -> None:
    """A classic group drops its assignments then; the members keep reading until a response revokes them."""
    classic(driver, {"foo": set(range(6))})
    driver.ask_classic_join("", new_member_id="c1")
    driver.ask_classic_join("c0", owned={"foo": range(6)})
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    driver.ask_classic_join("", new_member_id="c2")
    assert isinstance(driver.group, ClassicGroup)
    assert not any(member.assignment for member in driver.group.saved().members)
    assert driver.join("n").assignment == {}
    assert driver.assigned("c0") == {"foo": set(range(6))}


def test_upgrade_gives_a_partition_assigned_twice_one_owner(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2, 77, -1}, "nix": {0}}, {"foo": {2, 3}})
    driver.join("n")
    assert driver.assigned("c0") == {"foo": {0, 1, 2}}
    assert driver.assigned("c1") == {"foo": {3}}


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_migration_policy_may_forbid_the_upgrade(policy: str) -> None:
    driver = Driver(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    classic(driver, {"foo": {0}})
    assert driver.beat("n", 0, topics=("foo",)).error is ErrorCode.group_id_not_found
    assert driver.group.kind is GroupKind.CLASSIC


def test_classic_group_of_another_protocol_type_is_not_upgraded(driver: Driver) -> None:
    classic(driver, {}, protocol_type="connect")
    assert driver.beat("n", 0, topics=("foo",)).error is ErrorCode.group_id_not_found


def test_classic_group_with_unreadable_subscriptions_is_not_upgraded(driver: Driver) -> None:
    classic(driver, {}, metadata=b"\x00\x00\x7f")
    assert driver.beat("n", 0, topics=("foo",)).error is ErrorCode.group_id_not_found
    assert driver.group.kind is GroupKind.CLASSIC


def test_an_upgraded_group_survives_a_restart(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2}}, {"foo": {3, 4, 5}})
    before = generation(driver)
    driver.join("n")
    driver.restart()
    assert driver.classic_beat("c0", before) is ErrorCode.rebalance_in_progress
    assert driver.assigned("c0") == {"foo": {0, 1, 2}}


# Downgrade


def test_leave_of_the_last_consumer_protocol_member_downgrades_the_group(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1, 2}}, {"foo": {3, 4, 5}})
    epoch = driver.join("n").member_epoch
    driver.beat("n", -1)
    assert driver.group.kind is GroupKind.CLASSIC
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert generation(driver) == epoch + 1
    assert driver.classic_beat("c0", generation(driver)) is ErrorCode.rebalance_in_progress
    driver.restart()
    assert driver.group.kind is GroupKind.CLASSIC


def test_the_generation_after_a_downgrade_is_newer_than_any_before(driver: Driver) -> None:
    (member_id,) = classic(driver, {"foo": {0}})
    epoch = driver.join("n").member_epoch
    driver.beat("n", -1)
    _, answers = driver.ask_classic_join(member_id)
    (joined,) = answers.values()
    assert isinstance(joined, JoinResult)
    assert joined.generation > epoch
    assert joined.leader == member_id


def test_expiry_of_the_last_consumer_protocol_member_downgrades_the_group(driver: Driver) -> None:
    classic(driver, {"foo": {0}}, session_timeout_ms=SESSION_MS * 10)
    driver.join("n")
    driver.pass_ms(SESSION_MS)
    assert driver.group.kind is GroupKind.CLASSIC


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_migration_policy_may_forbid_the_downgrade(policy: str) -> None:
    driver = Driver(group_consumer_migration_policy=policy)
    driver.join("n")
    assert driver.classic_join("c").error is ErrorCode.none
    driver.beat("n", -1)
    assert driver.group.kind is GroupKind.CONSUMER
    joined = driver.classic_join("c")
    assert driver.classic_assignment("c", joined.generation) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_static_member_keeps_its_assignment_over_a_protocol_change(driver: Driver) -> None:
    driver.join("n")
    driver.classic_join("", instance_id="i", new_member_id="c")
    driver.beat("n", 1)
    driver.beat("n", 1, owned=driver.assigned("n"))
    joined = driver.classic_join("c", instance_id="i")
    had = driver.classic_sync("c", joined.generation, "i")
    assert had.error is ErrorCode.none
    had_named = driver.assigned("c")
    assert len(had_named["foo"]) == 3
    result = driver.join("m", instance_id="i")
    assert driver.named(result.assignment) == had_named
    assert driver.consumer.remembered.classic_members == 0
    assert driver.classic_beat("c", joined.generation, "i") is ErrorCode.fenced_instance_id


def test_partitions_that_no_leader_noticed_are_assigned_after_an_upgrade(driver: Driver) -> None:
    classic(driver, {"foo": {0, 1}}, instance_id="i")
    before = generation(driver)
    result = driver.join("m", instance_id="i")
    assert result.member_epoch == before + 1
    assert driver.named(result.assignment) == {"foo": {0, 1, 2, 3, 4, 5}}


def test_last_static_member_returning_to_classic_downgrades_the_group(driver: Driver) -> None:
    driver.join("n", instance_id="i")
    driver.beat("n", -2, instance_id="i")
    driver.ask_classic_join("", instance_id="i", new_member_id="c")
    assert driver.group.kind is GroupKind.CLASSIC


# Classic members of a consumer group


@pytest.fixture
def both(driver: Driver) -> Driver:
    driver.join("n")
    driver.classic_join("c")
    driver.settle("n")
    joined = driver.classic_join("c")
    assert driver.classic_assignment("c", joined.generation)["foo"]
    assert driver.group.state is GroupState.STABLE
    return driver


def epoch_of(driver: Driver, member_id: str) -> int:
    return driver.consumer.remembered.members[member_id].epoch


def test_join_gets_its_response_at_once_without_a_leader(driver: Driver) -> None:
    driver.join("n")
    joined = driver.classic_join("", new_member_id="c")
    assert joined.error is ErrorCode.none
    assert (joined.member_id, joined.leader, joined.members) == ("c", "", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "cooperative-sticky")
    assert driver.classic_assignment("c", joined.generation) == {}


def test_classic_member_is_told_to_rejoin_when_its_partitions_are_free(driver: Driver) -> None:
    driver.join("n")
    joined = driver.classic_join("c")
    driver.classic_sync("c", joined.generation)
    assert driver.classic_beat("c", joined.generation) is ErrorCode.none, "the other has it all still"
    driver.settle("n")
    assert driver.classic_beat("c", joined.generation) is ErrorCode.rebalance_in_progress
    again = driver.classic_join("c")
    assert len(driver.classic_assignment("c", again.generation)["foo"]) == 3
    assert driver.classic_beat("c", again.generation) is ErrorCode.none


def test_join_of_a_new_classic_member_gets_member_id_required(driver: Driver) -> None:
    driver.join("n")
    told = driver.classic_join("", new_member_id="c", requires_known_member_id=True)
    assert (told.error, told.member_id) == (ErrorCode.member_id_required, "c")
    assert driver.last == []
    assert driver.classic_join("c", requires_known_member_id=True).error is ErrorCode.none


def test_a_new_subscription_of_a_classic_member_begins_an_epoch(both: Driver) -> None:
    both.see(both.image.with_topics([topic("bar", 2)]))
    epoch = both.consumer.describe().epoch
    both.classic_join("c", "foo", "bar", owned=both.assigned("c"))
    assert both.consumer.describe().epoch == epoch + 1


def test_forged_generations_and_members_are_refused(both: Driver) -> None:
    epoch = epoch_of(both, "c")
    assert both.classic_beat("c", epoch + 1) is ErrorCode.illegal_generation
    assert both.classic_beat("c", epoch - 1) is ErrorCode.illegal_generation
    assert both.classic_beat("x", epoch) is ErrorCode.unknown_member_id
    assert both.classic_beat("n", epoch_of(both, "n")) is ErrorCode.unknown_member_id, "it speaks the other"
    assert both.classic_sync("c", epoch + 1).error is ErrorCode.illegal_generation
    assert both.classic_sync("x", epoch).error is ErrorCode.unknown_member_id
    assert both.classic_beat("c", epoch, "i") is ErrorCode.unknown_member_id
    assert both.classic_sync("c", epoch, protocol_name="range").error is ErrorCode.inconsistent_group_protocol
    assert (
        both.classic_sync("c", epoch, protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    )


def test_sync_with_an_old_epoch_gets_rebalance_in_progress(both: Driver) -> None:
    epoch = epoch_of(both, "c")
    both.join("m")
    assert both.classic_sync("c", epoch).error is ErrorCode.rebalance_in_progress


def test_invalid_classic_joins_of_a_consumer_group_are_refused(both: Driver) -> None:
    for options, code in (
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": ("range",)}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"metadata": b"\x00"}, ErrorCode.inconsistent_group_protocol),
        ({"session_timeout_ms": 0}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.invalid_session_timeout),
    ):
        assert both.classic_join("", new_member_id="d", **options).error is code
        assert both.last == []
    assert "d" not in both.consumer.remembered.members


def test_classic_members_count_against_the_maximum_group_size(driver: Driver) -> None:
    driver = Driver(group_max_size=1)
    driver.join("n")
    assert driver.classic_join("c").error is ErrorCode.group_max_size_reached
    assert (
        driver.classic_join("", instance_id="i", new_member_id="c").error is ErrorCode.group_max_size_reached
    )


def test_an_unknown_member_that_owns_partitions_must_give_them_up_first(both: Driver) -> None:
    assert both.classic_join("d", owned={"foo": {0}}).error is ErrorCode.unknown_member_id
    assert both.last == []
    assert both.classic_join("d").error is ErrorCode.none


def test_silent_classic_member_is_removed_after_its_own_session(both: Driver) -> None:
    both.pass_ms(CLASSIC_SESSION_MS - 1)
    both.beat("n", epoch_of(both, "n"))
    both.pass_ms(1)
    assert set(both.consumer.remembered.members) == {"n"}


def test_commit_extends_the_session_of_a_classic_member_of_a_consumer_group(both: Driver) -> None:
    epoch = epoch_of(both, "c")
    both.pass_ms(CLASSIC_SESSION_MS - 1)
    both.group.check_commit("c", None, epoch, both.now_ms)
    both.pass_ms(CLASSIC_SESSION_MS - 1)
    assert "c" in both.consumer.remembered.members
    with pytest.raises(BrokerError) as refused:
        both.group.check_commit("c", None, epoch + 1, both.now_ms)
    assert refused.value.code is ErrorCode.illegal_generation


def test_classic_member_that_does_not_rejoin_when_told_is_removed(both: Driver) -> None:
    epoch = epoch_of(both, "c")
    both.join("m")
    for _ in range(REBALANCE_MS // 5_000):
        assert both.classic_beat("c", epoch) is ErrorCode.rebalance_in_progress
        both.beat("n", epoch_of(both, "n"), owned=both.assigned("n"))
        both.beat("m", epoch_of(both, "m"), owned=both.assigned("m"))
        both.pass_ms(5_000)
    assert both.classic_beat("c", epoch) is ErrorCode.unknown_member_id


def test_classic_member_that_never_revokes_is_removed_despite_joins(both: Driver) -> None:
    owned = both.assigned("c")
    both.join("m")
    for _ in range(REBALANCE_MS // 5_000):
        joined = both.classic_join("c", owned=owned)
        assert joined.error is ErrorCode.none
        both.classic_sync("c", joined.generation)
        both.beat("n", epoch_of(both, "n"), owned=both.assigned("n"))
        both.beat("m", epoch_of(both, "m"), owned=both.assigned("m"))
        both.pass_ms(5_000)
    assert "c" not in both.consumer.remembered.members


def test_classic_member_that_joins_and_does_not_sync_is_removed(both: Driver) -> None:
    joined = both.classic_join("c", owned=both.assigned("c"))
    for _ in range(REBALANCE_MS // 5_000):
        assert both.classic_beat("c", joined.generation) is ErrorCode.none
        both.beat("n", epoch_of(both, "n"))
        both.pass_ms(5_000)
    assert set(both.consumer.remembered.members) == {"n"}


def test_classic_members_leave_by_id_or_instance(driver: Driver) -> None:
    driver.join("n")
    driver.classic_join("", new_member_id="c")
    driver.classic_join("", instance_id="i", new_member_id="s")
    driver.classic_join("", instance_id="j", new_member_id="t")
    errors = driver.classic_leave(
        ("c", None), ("c", None), ("x", None), ("n", None), ("x", "i"), ("", "i"), ("t", "j"), ("", "k")
    )
    assert errors == (
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    )
    assert set(driver.consumer.remembered.members) == {"n"}


def test_static_classic_member_rejoining_without_its_id_gets_its_assignment(driver: Driver) -> None:
    driver.join("n")
    driver.classic_join("", instance_id="i", new_member_id="c1")
    driver.settle("n")
    driver.classic_join("c1", instance_id="i")
    had = driver.assigned("c1")
    epoch = driver.consumer.describe().epoch
    joined = driver.classic_join("", instance_id="i", new_member_id="c2")
    assert joined.generation == epoch == driver.consumer.describe().epoch
    assert driver.assigned("c2") == had
    assert driver.classic_beat("c1", epoch, "i") is ErrorCode.fenced_instance_id
    assert driver.classic_join("c1", instance_id="i").error is ErrorCode.fenced_instance_id


def test_deleted_topics_are_not_assigned_to_classic_members() -> None:
    driver = Driver(image_of(foo=2, bar=2))
    driver.join("n")
    driver.classic_join("c", "bar")
    driver.classic_join("c", "bar")
    epoch = epoch_of(driver, "c")
    assert driver.assigned("c") == {"bar": {0, 1}}
    driver.see(driver.image.without_topics(["bar"]))
    assert driver.classic_beat("c", epoch) is ErrorCode.rebalance_in_progress
    joined = driver.classic_join("c", "bar", owned={"bar": {0, 1}})
    assert joined.generation == epoch + 1
    assert driver.classic_assignment("c", joined.generation) == {}


def test_description_has_the_protocol_of_each_member(both: Driver) -> None:
    described = {member.member_id: member for member in both.consumer.describe().members}
    assert described["c"].is_classic
    assert described["c"].metadata
    assert not described["n"].is_classic


def test_consumer_group_has_no_waiting_requests(both: Driver) -> None:
    assert isinstance(both.group, ConsumerGroup)
    assert both.group.give_up(ErrorCode.not_coordinator).answers == []


def test_member_that_changes_to_the_consumer_protocol_needs_no_classic_rejoin(both: Driver) -> None:
    epoch = epoch_of(both, "c")
    both.join("m")
    assert both.classic_beat("c", epoch) is ErrorCode.rebalance_in_progress
    both.join("c")
    for _ in range(REBALANCE_MS // 5_000):
        both.settle("c", "m", "n")
        both.pass_ms(5_000)
    assert set(both.consumer.remembered.members) == {"c", "m", "n"}
    assert both.consumer.remembered.classic_members == 0


def test_a_classic_member_may_take_an_instance_id_and_drop_it(driver: Driver) -> None:
    driver.join("n")
    driver.classic_join("c", instance_id="i")
    driver.classic_join("c")
    assert driver.consumer.remembered.static_member("i") is None
    driver.classic_leave(("c", None))
    assert driver.classic_join("", instance_id="i", new_member_id="d").error is ErrorCode.none


def test_invalid_heartbeat_is_refused_before_a_conversion(driver: Driver) -> None:
    settings = driver.settings
    with pytest.raises(BrokerError) as refused:
        check_heartbeat(
            ConsumerHeartbeat("n", 0, None, None, "c", "h", 1, frozenset(), "(", None, {}), settings
        )
    assert refused.value.code is ErrorCode.invalid_regular_expression
