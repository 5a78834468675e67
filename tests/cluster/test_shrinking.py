"""Rules of a smaller partition count, on an image."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from random import Random

import pytest
from test_topics import image_of

from penstock.cluster import shrinking
from penstock.cluster.coordination import Delete, Set
from penstock.cluster.image import ClusterImage, PartitionPhase, RemovedPartition, TopicImage
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.shrinking import CountChange, WantedCount
from penstock.cluster.topics import CreatableTopic, NewPartitions, TopicPlanner
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, Offset, TopicPartition

ORDERS = "orders"
NOW_MS = 5_000
PHASES = PartitionPhase


def image_with(configs: dict[str, str] | None = None, partitions: int = 8) -> ClusterImage:
    planner = TopicPlanner(image_of(1), BrokerConfig(), Random(1))
    return image_of(1).with_topics(
        [planner.plan_topic(CreatableTopic(ORDERS, partitions, 1, configs=configs or {}))]
    )


def changed(
    image: ClusterImage, count: int, change: CountChange = CountChange.SET, *, waits: bool = True
) -> ClusterImage:
    wanted = WantedCount(ORDERS, count, change, waits)
    return image.with_topics([shrinking.plan_count(image, wanted, BrokerConfig(), NOW_MS)])


def with_phase(image: ClusterImage, index: int, phase: PartitionPhase) -> ClusterImage:
    topic = image.topics[ORDERS]
    partitions = list(topic.partitions)
    partitions[index] = shrinking.with_phase(partitions[index], phase, NOW_MS)
    return image.with_topics([replace(topic, partitions=tuple(partitions))])


def phases(image: ClusterImage) -> list[PartitionPhase]:
    return [state.phase for state in image.topics[ORDERS].partitions]


def refusal(image: ClusterImage, count: int, change: CountChange = CountChange.SET) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        changed(image, count, change)
    return caught.value


def test_the_last_partitions_drain() -> None:
    image = changed(image_with(), 5)
    assert phases(image) == [PHASES.ACTIVE] * 5 + [PHASES.DRAINING] * 3
    topic = image.topics[ORDERS]
    assert (topic.active_count, topic.is_shrinking) == (5, True)
    assert topic.partitions[5].phase_since_ms == NOW_MS
    assert topic.partitions[5].waits_for_groups


def test_a_larger_count_makes_draining_and_sealed_partitions_active_again() -> None:
    image = with_phase(changed(image_with(), 2), 7, PHASES.SEALED)
    assert phases(changed(image, 6)) == [PHASES.ACTIVE] * 6 + [PHASES.DRAINING, PHASES.SEALED]
    restored = changed(image, 8)
    assert phases(restored) == [PHASES.ACTIVE] * 8
    assert not restored.topics[ORDERS].is_shrinking


def test_seal_now_refuses_records_of_active_and_draining_partitions() -> None:
    image = with_phase(changed(image_with(), 6), 7, PHASES.SEALED)
    sealing = changed(image, 5, CountChange.SEAL_NOW)
    assert phases(sealing) == [PHASES.ACTIVE] * 5 + [PHASES.SEALING, PHASES.SEALING, PHASES.SEALED]


def test_waiting_for_groups_can_be_given_up_later() -> None:
    image = changed(image_with(), 6)
    image = changed(image, 5, waits=False)
    assert [state.waits_for_groups for state in image.topics[ORDERS].partitions[5:]] == [False] * 3


def test_wrong_counts_are_refused() -> None:
    image = image_with()
    for count in (0, -1, 9):
        assert refusal(image, count).code is ErrorCode.invalid_partitions
    assert "already" in str(refusal(image, 8))
    assert "no sealed partitions" in str(refusal(changed(image, 4), 0, CountChange.DROP_SEALED))
    assert "compacted" in str(refusal(image_with({"cleanup.policy": "compact"}), 4))
    with pytest.raises(BrokerError, match="no topic"):
        shrinking.plan_count(image, WantedCount("nothing", 4), BrokerConfig(), NOW_MS)


def test_a_partition_that_is_being_reassigned_does_not_drain() -> None:
    image = image_with()
    topic = image.topics[ORDERS]
    moving = replace(topic.partitions[7], target_replicas=(BrokerId(2),))
    image = image.with_topics([replace(topic, partitions=(*topic.partitions[:7], moving))])
    assert refusal(image, 4).code is ErrorCode.reassignment_in_progress
    for count in (0, 9):
        assert refusal(image, count).code is ErrorCode.invalid_partitions


def test_a_change_conflicts_with_every_other_change_of_the_count() -> None:
    image = image_with()
    topic = shrinking.plan_count(image, WantedCount(ORDERS, 6), BrokerConfig(), NOW_MS)
    shown, *partitions = shrinking.change_count(image, topic).writes.visible
    assert isinstance(shown, Set)
    assert shown.version == image.topics[ORDERS].version
    assert len(partitions) == 2


def removed_by(image: ClusterImage, *indexes: int) -> MetadataChange[AbstractSet[TopicPartition]]:
    return shrinking.removal(image, {TopicPartition(ORDERS, index): Offset(9) for index in indexes})


def test_only_the_last_sealed_partitions_are_removed() -> None:
    image = with_phase(with_phase(changed(image_with(), 6), 6, PHASES.SEALED), 7, PHASES.DRAINING)
    for index in (5, 6, 7):
        assert not removed_by(image, index).writes.visible
    image = with_phase(image, 7, PHASES.SEALED)
    assert not removed_by(image, 5, 6).writes.visible
    change = removed_by(image, 7)
    deleted, shown = change.writes.visible
    assert isinstance(deleted, Delete)
    assert deleted.version == image.topics[ORDERS].partitions[7].partition_epoch
    assert isinstance(shown, Set)
    assert removed_by(image, 5, 6, 7).result == {TopicPartition(ORDERS, 6), TopicPartition(ORDERS, 7)}
    assert len(removed_by(image, 5, 6, 7).writes.visible) == 3


def test_the_only_partition_is_never_removed() -> None:
    image = with_phase(image_with(partitions=1), 0, PHASES.SEALED)
    assert not removed_by(image, 0).writes.visible


def removed_from(topic: TopicImage, *removed: RemovedPartition) -> ClusterImage:
    rest = replace(topic, partitions=topic.partitions[: -len(removed)], removed=removed)
    return image_of(1).with_topics([rest])


def test_a_partition_that_is_created_again_continues_offsets_and_epochs() -> None:
    ended = (RemovedPartition(Offset(40), LeaderEpoch(7)), RemovedPartition(Offset(0), LeaderEpoch(3)))
    image = removed_from(image_with().topics[ORDERS], *ended)
    assert image.topics[ORDERS].has_removed(7)
    assert not image.topics[ORDERS].has_removed(8)
    grown = TopicPlanner(image, BrokerConfig(), Random(1)).plan_partitions(NewPartitions(ORDERS, 7))
    assert (grown.partitions[6].first_offset, grown.partitions[6].leader_epoch) == (40, 8)
    assert grown.removed == ended[1:]
    grown = TopicPlanner(image, BrokerConfig(), Random(1)).plan_partitions(NewPartitions(ORDERS, 9))
    assert [state.leader_epoch for state in grown.partitions[6:]] == [8, 4, 0]
    assert grown.removed == ()


def test_create_partitions_names_the_command_for_a_smaller_count() -> None:
    shrunk = changed(image_with(), 4)
    for count, expected in ((3, "removes partitions"), (6, "keeps some"), (9, "do that first")):
        with pytest.raises(BrokerError, match="penstock topic alter") as caught:
            TopicPlanner(shrunk, BrokerConfig(), Random(1)).plan_partitions(NewPartitions(ORDERS, count))
        assert expected in str(caught.value)
