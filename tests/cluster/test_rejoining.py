"""In-sync sets and leaders after the return of a broker, by the state of its logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_leader_election import BROKERS, NAME, images, partitions

from penstock.cluster import leader_election
from penstock.cluster.eligible import keeping_eligible, with_members
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState, RegisteredBroker, TopicImage
from penstock.cluster.rejoining import LogCondition, rejoin_rule
from penstock.config import BrokerConfig
from penstock.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, Offset

ONE, TWO, THREE = BROKERS[:3]
LOST = [LogCondition.PARTIAL, LogCondition.VANISHED, LogCondition.MISSING]


def with_topic(image: ClusterImage, partition: PartitionState, **configs: str) -> ClusterImage:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return image.with_topics([TopicImage("t", NO_TOPIC_ID, (partition,), settings, 0)])


def alive(*brokers: BrokerId) -> ClusterImage:
    members = [RegisteredBroker(broker, "h", 1, BrokerEpoch(1), f"m{broker}") for broker in brokers]
    return ClusterImage("c").with_members(members, NO_LEADER)


def resume_leadership(
    image: ClusterImage, broker: BrokerId, copy: LogCondition, before: PartitionState, **configs: str
) -> PartitionState:
    rule = rejoin_rule(broker, lambda _: copy, BrokerConfig())
    return rule(with_topic(image, before, **configs), NAME, before) or before


def alone(**changes: Any) -> PartitionState:
    """Broker 3 was the last in-sync replica of three and stopped uncleanly."""
    state = PartitionState(NO_LEADER, LeaderEpoch(7), (ONE, TWO, THREE), (THREE,), 0)
    return replace(state, **changes)


@given(images(), partitions(), st.sampled_from(BROKERS), st.sampled_from(LogCondition), st.integers(1, 3))
def test_incomplete_replica_leaves_shared_in_sync_sets_and_eligible_leaders(
    image: ClusterImage, before: PartitionState, broker: BrokerId, copy: LogCondition, min_in_sync: int
) -> None:
    after = resume_leadership(image, broker, copy, before, min_insync_replicas=str(min_in_sync))
    if copy is LogCondition.COMPLETE:
        assert after == before
        return
    assert broker not in after.isr or after.isr == (broker,)
    assert broker not in after.eligible, "with durability=auto"
    assert broker not in after.last_resort or copy.has_log
    assert not set(after.isr) & {*after.eligible, *after.last_resort}
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader_epoch >= before.leader_epoch
    if after.leader != before.leader:
        assert after.leader_epoch == before.leader_epoch + 1


@given(images(), partitions(), st.sampled_from(BROKERS), st.sampled_from(LogCondition), st.integers(1, 3))
def test_rejoin_rule_settles_in_one_step(
    image: ClusterImage, before: PartitionState, broker: BrokerId, copy: LogCondition, min_in_sync: int
) -> None:
    after = resume_leadership(image, broker, copy, before, min_insync_replicas=str(min_in_sync))
    again = resume_leadership(image, broker, copy, after, min_insync_replicas=str(min_in_sync))
    assert again == after


@pytest.mark.parametrize("copy", LOST)
@pytest.mark.parametrize("brokers", [(), (TWO,), (ONE, TWO)])
def test_sole_member_that_lost_records_yields_to_eligible_leaders(
    copy: LogCondition, brokers: tuple[BrokerId, ...]
) -> None:
    before = alone(eligible=(ONE, TWO))
    after = resume_leadership(alive(*brokers), THREE, copy, before)
    assert (after.isr, after.eligible) == ((ONE, TWO), ())
    assert after.leader == (brokers[0] if brokers else NO_LEADER)
    assert after.unclean_epoch == before.unclean_epoch, "nothing that was committed is given up"


def test_sole_member_stays_after_power_loss() -> None:
    before = alone(eligible=(ONE, TWO))
    assert resume_leadership(alive(ONE), THREE, LogCondition.UNCERTAIN, before) == before
    after = resume_leadership(alive(ONE), THREE, LogCondition.UNCERTAIN, before, durability="os")
    assert (after.leader, after.isr, after.last_resort) == (ONE, (ONE, TWO), (THREE,))


@pytest.mark.parametrize("copy", [LogCondition.UNCERTAIN, LogCondition.PARTIAL, LogCondition.VANISHED])
def test_sole_member_without_eligible_leader_keeps_its_log(copy: LogCondition) -> None:
    """A restored or moved directory of a single replica serves the records that it has."""
    before = alone(replicas=(THREE,))
    assert resume_leadership(alive(), THREE, copy, before) == before
    back = leader_election.resume_leadership(THREE)(alive(THREE), NAME, before)
    assert back is not None
    assert (back.leader, back.isr) == (THREE, (THREE,))


def test_new_disk_leads_nothing_until_an_operator_decides() -> None:
    after = resume_leadership(alive(), THREE, LogCondition.MISSING, alone())
    assert (after.leader, after.isr) == (NO_LEADER, ())
    chosen = leader_election.elect_any(alive(TWO), after)
    assert chosen is not None
    assert (chosen.leader, chosen.unclean_epoch) == (TWO, chosen.leader_epoch)


@pytest.mark.parametrize("copy", [LogCondition.UNCERTAIN, LogCondition.PARTIAL])
def test_eligible_leader_that_may_lack_records_becomes_the_last_resort(copy: LogCondition) -> None:
    after = resume_leadership(alive(), TWO, copy, alone(eligible=(ONE, TWO)))
    assert (after.isr, after.eligible, after.last_resort) == ((THREE,), (ONE,), (TWO,))


@given(images(), partitions(), st.sampled_from(BROKERS), st.integers(1, 3))
def test_uncertain_replica_is_last_resort_while_nothing_can_be_committed(
    image: ClusterImage, before: PartitionState, broker: BrokerId, min_in_sync: int
) -> None:
    after = resume_leadership(
        image, broker, LogCondition.UNCERTAIN, before, min_insync_replicas=str(min_in_sync)
    )
    if broker in before.isr and len(before.isr) > 1:
        has_leader = any(member in image.brokers for member in after.isr)
        can_commit = has_leader and len(after.isr) >= min(min_in_sync, len(after.replicas))
        assert (broker in after.last_resort) == (not can_commit)


def test_fsynced_replica_is_preferred_to_restored_one_after_power_loss() -> None:
    """Brokers 1 and 2 lose power, and broker 3 returns with an old directory."""
    state = PartitionState(ONE, LeaderEpoch(4), (ONE, TWO, THREE), (ONE, TWO, THREE), 0)
    for broker in (ONE, TWO):
        state = resume_leadership(alive(), broker, LogCondition.UNCERTAIN, state, durability="fsync")
    assert (state.isr, state.eligible, state.last_resort) == ((THREE,), (ONE, TWO), ())
    state = resume_leadership(alive(ONE, TWO), THREE, LogCondition.PARTIAL, state, durability="fsync")
    assert (state.leader, state.isr, state.last_resort) == (ONE, (ONE, TWO), (THREE,))


@given(images(), partitions(), st.sampled_from(BROKERS), st.integers(1, 3))
def test_fsynced_replica_that_leaves_after_power_loss_is_eligible(
    image: ClusterImage, before: PartitionState, broker: BrokerId, min_in_sync: int
) -> None:
    after = resume_leadership(
        image,
        broker,
        LogCondition.UNCERTAIN,
        before,
        min_insync_replicas=str(min_in_sync),
        durability="fsync",
    )
    if broker in before.isr and len(before.isr) > 1:
        assert broker in after.eligible
        assert broker not in after.isr


def test_fsynced_replica_leads_after_a_dead_member_with_a_session() -> None:
    """Broker 1 returns after a power loss, while the session of broker 2 outlives its process and disk."""
    before = PartitionState(TWO, LeaderEpoch(4), (ONE, TWO), (ONE, TWO), 0)
    left = resume_leadership(alive(TWO), ONE, LogCondition.UNCERTAIN, before, durability="fsync")
    assert (left.leader, left.isr, left.eligible) == (TWO, (TWO,), (ONE,))
    elected = leader_election.elect(alive(ONE), NAME, left)
    assert elected is not None
    assert (elected.leader, elected.unclean_epoch) == (ONE, before.unclean_epoch)
    again = resume_leadership(alive(ONE), TWO, LogCondition.MISSING, elected, durability="fsync")
    assert (again.leader, again.isr) == (ONE, (ONE,))


def test_last_resort_leads_when_others_return_without_logs() -> None:
    """Power loss and a new disk at once: records acknowledged after an fsync are still there."""
    before = PartitionState(ONE, LeaderEpoch(4), (ONE, TWO), (ONE, TWO), 0)
    left = resume_leadership(alive(), ONE, LogCondition.UNCERTAIN, before)
    assert (left.leader, left.isr, left.last_resort) == (NO_LEADER, (TWO,), (ONE,))
    lost = resume_leadership(alive(ONE), TWO, LogCondition.MISSING, left)
    assert (lost.leader, lost.isr, lost.last_resort) == (ONE, (ONE,), ())
    assert lost.unclean_epoch == lost.leader_epoch
    waiting = resume_leadership(alive(), TWO, LogCondition.MISSING, left)
    assert (waiting.leader, waiting.isr) == (NO_LEADER, (ONE,))


def test_eligible_leader_is_elected_when_no_in_sync_replica_is_alive() -> None:
    before = alone(leader=THREE, eligible=(ONE, TWO))
    after = leader_election.elect(alive(TWO), NAME, before)
    assert after is not None
    assert (after.leader, after.isr, after.eligible) == (TWO, (ONE, TWO, THREE), ())
    assert after.unclean_epoch == before.unclean_epoch


@pytest.mark.parametrize(("min_in_sync", "eligible"), [(1, ()), (2, ()), (3, (THREE,))])
def test_stopping_member_stays_eligible_below_min_in_sync(
    min_in_sync: int, eligible: tuple[BrokerId, ...]
) -> None:
    before = PartitionState(ONE, LeaderEpoch(4), (ONE, TWO, THREE), (ONE, TWO, THREE), 0)
    image = alive(ONE, TWO, THREE)
    image = image.with_members(
        [replace(broker, is_stopping=broker.node_id == THREE) for broker in image.brokers.values()], NO_LEADER
    )
    image = with_topic(image, before, min_insync_replicas=str(min_in_sync))
    after = keeping_eligible(leader_election.elect, BrokerConfig())(image, NAME, before)
    assert after is not None
    assert (after.isr, after.eligible) == ((ONE, TWO), eligible)


@given(partitions(), st.data(), st.booleans())
def test_replicas_that_leave_are_eligible_until_min_isr_is_reached(
    before: PartitionState, data: st.DataObject, keeps_eligible: bool
) -> None:
    members = tuple(data.draw(st.lists(st.sampled_from(before.replicas), unique=True)))
    after = with_members(
        before, members, keeps_eligible=keeps_eligible, committed=Offset(7), log_end=Offset(9)
    )
    expected = ({*before.eligible, *before.isr} - set(members)) if keeps_eligible else set()
    assert set(after.eligible) == expected
    assert after.committed == (7 if keeps_eligible else -1)
    assert after.sole_end == (9 if keeps_eligible and len(members) == 1 else -1)
    assert after.isr == members
