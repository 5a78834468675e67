"""Requests that a fenced broker must refuse although it does not know yet that it is fenced."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from linked_cluster import ZOOKEEPER, LinkedCluster, StartCluster
from load import create, high_watermarks

from penstock.errors import ErrorCode
from penstock.records.building import NewRecord, build_batch
from support import raw

TOPIC = "orders"
GROUP = "readers"
LONG_LAG = "replica.lag.time.max.ms=60000"


def produce_request(value: bytes, acks: int) -> bytes:
    records = bytes(build_batch([NewRecord(None, value, 1_700_000_000_000)]))
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    return raw.request(raw.PRODUCE, 9, acks=acks, timeout=30_000, topic_data=data)


def answered(client: raw.RawClient) -> int | None:
    """Error code of the partition; None if the broker closed the connection."""
    try:
        response = raw.decode_response(raw.PRODUCE, 9, client.read_frame())
    except ConnectionError:
        return None
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def followers(cluster: LinkedCluster, leader: int) -> list[int]:
    return [number for number in cluster.brokers if number != leader]


def test_records_that_reached_a_paused_leader_are_not_acknowledged(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    create(cluster, NewTopic(TOPIC, 1, 3))
    cluster.wait_until_healed()
    zombie = cluster.leader(TOPIC)
    [witness, _] = followers(cluster, zombie)
    with raw.RawClient(cluster.brokers[zombie].port, patience_seconds=60) as client:
        client.send(produce_request(b"before", -1))
        assert answered(client) == 0
        cluster.pause(zombie)
        client.send(produce_request(b"asleep", -1))
        cluster.until(lambda: cluster.leader(TOPIC, seen_by=witness) not in (zombie, -1), "another leads")
        producer = Producer({"bootstrap.servers": cluster.brokers[witness].bootstrap, "log_level": 0})
        producer.produce(TOPIC, b"meanwhile", partition=0)
        assert producer.flush(60) == 0
        cluster.resume(zombie)
        assert answered(client) != 0
    cluster.wait_until_healed()
    assert high_watermarks(cluster.bootstrap, TOPIC, 1) == [2]


def test_client_fetch_with_a_replica_id_changes_no_in_sync_set(start_cluster: StartCluster) -> None:
    cluster = start_cluster(LONG_LAG)
    create(cluster, NewTopic(TOPIC, 1, 3))
    cluster.wait_until_healed()
    leader = cluster.leader(TOPIC)
    for follower in followers(cluster, leader):
        cluster.hold(follower, leader)
    with raw.RawClient(cluster.brokers[leader].port) as client:
        client.send(produce_request(b"not committed", 1))
        assert answered(client) == 0
        for replica_id in (*cluster.brokers, 999, -2):
            assert fetch_as(client, replica_id) == ErrorCode.cluster_authorization_failed
    assert high_watermarks(cluster.bootstrap, TOPIC, 1) == [0]
    assert cluster.in_sync(TOPIC) == set(cluster.brokers)
    cluster.links.heal()
    cluster.until(lambda: high_watermarks(cluster.bootstrap, TOPIC, 1) == [1], "the followers have it")


def fetch_as(client: raw.RawClient, replica_id: int) -> int:
    """Fetch as a follower that has the record, and return the error code."""
    partition = {"partition": 0, "fetch_offset": 1, "current_leader_epoch": -1, "partition_max_bytes": 1000}
    response = client.call(
        raw.FETCH,
        12,
        replica_id=replica_id,
        max_bytes=1000,
        session_epoch=-1,
        topics=[{"topic": TOPIC, "partitions": [partition]}],
    )
    code: int = response.error_code
    return code or response.responses[0].partitions[0].error_code


def commit_offset(port: int, offset: int) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    with raw.RawClient(port, patience_seconds=60) as client:
        client.send(
            raw.request(raw.OFFSET_COMMIT, 8, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
        )
        response = raw.decode_response(raw.OFFSET_COMMIT, 8, client.read_frame())
    code: int = response.topics[0].partitions[0].error_code
    return code


def fetch_stable_offset(port: int) -> tuple[int, int | None]:
    """Error code of the group, and the committed offset."""
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    with raw.RawClient(port, patience_seconds=60) as client:
        client.send(raw.request(raw.OFFSET_FETCH, 7, group_id=GROUP, topics=topics, require_stable=True))
        response = raw.decode_response(raw.OFFSET_FETCH, 7, client.read_frame())
    offset = response.topics[0].partitions[0].committed_offset if response.topics else None
    return response.error_code, offset


def test_a_coordinator_that_was_replaced_shows_no_stable_offsets(start_cluster: StartCluster) -> None:
    cluster = start_cluster("offsets.topic.num.partitions=1", LONG_LAG)
    create(cluster, NewTopic(TOPIC, 1, 3))
    cluster.make_groups_known()
    alone = cluster.leader("__consumer_offsets")
    others = followers(cluster, alone)
    port = cluster.brokers[alone].port
    cluster.until(lambda: commit_offset(port, 1) == 0, "an offset is committed")
    assert fetch_stable_offset(port) == (0, 1)
    cluster.links.cut(alone, ZOOKEEPER)
    for other in others:
        cluster.cut(alone, other)

    def another_has_taken_it() -> bool:
        return any(commit_offset(cluster.brokers[other].port, 2) == 0 for other in others)

    cluster.until(another_has_taken_it, "another coordinates")
    assert fetch_stable_offset(port) == (ErrorCode.not_coordinator, -1)
    cluster.links.heal()
    cluster.wait_until_healed()
    now = cluster.brokers[cluster.leader("__consumer_offsets")].port
    cluster.until(lambda: fetch_stable_offset(now) == (0, 2), "the offset is shown")
