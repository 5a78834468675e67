"""Two gateways in front of three brokers while leaders are killed and partitions are added.

No acknowledged message is lost, and a reader that passes on the last id gets every message once and in order.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx
import pytest
from gateway_process import GatewayProcess
from mailbox_traffic import Traffic
from served import serving

from support.cluster_processes import ClusterProcesses
from support.eventually import eventually

SETTINGS = ("gateway.enable=false", "default.replication.factor=3")
USERS = [f"user-{number}" for number in range(4)]


@pytest.mark.usefixtures("starts_clusters")
def test_no_acknowledged_message_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, 3, SETTINGS)
    try:
        cluster.start()
        settings = ("mailbox.num.partitions=3", "gateway.delivery.timeout.ms=3000")
        with (
            GatewayProcess(tmp_path, cluster.bootstrap, settings) as one,
            GatewayProcess(tmp_path, cluster.bootstrap, settings) as other,
        ):
            with Traffic(USERS, [one.url, other.url]) as traffic:
                _kill_leaders(cluster, traffic)
            traffic.check()
            assert (one.stop(), other.stop()) == (0, 0)
    finally:
        cluster.close()


def _kill_leaders(cluster: ClusterProcesses, traffic: Traffic) -> None:
    cluster.until(lambda: traffic.flows([0] * len(USERS)), "messages flow")
    for partition in (0, 1):
        victim = cluster.leader("mailbox", partition)
        cluster.kill_brokers([victim])
        since = traffic.counts()
        cluster.until(partial(traffic.flows, since), "messages flow again")
        cluster.start_brokers([victim])
        cluster.wait_until_healed()


@pytest.mark.usefixtures("starts_processes")
def test_no_message_is_lost_when_partitions_are_added(tmp_path: Path) -> None:
    settings = ("mailbox.num.partitions=2", "durability=os")
    with serving(tmp_path, settings) as broker, GatewayProcess(tmp_path, broker.bootstrap) as gateway:
        inside = f"http://127.0.0.1:{broker.http_port}"
        with Traffic(USERS, [inside, gateway.url]) as traffic:
            eventually(lambda: traffic.flows([0] * len(USERS)))
            grown = httpx.patch(f"{inside}/v1/topics/mailbox", json={"partitions": 9}, timeout=30)
            assert grown.status_code == 200
            eventually(lambda: _ends(inside, range(2, 9)) > 0)
            since = traffic.counts()
            eventually(lambda: traffic.flows(since))
        traffic.check()
        assert gateway.stop() == 0


def _ends(url: str, partitions: range) -> int:
    """Return the number of messages in some partitions of the mailbox."""
    described = httpx.get(f"{url}/v1/topics/mailbox", timeout=30).json()["partitions"]
    return sum(described[number]["high_watermark"] for number in partitions)
