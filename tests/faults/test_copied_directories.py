"""Brokers whose data directories were restored from copies or lost a log: no acknowledged record is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from linked_cluster import StartCluster

from support.broker_process import StartBroker
from support.cluster_processes import PATIENCE_S, ClusterProcesses
from support.directory_copies import Restore, copy_directory, move_in_place, synchronize

TOPIC, SINGLE = "orders", "single"
RECORDS = 500


def create(bootstrap: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics(list(topics)).values():
        made.result(PATIENCE_S)


def write(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Write records, and return when all of them are acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error:
            failed.append(error)

    for number in range(first, first + count):
        key = value = b"%d" % number
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def read(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": "error", "log_level": 0}
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, PATIENCE_S)
    consumer.assign([partition])
    found: list[int] = []
    while consumer.position([partition])[0].offset < end:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b""))
    consumer.close()
    return found


def three_replicas(cluster: ClusterProcesses, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    create(
        cluster.bootstrap,
        NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "2", **settings}),
        NewTopic(SINGLE, 1, replica_assignment=[[3]]),
    )


def start_when_let_in(cluster: ClusterProcesses, number: int) -> None:
    """Start a broker again until the cluster accepts it: a copied directory might be a second broker, so the
    session of the previous process must expire first.
    """

    def has_started() -> bool:
        try:
            cluster.brokers[number].start()
        except AssertionError:
            return False
        return True

    cluster.until(has_started, f"broker {number} is let in")


@pytest.mark.parametrize("restore", [move_in_place, synchronize], ids=["moved", "synchronized"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_restored_copy_takes_nothing_from_the_other_replicas(
    start_cluster: StartCluster, tmp_path: Path, restore: Restore, is_stopped: bool
) -> None:
    cluster = start_cluster(linked=False)
    three_replicas(cluster)
    for topic in (TOPIC, SINGLE):
        write(cluster.bootstrap, topic, 0, RECORDS)
    data = cluster.brokers[3].data_dir
    if is_stopped:
        cluster.brokers[3].stop()
    copy_directory(data, tmp_path / "copy")
    if is_stopped:
        cluster.start_brokers([3])
    cluster.wait_until_healed()
    write(cluster.bootstrap, TOPIC, RECORDS, RECORDS)
    cluster.kill()
    restore(tmp_path / "copy", data)
    start_when_let_in(cluster, 3)
    for number in (1, 2):
        cluster.start_brokers([number])
    cluster.wait_until_healed()
    assert read(cluster.bootstrap, TOPIC) == list(range(2 * RECORDS))
    assert read(cluster.bootstrap, SINGLE) == list(range(RECORDS)), "a single replica leads with what it has"


def test_sole_member_that_lost_its_log_yields_to_a_complete_replica(start_cluster: StartCluster) -> None:
    cluster = start_cluster(linked=False)
    three_replicas(cluster, cleanup_policy="compact")
    write(cluster.bootstrap, TOPIC, 0, RECORDS)
    cluster.wait_until_healed()
    cluster.kill_brokers([1, 2])
    cluster.until(lambda: cluster.in_sync(TOPIC, seen_by=3) == {3}, "broker 3 is alone in sync")
    cluster.kill_brokers([3])
    [log] = (cluster.brokers[3].data_dir / "logs").glob(f"{TOPIC}-*")
    for path in log.iterdir():
        path.unlink()
    for number in (3, 1, 2):
        cluster.start_brokers([number])
    cluster.wait_until_healed()
    assert read(cluster.bootstrap, TOPIC) == list(range(RECORDS))


def test_single_broker_serves_a_restored_directory(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    create(broker.bootstrap, NewTopic(SINGLE, 1))
    write(broker.bootstrap, SINGLE, 0, RECORDS)
    copy_directory(broker.data_dir, tmp_path / "copy")
    write(broker.bootstrap, SINGLE, RECORDS, RECORDS)
    broker.kill()
    shutil.rmtree(broker.data_dir)
    (tmp_path / "copy").rename(broker.data_dir)
    broker.start()
    assert read(broker.bootstrap, SINGLE) == list(range(RECORDS))
    write(broker.bootstrap, SINGLE, RECORDS, 10)
    broker.stop()
    broker.start()
    assert read(broker.bootstrap, SINGLE) == list(range(RECORDS + 10))
