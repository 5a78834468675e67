"""Election rules for any image: which replicas may lead, and what must never happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import leader_election
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState, RegisteredBroker, TopicImage
from penstock.cluster.metadata_change import Rule
from penstock.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

NAME = TopicPartition("t", 0)
BROKERS = [BrokerId(number) for number in range(1, 6)]


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=5, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    others = [replica for replica in replicas if replica not in isr]
    outside = tuple(draw(st.lists(st.sampled_from(others), unique=True))) if others else ()
    split = draw(st.integers(0, len(outside)))
    epoch = LeaderEpoch(draw(st.integers(0, 9)))
    return PartitionState(
        leader, epoch, replicas, isr, 0, last_resort=outside[:split], eligible=outside[split:]
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    alive = draw(st.lists(st.sampled_from(BROKERS), unique=True))
    machines = draw(st.integers(1, len(BROKERS)))
    members = [
        RegisteredBroker(node_id, "h", 1, BrokerEpoch(1), f"m{node_id % machines}", None, draw(st.booleans()))
        for node_id in alive
    ]
    return ClusterImage("c").with_members(members, NO_LEADER)


def rules(broker: BrokerId) -> list[Rule]:
    return [leader_election.elect, leader_election.prefer, leader_election.resume_leadership(broker)]


@given(images(), partitions(), st.sampled_from(BROKERS))
def test_a_leader_is_complete_and_leads_in_a_new_epoch(
    image: ClusterImage, before: PartitionState, broker: BrokerId
) -> None:
    for rule in rules(broker):
        after = rule(image, NAME, before)
        if after is None:
            continue
        assert after != before
        assert after.replicas == before.replicas
        is_any_alive = any(member in image.brokers for member in before.isr)
        allowed = {*before.isr, *(() if is_any_alive else before.eligible)}
        assert set(after.isr) <= allowed, "only a leader takes others into the set"
        assert not {*after.last_resort, *after.eligible} & set(after.isr)
        assert after.leader == NO_LEADER or after.leader in after.isr
        assert after.unclean_epoch == before.unclean_epoch
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
        else:
            assert after.leader_epoch >= before.leader_epoch


@given(images(), partitions())
def test_an_election_settles_a_partition_at_once(image: ClusterImage, before: PartitionState) -> None:
    after = leader_election.elect(image, NAME, before) or before
    assert leader_election.elect(image, NAME, after) is None
    alive = [member for member in after.isr if member in image.brokers]
    assert after.leader in alive if alive else after.leader == NO_LEADER
    staying = [member for member in alive if not image.is_stopping(member)]
    if staying:
        assert not image.is_stopping(after.leader)
    if len({image.brokers[member].machine_id for member in staying}) > 1:
        assert not any(image.is_stopping(member) for member in after.isr)


@given(images(), partitions())
def test_only_a_leader_leaves_one_machine_in_sync(image: ClusterImage, before: PartitionState) -> None:
    """The leader fsyncs first: records on several machines need not be on disk."""
    after = leader_election.elect(image, NAME, before) or before
    machines = {image.brokers[member].machine_id for member in after.isr if member in image.brokers}
    assert set(after.isr) >= set(before.isr) or len(machines) > 1


@given(images(), partitions())
def test_dead_replicas_stay_in_the_in_sync_set(image: ClusterImage, before: PartitionState) -> None:
    after = leader_election.elect(image, NAME, before) or before
    assert all(image.is_stopping(member) for member in set(before.isr) - set(after.isr))
    assert after.isr or not before.isr


@given(images(), partitions())
def test_preferred_leader_is_stable_under_elections(image: ClusterImage, before: PartitionState) -> None:
    settled = leader_election.elect(image, NAME, before) or before
    preferred = leader_election.prefer(image, NAME, settled) or settled
    assert leader_election.prefer(image, NAME, preferred) is None
    assert leader_election.elect(image, NAME, preferred) is None


@given(images(), partitions())
def test_other_replica_leads_only_without_alive_in_sync_member(
    image: ClusterImage, before: PartitionState
) -> None:
    after = leader_election.elect_any(image, before)
    in_sync, alive = set(before.isr) & set(image.brokers), set(before.replicas) & set(image.brokers)
    eligible = set(before.eligible) & set(image.brokers)
    if before.leader in image.brokers or not alive:
        assert after is None
        return
    assert after is not None
    assert after.leader in (in_sync or eligible or alive)
    assert after.leader_epoch == before.leader_epoch + 1
    is_clean = bool(in_sync or eligible)
    assert after.unclean_epoch == (before.unclean_epoch if is_clean else after.leader_epoch)
    if not is_clean:
        assert (after.isr, after.has_eligible) == ((after.leader,), False)
    else:
        assert set(after.isr) == {*before.isr, *(() if in_sync else before.eligible)}


def test_preferred_leaders_return_above_imbalance_limit() -> None:
    def led_by(leader: int) -> PartitionState:
        return PartitionState(
            BrokerId(leader), LeaderEpoch(0), (BROKERS[0], BROKERS[1]), tuple(BROKERS[:2]), 0
        )

    states = tuple(led_by(2 if index < 2 else 1) for index in range(10))
    image = ClusterImage("c").with_topics([TopicImage("t", NO_TOPIC_ID, states, {}, 0)])
    assert leader_election.imbalanced(image, 20) == frozenset()
    assert leader_election.imbalanced(image, 19) == {1}
    members = [RegisteredBroker(node_id, "h", 1, BrokerEpoch(1), "m") for node_id in BROKERS[:2]]
    image = image.with_members(members, NO_LEADER)
    assert len(leader_election.affected(image, ["t"], leader_election.prefer_for({BrokerId(1)}))) == 2
    assert leader_election.affected(image, ["t"], leader_election.prefer_for({BrokerId(2)})) == []
