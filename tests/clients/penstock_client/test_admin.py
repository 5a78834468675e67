"""Administration against a real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import (
    Admin,
    BrokerUnreachable,
    ClientError,
    Consumer,
    GroupUnknown,
    Producer,
    TimedOut,
    TopicPartition,
    TopicUnknown,
)
from penstock.testing import Broker
from support.broker_process import MakeTopic
from support.cluster_processes import BROKERS
from support.eventually import eventually

SET_BY_CLUSTER = frozenset({"min.insync.replicas"} if BROKERS >= 3 else ())
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def send_hours(bootstrap: str, topic: str, hours: int = 5) -> None:
    with Producer(bootstrap) as producer:
        for hour in range(hours):
            producer.send(topic, str(hour), partition=0, timestamp=NOON + timedelta(hours=hour))


def read_some(bootstrap: str, topic: str, group: str, count: int) -> list[bytes | None]:
    with Consumer(topic, group=group, bootstrap=bootstrap, idle_timeout_s=20) as consumer:
        return [next(consumer).raw for _ in range(count)]


def test_a_topic_from_creation_to_deletion(admin: Admin, topic_name: str) -> None:
    admin.topics.create(topic_name, partitions=2, config={"retention.ms": "60000"})
    assert topic_name in admin.topics.list()
    topic = admin.topics.describe(topic_name)
    assert [(each.number, each.start, each.end) for each in topic.partitions] == [(0, 0, 0), (1, 0, 0)]
    assert (topic.config["retention.ms"], topic.changed) == ("60000", SET_BY_CLUSTER | {"retention.ms"})

    admin.topics.alter(topic_name, set={"segment.bytes": "1048576"}, unset=["retention.ms"])
    admin.topics.add_partitions(topic_name, 3)
    eventually(lambda: len(admin.topics.describe(topic_name).partitions) == 3)
    eventually(lambda: admin.topics.describe(topic_name).changed == {"segment.bytes"} | SET_BY_CLUSTER)

    admin.topics.delete(topic_name)
    eventually(lambda: topic_name not in admin.topics.list())


def test_internal_topics_are_listed_on_request(admin: Admin, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send_hours(bootstrap, topic, 1)
    read_some(bootstrap, topic, topic, 1)
    assert "__consumer_offsets" not in admin.topics.list()
    assert "__consumer_offsets" in admin.topics.list(internal=True)


def test_truncation_by_offset_time_and_altogether(
    admin: Admin, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms="-1")
    send_hours(bootstrap, topic)
    assert admin.topics.describe(topic).messages == 5
    admin.topics.truncate(topic, before=2, partitions=[0])
    assert admin.topics.describe(topic).partitions[0].start == 2
    admin.topics.truncate(topic, before=NOON + timedelta(hours=3))
    assert admin.topics.describe(topic).partitions[0].start == 3
    assert admin.topics.truncate(topic) == 0
    assert admin.topics.describe(topic).messages == 0


def test_truncation_returns_the_number_of_removed_pending_messages(
    admin: Admin, bootstrap: str, topic_name: str
) -> None:
    admin.topics.create(topic_name, partitions=2, config={"delivery.delay": "true"})
    with Producer(bootstrap) as producer:
        for partition in (0, 0, 1):
            producer.send(topic_name, "later", partition=partition, delay_s=3600)
        producer.send(topic_name, "now", partition=0)
    assert admin.topics.truncate(topic_name, before=1, partitions=[0]) == 1
    assert admin.topics.truncate(topic_name) == 2
    assert admin.topics.truncate(topic_name) == 0


def test_truncation_uses_connection_settings_of_the_config(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send_hours(bootstrap, topic, 1)
    with Admin(bootstrap, config={"security.protocol": "plaintext"}) as admin:
        assert admin.topics.truncate(topic) == 0
        assert admin.topics.describe(topic).messages == 0


def test_a_group_is_described_with_members_and_lag(
    admin: Admin, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send_hours(bootstrap, topic)
    with Consumer(topic, group=topic, bootstrap=bootstrap, instance_id="one") as consumer:
        next(consumer)
        next(consumer)
        consumer.commit()
        group = admin.groups.describe(topic)
        assert (group.state, group.protocol, group.assignor) == ("stable", "consumer", "uniform")
        (member,) = group.members
        assert (member.instance_id, member.partitions) == ("one", (TopicPartition(topic, 0),))
        (partition,) = group.partitions
        assert (partition.committed, partition.end, partition.lag, group.lag) == (2, 5, 3, 3)
        with pytest.raises(ClientError, match="stop its consumers"):
            admin.groups.delete(topic)


def test_lag_counts_partitions_without_a_commit(admin: Admin, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(7):
            producer.send(topic, str(number), partition=number % 2)
    admin.groups.reset(topic, topic, 1, partitions=[0])
    group = admin.groups.describe(topic)
    assert [(each.partition, each.committed, each.lag) for each in group.partitions] == [
        (0, 1, 3),
        (1, None, 3),
    ]
    assert group.lag == 6


def test_a_group_is_reset_and_deleted(admin: Admin, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms="-1")
    send_hours(bootstrap, topic)
    assert read_some(bootstrap, topic, topic, 5)[-1] == b"4"
    where = TopicPartition(topic, 0)
    assert admin.groups.reset(topic, topic, NOON + timedelta(hours=1, minutes=1)) == {where: 2}
    assert read_some(bootstrap, topic, topic, 1) == [b"2"]
    assert admin.groups.reset(topic, topic, "start") == {where: 0}
    assert read_some(bootstrap, topic, topic, 1) == [b"0"]
    assert admin.groups.reset(topic, topic, 4, partitions=[0]) == {where: 4}
    assert read_some(bootstrap, topic, topic, 1) == [b"4"]
    assert admin.groups.reset(topic, topic, "end") == {where: 5}
    assert topic in [group.name for group in admin.groups.list()]
    admin.groups.delete(topic)
    assert topic not in [group.name for group in admin.groups.list()]


def test_unknown_names_are_reported(admin: Admin, topic_name: str) -> None:
    for call in (admin.topics.describe, admin.topics.delete, admin.topics.truncate):
        with pytest.raises(TopicUnknown, match=topic_name):
            call(topic_name)
    for ask in (admin.groups.describe, admin.groups.delete):
        with pytest.raises(GroupUnknown, match=topic_name):
            ask(topic_name)


def test_refusal_names_its_reason(admin: Admin, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with pytest.raises(ClientError, match=r"topics\.alter"):
        admin.topics.create(topic)
    with pytest.raises(ClientError, match=r"retention\.ms"):
        admin.topics.alter(topic, set={"retention.mss": "5"})


def test_a_broker_that_went_away_is_not_waited_for_forever(penstock_broker: Broker) -> None:
    admin = Admin(penstock_broker.bootstrap, request_timeout_s=2)
    assert admin.topics.list() == []
    penstock_broker.kill()
    for call in (admin.topics.list, admin.groups.list, lambda: admin.topics.create("t")):
        with pytest.raises((TimedOut, BrokerUnreachable), match="bootstrap address"):
            call()


def test_unreachable_broker_is_reported_at_once() -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        Admin("127.0.0.1:1", connect_timeout_s=0.05)


def test_partitions_drain_are_kept_again_and_dropped(admin: Admin, bootstrap: str, topic_name: str) -> None:
    admin.topics.create(topic_name, partitions=4)
    with Producer(bootstrap) as producer:
        producer.send(topic_name, "kept until it is dropped", partition=3)
    assert admin.topics.reduce_partitions(topic_name, 2, dry_run=True)[2:] == ("draining",) * 2
    assert admin.topics.phases(topic_name) == ("active",) * 4
    assert admin.topics.reduce_partitions(topic_name, 2) == ("active", "active", "draining", "draining")
    assert admin.topics.reduce_partitions(topic_name, 4) == ("active",) * 4
    admin.topics.reduce_partitions(topic_name, 3, seal_now=True)
    eventually(lambda: admin.topics.phases(topic_name)[3] == "sealed")
    admin.topics.reduce_partitions(topic_name, 3, drop_sealed=True)
    eventually(lambda: admin.topics.phases(topic_name) == ("active",) * 3)


def test_number_of_partitions_that_is_not_possible_is_refused(admin: Admin, topic_name: str) -> None:
    admin.topics.create(topic_name, partitions=2)
    for total in (0, -1, 3):
        with pytest.raises(ClientError):
            admin.topics.reduce_partitions(topic_name, total)
    with pytest.raises(TopicUnknown):
        admin.topics.reduce_partitions(f"{topic_name}-none", 1)
    with pytest.raises(ClientError, match="exclude each other"):
        admin.topics.reduce_partitions(topic_name, 1, seal_now=True, drop_sealed=True)
    assert len(admin.topics.describe(topic_name).partitions) == 2
