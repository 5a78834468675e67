"""Committed offsets: ownership, visibility and expiry."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from shard_bench import outside

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.config import BrokerConfig
from penstock.groups.offsets import CommittedOffset, Offsets
from penstock.groups.records import GroupRecord, OffsetKey
from penstock.model import NO_TOPIC_ID, TopicId, TopicPartition

MINUTE = 60_000
RETENTION_MINUTES = 100
RETENTION = RETENTION_MINUTES * MINUTE
ORDERS, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def image(topic_id: TopicId | None = ORDERS, **configs: str) -> ClusterImage:
    empty = ClusterImage("c")
    if topic_id is None:
        return empty
    named = {"retention.ms": "1000", **{name.replace("_", "."): value for name, value in configs.items()}}
    return empty.with_topics([TopicImage("orders", topic_id, (), named, 0)])


def committed(
    at_ms: int = 0,
    topic_id: TopicId = ORDERS,
    group: str = "g",
    partition: int = 0,
    offsets: Offsets | None = None,
) -> Offsets:
    offsets = offsets or Offsets()
    offsets.apply(OffsetKey(group, "orders", partition), CommittedOffset(5, -1, "", topic_id, at_ms))
    return offsets


def expired(
    offsets: Offsets,
    now_ms: int,
    empty_since_ms: int | None = None,
    reads: Callable[[str], bool] | None = None,
    cluster: ClusterImage | None = None,
) -> bool:
    tombstones = offsets.expired(
        "g", empty_since_ms, reads, RETENTION_MINUTES, BrokerConfig(), cluster or image(), now_ms
    )
    assert all(tombstone.value is None for tombstone in tombstones)
    return bool(tombstones)


def keys(records: list[GroupRecord]) -> list[OffsetKey]:
    return [record.key for record in records if isinstance(record.key, OffsetKey)]


def test_newest_commit_replaces_older_ones() -> None:
    offsets = committed()
    offsets.apply(OffsetKey("g", "orders", 0), CommittedOffset(9, 1, "note", ORDERS, 3))
    assert offsets.fetch("g", [P0, P1], image()) == {P0: CommittedOffset(9, 1, "note", ORDERS, 3)}
    assert len(offsets) == 1


def test_offset_fetch_returns_only_offsets_of_its_group() -> None:
    offsets = committed(offsets=committed(group="h", partition=1))
    assert list(offsets.fetch("g", None, image())) == [P0]
    assert list(offsets.fetch("h", None, image())) == [P1]


@pytest.mark.parametrize("now", [OTHER, None], ids=["made again", "gone"])
def test_offset_of_a_deleted_topic_is_never_returned(now: TopicId | None) -> None:
    offsets = committed()
    assert offsets.fetch("g", None, image(now)) == {}
    assert offsets.fetch("g", [P0], image(now)) == {}


def test_offset_without_a_topic_id_is_matched_by_topic_name() -> None:
    offsets = committed(topic_id=NO_TOPIC_ID)
    assert list(offsets.fetch("g", None, image(OTHER))) == [P0]


def test_deleted_topic_takes_its_offsets_with_it_and_a_new_one_keeps_its_own() -> None:
    offsets = committed(partition=0, offsets=committed(partition=1, topic_id=OTHER))
    assert keys(offsets.of_lost_topics(image(OTHER), ["orders"])) == [OffsetKey("g", "orders", 0)]
    assert keys(offsets.of_lost_topics(image(OTHER), ["payments"])) == []


def test_pending_offset_is_invisible_but_keeps_the_group() -> None:
    offsets, commit = Offsets(), outside(5)
    offsets.begin(commit)
    assert offsets.has("g")
    assert offsets.fetch("g", None, image()) == {}
    offsets.end(commit)
    assert not offsets.has("g")


def test_two_pending_commits_of_a_partition_end_one_by_one() -> None:
    offsets, first, second = Offsets(), outside(5), outside(5)
    offsets.begin(first)
    offsets.begin(second)
    offsets.end(first)
    assert offsets.has("g")
    offsets.end(second)
    assert not offsets.has("g")


def test_tombstones_of_a_group_cover_pending_offsets() -> None:
    offsets = committed()
    offsets.begin(outside(5, P1))
    assert keys(offsets.tombstones("g")) == [OffsetKey("g", "orders", 0), OffsetKey("g", "orders", 1)]


def test_only_existing_offsets_get_tombstones() -> None:
    assert keys(committed().tombstones("g", [P1, P0])) == [OffsetKey("g", "orders", 0)]


def test_tombstone_removes_the_offset_and_the_last_one_the_group() -> None:
    offsets = committed(partition=1, offsets=committed())
    offsets.apply(OffsetKey("g", "orders", 0), None)
    assert list(offsets.fetch("g", None, image())) == [P1]
    offsets.apply(OffsetKey("g", "orders", 1), None)
    offsets.apply(OffsetKey("g", "orders", 1), None)
    assert not offsets.has("g")
    assert len(offsets) == 0


# --- KIP-211


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    offsets = committed(at_ms=0)
    assert not expired(offsets, MINUTE + RETENTION - 1, empty_since_ms=MINUTE)
    assert expired(offsets, MINUTE + RETENTION, empty_since_ms=MINUTE)


def test_commit_after_the_group_became_empty_counts_from_the_commit() -> None:
    offsets = committed(at_ms=2 * MINUTE)
    assert not expired(offsets, MINUTE + RETENTION, empty_since_ms=MINUTE)
    assert expired(offsets, 2 * MINUTE + RETENTION, empty_since_ms=MINUTE)


def test_group_that_never_had_members_counts_from_the_commit() -> None:
    offsets = committed(at_ms=MINUTE)
    assert not expired(offsets, MINUTE + RETENTION - 1)
    assert expired(offsets, MINUTE + RETENTION)


def test_topic_that_members_read_is_kept_however_old_its_commit() -> None:
    assert not expired(committed(), 100 * RETENTION, reads=lambda topic: True)


def test_topic_that_members_stopped_reading_counts_from_when_that_was_noticed() -> None:
    offsets = committed()
    reads: Callable[[str], bool] = lambda topic: False  # noqa: E731
    noticed = 10 * RETENTION
    assert not expired(offsets, noticed, reads=reads)
    assert not expired(offsets, noticed + RETENTION - 1, reads=reads)
    assert expired(offsets, noticed + RETENTION, reads=reads)


def test_offset_retention_restarts_when_a_topic_is_read_again() -> None:
    offsets = committed()
    assert not expired(offsets, 0, reads=lambda topic: False)
    assert not expired(offsets, RETENTION - 1, reads=lambda topic: True)
    assert not expired(offsets, RETENTION, reads=lambda topic: False)


def test_offset_is_kept_as_long_as_the_records_of_its_topic() -> None:
    cluster = image(retention_ms=str(3 * RETENTION))
    assert not expired(committed(), 3 * RETENTION - 1, cluster=cluster)
    assert expired(committed(), 3 * RETENTION, cluster=cluster)


@pytest.mark.parametrize(
    "cluster", [image(retention_ms="-1"), image(cleanup_policy="compact")], ids=["for ever", "compacted"]
)
def test_topic_that_keeps_its_records_for_ever_keeps_its_offsets(cluster: ClusterImage) -> None:
    assert not expired(committed(), 1000 * RETENTION, cluster=cluster)


def test_topic_that_compacts_and_deletes_has_a_retention() -> None:
    assert expired(committed(), RETENTION, cluster=image(cleanup_policy="compact,delete"))


def test_unknown_topic_has_no_retention_of_its_own() -> None:
    offsets = committed(topic_id=NO_TOPIC_ID)
    assert not expired(offsets, RETENTION - 1, cluster=image(None))
    assert expired(offsets, RETENTION, cluster=image(None))


def test_offset_of_an_unnoticed_deleted_topic_is_removed_by_the_next_sweep() -> None:
    assert expired(committed(), 1, cluster=image(OTHER))
    assert expired(committed(), 1, cluster=image(OTHER, retention_ms="-1"))
    assert expired(committed(), 1, cluster=image(OTHER), reads=lambda topic: True)
