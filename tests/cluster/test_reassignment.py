"""Reassignment rules for any image: no replica is removed too early, and the leader is always in sync."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.cluster import leader_election, reassignment
from penstock.cluster.coordination import Node
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState, RegisteredBroker, TopicImage
from penstock.cluster.loading import decode_partition, encode_partition
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

NAME = TopicPartition("t", 0)
BROKERS = [BrokerId(number) for number in range(1, 7)]
CONFIG = BrokerConfig()

targets = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=5, unique=True)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def image_of(*alive: int, min_in_sync: int = 1, stopping: tuple[int, ...] = ()) -> ClusterImage:
    members = [
        RegisteredBroker(BrokerId(number), "h", 1, BrokerEpoch(1), f"m{number}", None, number in stopping)
        for number in alive
    ]
    topic = TopicImage("t", NO_TOPIC_ID, (), {"min.insync.replicas": str(min_in_sync)}, 0)
    return ClusterImage("c").with_members(members, NO_LEADER).with_topics([topic])


def on(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionState:
    members = ids(*(replicas if isr is None else isr))
    first = members[0] if members else NO_LEADER
    return PartitionState(
        first if leader is None else BrokerId(leader), LeaderEpoch(4), ids(*replicas), members, 7
    )


def finished(image: ClusterImage, partition: PartitionState) -> PartitionState | None:
    return reassignment.complete(CONFIG)(image, NAME, partition)


def code_of(refusal: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return refusal.value.code


# --- single steps


def test_reassignment_removes_replicas_after_added_ones_are_in_sync() -> None:
    image = image_of(1, 2, 3, 4, 5)
    moving = reassignment.begin(image, on(1, 2, 3), ids(3, 4, 5))
    assert moving.replicas == ids(1, 2, 3, 4, 5)
    assert (moving.adding_replicas, moving.removing_replicas) == (ids(4, 5), ids(1, 2))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 4, ids(1, 2, 3))
    assert finished(image, moving) is None
    assert finished(image, replace(moving, isr=ids(1, 2, 3, 4))) is None
    done = finished(image, replace(moving, isr=ids(1, 2, 3, 4, 5)))
    assert done == PartitionState(BrokerId(3), LeaderEpoch(5), ids(3, 4, 5), ids(3, 4, 5), 7)


def test_adding_reassignment_is_in_progress_until_in_sync() -> None:
    image = image_of(1, 2, 3)
    moving = reassignment.begin(image, on(2, 3), ids(1, 2, 3))
    assert (moving.replicas, moving.adding_replicas) == (ids(2, 3, 1), ids(1))
    assert moving.is_reassigning
    assert finished(image, moving) is None
    done = finished(image, replace(moving, isr=ids(1, 2, 3)))
    assert done == PartitionState(BrokerId(2), LeaderEpoch(5), ids(1, 2, 3), ids(1, 2, 3), 7)


def test_remaining_leader_gets_new_epoch_that_fences_removed_replicas() -> None:
    image = image_of(1, 2, 3)
    moving = replace(reassignment.begin(image, on(1, 2), ids(1, 3)), isr=ids(1, 2, 3))
    done = finished(image, moving)
    assert done is not None
    assert (done.leader, done.leader_epoch, done.isr) == (1, 5, ids(1, 3))


def test_cancelled_reassignment_restores_original_state() -> None:
    image, before = image_of(1, 2, 3, 4, 5), on(1, 2, 3)
    moving = replace(reassignment.begin(image, before, ids(3, 4, 5)), isr=ids(1, 2, 3, 4))
    back = reassignment.cancel(moving)
    assert (back.replicas, back.target_replicas) == (ids(1, 2, 3, 4), ids(1, 2, 3))
    assert (back.isr, back.leader, back.leader_epoch) == (moving.isr, 1, 5), (
        "5 was not in sync, and is fenced"
    )
    assert reassignment.cancel(back) == back
    assert finished(image, back) == replace(before, leader_epoch=LeaderEpoch(6))


def test_reassignment_without_progress_is_cancelled_at_once() -> None:
    image, before = image_of(1, 2, 3), on(1, 2)
    moving = reassignment.begin(image, before, ids(2, 3))
    assert reassignment.cancel(moving) == replace(before, leader_epoch=LeaderEpoch(5))


def test_new_target_replaces_the_first_and_drops_its_added_replicas() -> None:
    image = image_of(1, 2, 3, 4)
    moving = replace(reassignment.begin(image, on(1, 2), ids(1, 3)), isr=ids(1, 2, 3), leader=BrokerId(3))
    moving = reassignment.begin(image, moving, ids(1, 4))
    assert (moving.replicas, moving.target_replicas) == (ids(1, 2, 4, 3), ids(1, 4))
    assert moving.removing_replicas == ids(2, 3)
    assert (moving.isr, moving.leader) == (ids(1, 2, 3), 3)
    done = finished(image, replace(moving, isr=ids(1, 2, 3, 4)))
    assert done is not None
    assert (done.replicas, done.isr, done.leader) == (ids(1, 4), ids(1, 4), 1)


def test_in_sync_set_on_one_machine_is_written_by_its_leader() -> None:
    """Records on two machines need not be on disk yet."""
    image = image_of(1, 2)
    moving = replace(reassignment.begin(image, on(1), ids(2)), isr=ids(1, 2))
    led = finished(image, moving)
    assert led == replace(moving, leader=BrokerId(2), leader_epoch=LeaderEpoch(5))
    assert finished(image, led) is None
    assert reassignment.leaving(image, NAME, led, CONFIG) == {1}
    alone = replace(led, isr=ids(2))
    assert finished(image, alone) == PartitionState(BrokerId(2), LeaderEpoch(6), ids(2), ids(2), 7)


def test_replica_order_changes_at_once() -> None:
    ordered = reassignment.begin(image_of(1, 2), on(1, 2), ids(2, 1))
    assert (ordered.replicas, ordered.leader, ordered.leader_epoch) == (ids(2, 1), 1, 4)
    assert not ordered.is_reassigning


def test_replicas_are_removed_without_replacement() -> None:
    image = image_of(1, 2, 3, min_in_sync=2)
    shrinking = reassignment.begin(image, on(1, 2, 3), ids(2, 3))
    assert shrinking.removing_replicas == ids(1)
    done = finished(image, shrinking)
    assert done == PartitionState(BrokerId(2), LeaderEpoch(5), ids(2, 3), ids(2, 3), 7)


def test_reassignment_waits_for_added_dead_broker() -> None:
    image = image_of(1, 2, 3)
    moving = replace(reassignment.begin(image, on(1, 2), ids(1, 3)), isr=ids(1, 2, 3))
    assert finished(image_of(1, 2), moving) is None
    assert finished(image_of(1, 2, 3, stopping=(3,)), moving) is None
    assert finished(image, moving) is not None


def test_reassignment_never_makes_a_partition_refuse_writes() -> None:
    """Broker 3 stays a replica but lags: 2 and 4 are too few if three have to be in sync."""
    image = image_of(1, 2, 3, 4, min_in_sync=3)
    moving = replace(reassignment.begin(image, on(1, 2, 3), ids(2, 3, 4)), isr=ids(1, 2, 4))
    assert finished(image, moving) is None
    assert finished(image, replace(moving, isr=ids(1, 2, 3, 4))) is not None
    assert finished(image_of(1, 2, 3, 4, min_in_sync=2), moving) is not None


def test_replica_on_offline_broker_can_stay() -> None:
    moving = reassignment.begin(image_of(1, 2, 4), on(1, 2, 3), ids(4, 2, 3))
    assert moving.adding_replicas == ids(4)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9), (-1,)])
def test_impossible_target_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(BrokerError) as refusal:
        reassignment.begin(image_of(1, 2, 3), on(1, 2), ids(*target))
    assert code_of(refusal) is ErrorCode.invalid_replica_assignment


def test_replica_count_changes_only_if_the_request_allows_it() -> None:
    image = image_of(1, 2, 3)
    with pytest.raises(BrokerError) as refusal:
        reassignment.begin(image, on(1, 2), ids(1, 2, 3), may_change_count=False)
    assert code_of(refusal) is ErrorCode.invalid_replication_factor
    moving = reassignment.begin(image, on(1, 2), ids(1, 3), may_change_count=False)
    # The original replicas count, not the temporary ones.
    assert reassignment.begin(image, moving, ids(3, 1), may_change_count=False).is_reassigning


def test_cancel_without_reassignment_is_refused() -> None:
    with pytest.raises(BrokerError) as refusal:
        reassignment.cancel(on(1, 2))
    assert code_of(refusal) is ErrorCode.no_reassignment_in_progress


def test_cancel_completes_when_original_replicas_are_in_sync() -> None:
    image = image_of(1, 2, 3)
    moving = replace(reassignment.begin(image, on(1, 2), ids(1, 3)), isr=ids(3), leader=BrokerId(3))
    back = reassignment.cancel(moving)
    assert finished(image, back) is None
    done = finished(image, replace(back, isr=ids(1, 2, 3)))
    assert done is not None
    assert (done.replicas, done.leader) == (ids(1, 2), 1)


def test_states_of_versions_without_reassignment_are_read() -> None:
    node = Node(b'{"leader":1,"leader_epoch":4,"replicas":[1,2],"isr":[1,2]}', 7, 0)
    assert decode_partition(node) == on(1, 2)
    assert encode_partition(on(1, 2)) == node.data


# --- properties


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    alive = draw(st.lists(st.sampled_from(BROKERS), unique=True, min_size=1))
    stopping = draw(st.lists(st.sampled_from(alive), unique=True, max_size=1))
    return image_of(*alive, min_in_sync=draw(st.integers(1, 4)), stopping=tuple(stopping))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    """Partition in any stage of a reassignment, or without one."""
    origin = tuple(draw(targets))
    target = tuple(draw(targets)) if draw(st.booleans()) else ()
    target = () if set(target) == set(origin) else target
    adding = tuple(replica for replica in target if replica not in origin)
    replicas = origin + adding
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    return PartitionState(leader, LeaderEpoch(draw(st.integers(0, 9))), replicas, isr, 3, adding, target)


def check(before: PartitionState, after: PartitionState) -> None:
    assert set(after.isr) <= set(before.isr) & set(after.replicas), "only a leader takes others into the set"
    assert after.isr or not before.isr, "the last that is in sync is never given up"
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.partition_epoch == before.partition_epoch
    if after.leader != before.leader or set(before.replicas) - set(after.replicas):
        assert after.leader_epoch == before.leader_epoch + 1, "who was given up is fenced"
    assert set(after.adding_replicas) | set(after.target_replicas) <= set(after.replicas)
    assert len(set(after.replicas)) == len(after.replicas)


def check_machines(image: ClusterImage, before: PartitionState, after: PartitionState) -> None:
    if len(after.isr) < len(before.isr):
        assert len(set(after.isr) & set(image.brokers)) > 1, "only a leader may leave one machine in the set"


@given(images(), partitions())
def test_reassignment_completes_only_when_added_replicas_are_in_sync(
    image: ClusterImage, before: PartitionState
) -> None:
    after = finished(image, before)
    if after is None:
        return
    check(before, after)
    check_machines(image, before, after)
    alive = set(before.isr) & set(image.brokers)
    assert set(before.adding_replicas) & set(before.target_replicas) <= alive
    if after.is_reassigning:
        assert after.leader in before.target_replicas
        assert replace(after, leader=before.leader, leader_epoch=before.leader_epoch) == before
        return
    assert after.replicas == before.target_replicas
    if len(after.isr) < len(before.isr):
        needed = min(int(image.topics["t"].configs["min.insync.replicas"]), len(after.replicas))
        assert len(set(after.isr) & set(image.brokers)) >= needed


@given(images(), partitions(), targets)
def test_reassignment_begins_without_removing_replicas(
    image: ClusterImage, before: PartitionState, target: list[BrokerId]
) -> None:
    try:
        after = reassignment.begin(image, before, target)
    except BrokerError:
        assert set(target) - set(image.brokers) - set(before.replicas)
        return
    check(before, after)
    origin = set(before.replicas) - set(before.adding_replicas)
    assert origin | set(before.isr) <= set(after.replicas)
    assert (after.isr, after.leader) == (before.isr, before.leader)
    assert set(after.final_replicas) == set(target)
    if after.is_reassigning:
        assert set(after.replicas) - set(after.adding_replicas) == origin


@given(images(), partitions(), targets, targets)
def test_cancel_returns_to_original_replicas(
    image: ClusterImage, before: PartitionState, first: list[BrokerId], second: list[BrokerId]
) -> None:
    assume(not before.is_reassigning)
    try:
        moving = reassignment.begin(image, before, first)
        moving = reassignment.begin(image, moving, second) if moving.is_reassigning else moving
    except BrokerError:
        return
    assume(moving.is_reassigning)
    after = reassignment.cancel(moving)
    check(moving, after)
    assert after.final_replicas == before.replicas
    assert after.isr == before.isr


@given(images(), partitions())
def test_a_partition_settles_within_a_few_steps(image: ClusterImage, before: PartitionState) -> None:
    rule, state = reassignment.settle(CONFIG), before
    for _ in range(3):
        after = rule(image, NAME, state)
        if after is None:
            break
        check(state, after)
        check_machines(image, state, after)
        state = after
    assert rule(image, NAME, state) is None
    assert finished(image, state) is None
    assert leader_election.elect(image, NAME, state) is None


@given(partitions())
def test_state_round_trip(state: PartitionState) -> None:
    assert decode_partition(Node(encode_partition(state), state.partition_epoch, 0)) == state
