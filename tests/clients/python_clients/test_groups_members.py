"""Unmodified clients in consumer groups: assignment, killed members, restarts, and rebalances while reading."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent import create
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from groups import (
    AIOKAFKA,
    BROKER_SETTINGS,
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    KAFKA_PYTHON,
    KCAT_KIND,
    SESSION_MS,
    Group,
    Kind,
    duplicates,
    each_kind,
    feeding,
    longest_wait_s,
    share,
    wait_for,
)
from support.broker_process import Address
from support.cluster_processes import BROKERS, serving

PARTITIONS = 6
REBALANCE_SLACK_S = 3.0
"""Time beyond the session timeout until other members own the partitions: they learn of the rebalance at
their next heartbeat.
"""
LONGEST_PAUSE_S = 1.0


@pytest.fixture(scope="module")
def broker(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker with short sessions for all tests of this module."""
    external = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    if external:
        yield Address(external)
        return
    with serving(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS) as server:
        yield Address(server.bootstrap)


@pytest.fixture
def group(broker: Address, topic_name: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(broker, f"group-of-{topic_name}", stack)


@pytest.fixture
def topic(admin: AdminClient, topic_name: str) -> str:
    create(admin, NewTopic(topic_name, PARTITIONS, BROKERS))
    return topic_name


def places(topic: str, partitions: int = PARTITIONS) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(partitions)]


@each_kind(CLASSIC, CONSUMER, AIOKAFKA, KAFKA_PYTHON, KCAT_KIND)
def test_members_share_the_partitions_and_take_over_those_of_one_that_was_killed(
    broker: Address, group: Group, topic: str, kind: Kind
) -> None:
    with feeding(broker, topic, PARTITIONS) as feed:
        first, second, third = (group.join(kind, topic) for _ in range(3))
        wait_for(lambda: share(places(topic), (first, second, third)), "sharing", first, second, third)
        third.kill()
        limit_s = SESSION_MS / 1_000 + REBALANCE_SLACK_S
        wait_for(
            lambda: share(places(topic), (first, second)), "taking over", first, second, within_s=limit_s
        )
        feed.stop()
        wait_for(lambda: feed.all_read_by(first, second, third), "reading all", first, second)
    assert first.owned.isdisjoint(second.owned)


@each_kind(COOPERATIVE, CONSUMER)
def test_cooperative_rebalance_neither_pauses_nor_repeats_kept_partitions(
    broker: Address,
    group: Group,
    topic: str,
    kind: Kind,
    record_property: Callable[[str, object], None],
) -> None:
    with feeding(broker, topic, PARTITIONS) as feed:
        first = group.join(kind, topic)
        wait_for(lambda: len(first.owned) == PARTITIONS, "owning all", first)
        wait_for(lambda: len({r["partition"] for r in first.records}) == PARTITIONS, "reading all", first)
        began = time.monotonic()
        second = group.join(kind, topic)
        wait_for(lambda: share(places(topic), (first, second)), "sharing", first, second)
        kept = {number for _, number in first.owned}
        wait_for(lambda: len({r["partition"] for r in second.records}) == 3, "the second reading", second)
        second.leave()
        wait_for(lambda: len(first.owned) == PARTITIONS, "owning all again", first)
        feed.stop()
        wait_for(lambda: feed.all_read_by(first, second), "reading all", first, second)
    assert len(kept) == PARTITIONS // 2
    taken = {number for event, gone in first.rebalances if event == "revoked" for _, number in gone}
    assert taken == set(range(PARTITIONS)) - kept
    assert duplicates(first, second) == {}
    pause_s = longest_wait_s(first, kept, began)
    record_property("longest_wait_of_kept_partitions_s", pause_s)
    assert pause_s < LONGEST_PAUSE_S


@each_kind(CLASSIC, CONSUMER, AIOKAFKA, KAFKA_PYTHON)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    group: Group, topic: str, kind: Kind
) -> None:
    longer = {} if kind is CONSUMER else {"session_timeout_ms": 10_000}
    stays, goes = (
        group.join(kind.with_config(group_instance_id=name, **longer), topic) for name in ("stays", "goes")
    )
    wait_for(lambda: share(places(topic), (stays, goes)), "sharing", stays, goes)
    seen, had = len(stays.rebalances), goes.owned
    # KIP-848 assigns an instance id to another process only after the first has left or expired.
    (goes.leave if kind is CONSUMER else goes.kill)()
    back = group.join(kind.with_config(group_instance_id="goes", **longer), topic)
    wait_for(lambda: back.owned == had, "coming back", stays, back)
    assert stays.rebalances[seen:] == []


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        (CLASSIC.with_config(partition_assignment_strategy="range"), (2, 4)),
        (CLASSIC.with_config(partition_assignment_strategy="roundrobin"), (3, 3)),
        (COOPERATIVE, (3, 3)),
        (CONSUMER.with_config(group_remote_assignor="range"), (2, 4)),
        (CONSUMER.with_config(group_remote_assignor="uniform"), (3, 3)),
        (AIOKAFKA.with_config(assignor="range:RangePartitionAssignor"), (2, 4)),
        (AIOKAFKA.with_config(assignor="roundrobin:RoundRobinPartitionAssignor"), (3, 3)),
        (AIOKAFKA.with_config(assignor="sticky.sticky_assignor:StickyPartitionAssignor"), (3, 3)),
        (KAFKA_PYTHON.with_config(assignor="range:RangePartitionAssignor"), (2, 4)),
        (KAFKA_PYTHON.with_config(assignor="roundrobin:RoundRobinPartitionAssignor"), (3, 3)),
        (KAFKA_PYTHON.with_config(assignor="sticky.sticky_assignor:StickyPartitionAssignor"), (3, 3)),
    ],
    ids=lambda value: "-".join(map(str, value.config.values())) if isinstance(value, Kind) else "",
)
def test_assignors_share_two_topics_of_three_partitions(
    admin: AdminClient, group: Group, topic_name: str, kind: Kind, shares: tuple[int, int]
) -> None:
    names = [f"{topic_name}-{number}" for number in range(2)]
    for name in names:
        create(admin, NewTopic(name, 3, BROKERS))
    everything = [place for name in names for place in places(name, 3)]
    members = [group.join(kind, *names) for _ in range(2)]
    wait_for(lambda: share(everything, members), "sharing", *members)
    assert tuple(sorted(len(member.owned) for member in members)) == shares


@each_kind(CLASSIC.with_config(topic_metadata_refresh_interval_ms=300), CONSUMER)
def test_a_regular_expression_subscribes_to_topics_that_come_later(
    admin: AdminClient, group: Group, topic_name: str, kind: Kind
) -> None:
    create(admin, NewTopic(f"{topic_name}-a", 2, BROKERS))
    create(admin, NewTopic(f"other-{topic_name}", 2, BROKERS))
    member = group.join(kind, f"^{topic_name}-.*")
    wait_for(lambda: member.owned == set(places(f"{topic_name}-a", 2)), "finding the first", member)
    create(admin, NewTopic(f"{topic_name}-b", 1, BROKERS))
    both = {*places(f"{topic_name}-a", 2), (f"{topic_name}-b", 0)}
    wait_for(lambda: member.owned == both, "finding the second", member)
    assert member.owned == both


def test_a_group_changes_to_the_new_protocol_and_back_while_it_reads(
    broker: Address, admin: AdminClient, group: Group, topic: str
) -> None:
    def kind_of_group() -> str:
        listed = admin.list_consumer_groups().result(10).valid
        return next(str(each.type.name) for each in listed if each.group_id == group.name)

    with feeding(broker, topic, PARTITIONS) as feed:
        old = group.join(COOPERATIVE, topic)
        wait_for(lambda: len(old.owned) == PARTITIONS, "the classic member", old)
        new = group.join(CONSUMER, topic)
        wait_for(lambda: share(places(topic), (old, new)), "sharing after the upgrade", old, new)
        assert kind_of_group() == "CONSUMER"
        old.leave()
        wait_for(lambda: len(new.owned) == PARTITIONS, "the new member alone", new)
        again = group.join(COOPERATIVE, topic)
        wait_for(lambda: share(places(topic), (new, again)), "sharing before the downgrade", new, again)
        new.leave()
        wait_for(lambda: len(again.owned) == PARTITIONS, "the classic member again", again)
        wait_for(lambda: kind_of_group() == "CLASSIC", "the group being classic again", again)
        feed.stop()
        wait_for(lambda: feed.all_read_by(old, new, again), "reading all", again)


@each_kind(CLASSIC, CONSUMER)
def test_next_member_starts_at_the_committed_offset(
    broker: Address, group: Group, topic: str, kind: Kind
) -> None:
    with feeding(broker, topic, PARTITIONS) as feed:
        first = group.join(kind, topic)
        wait_for(lambda: len(first.records) > 100, "reading some", first)
        first.leave()
        second = group.join(kind, topic)
        feed.stop()
        wait_for(lambda: feed.all_read_by(first, second), "reading the rest", second)
    assert duplicates(first, second) == {}


def test_committed_offsets_are_shown_to_other_clients(broker: Address, topic: str, topic_name: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"outside-{topic_name}"})
    try:
        wanted = [TopicPartition(topic, 0, 7, "a note", 0), TopicPartition(topic, 3, 9)]
        consumer.commit(offsets=wanted, asynchronous=False)
        asked = [TopicPartition(topic, number) for number in (0, 1, 3)]
        found = consumer.committed(asked, timeout=10)
        assert [(place.offset, place.metadata) for place in found] == [
            (7, "a note"),
            (-1001, None),
            (9, None),
        ]
    finally:
        consumer.close()
