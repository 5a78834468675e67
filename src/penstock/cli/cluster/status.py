"""`penstock cluster status`: brokers, controller, and counts of under-replicated and offline partitions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.cluster.local_cluster import LOCALHOST, ClusterFile, LocalCluster
from penstock.cli.cluster.options import MaybeBootstrapOption, MaybeDataDirOption, no_cluster_named
from penstock.cli.cluster.view import ClusterSnapshot, read_view
from penstock.cli.failures import Failure
from penstock.cli.options import JsonOption
from penstock.cli.output import NONE, print_json, print_table

RESPONSE_SECONDS = 3.0
"""Response timeout in seconds, after which another broker is asked."""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    node_id: int
    pid: int | None
    """Process id; None if the broker is not running or is on another machine."""
    host: str
    port: int
    http_port: int | None
    alive: bool
    """True if the process runs; for a broker on another machine, if the broker is a member of the cluster."""
    member: bool
    controller: bool
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ZooKeeperStatus:
    hosts: str
    pid: int | None
    alive: bool | None
    """True if the process runs; None for an external ZooKeeper."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    bootstrap: str
    cluster_id: str | None
    """Cluster id; None, like the other values from brokers, if no broker responds."""
    controller: int | None
    brokers: tuple[BrokerStatus, ...]
    zookeeper: ZooKeeperStatus | None
    topics: int | None
    partitions: int | None
    under_replicated_partitions: int | None
    offline_partitions: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(
    data_dir: MaybeDataDirOption = None, bootstrap: MaybeBootstrapOption = None, json: JsonOption = False
) -> None:
    """Show the brokers, the controller, and how many partitions are under-replicated or offline."""
    if data_dir is not None:
        found = status_of_local(ClusterFile(data_dir).load())
    elif bootstrap is not None:
        found = status_of_any(bootstrap)
    else:
        raise no_cluster_named()
    if json:
        print_json(found.as_json())
    else:
        print_status(found)


def status_of_local(cluster: LocalCluster) -> ClusterStatus:
    """Return the status of a cluster on this machine, running or not."""
    alive = [broker for broker in cluster.brokers if broker.running]
    view = _try_to_view(",".join(broker.address for broker in alive)) if alive else None
    brokers = [
        _broker_status(
            view,
            broker.node_id,
            LOCALHOST,
            broker.port,
            http_port=broker.http_port,
            pid=broker.running.pid if broker.running else None,
            alive=broker.running is not None,
        )
        for broker in cluster.brokers
    ]
    running = cluster.zookeeper.running
    zookeeper = ZooKeeperStatus(
        cluster.zookeeper.hosts,
        running.pid if running else None,
        None if cluster.zookeeper.port is None else running is not None,
    )
    return _status(cluster.bootstrap, view, brokers, zookeeper)


def status_of_any(bootstrap: str) -> ClusterStatus:
    """Return the status of the cluster of the broker at this address."""
    view = _view(bootstrap)
    held = {replica for partition in view.partitions for replica in partition.replicas}
    brokers = []
    for node_id in sorted(held | view.brokers.keys()):
        broker = view.brokers.get(node_id)
        host, port = (broker.address.host, broker.address.port) if broker else ("", -1)
        brokers.append(
            _broker_status(view, node_id, host, port, http_port=None, pid=None, alive=broker is not None)
        )
    return _status(bootstrap, view, brokers, None)


def print_status(status: ClusterStatus) -> None:
    rows = [
        (
            broker.node_id,
            f"{broker.host}:{broker.port}" if broker.host else NONE,
            str(broker.http_port or NONE),
            str(broker.pid or NONE),
            _state(broker),
            broker.leaders,
            broker.replicas,
        )
        for broker in status.brokers
    ]
    print_table(["broker", "address", "http", "pid", "state", "leads", "replicas"], rows)
    if status.zookeeper is not None:
        alive = {None: "", True: ", running", False: ", not running"}[status.zookeeper.alive]
        typer.echo(f"ZooKeeper at {status.zookeeper.hosts}{alive}")
    if status.cluster_id is None:
        typer.echo("no broker responds")
        return
    typer.echo(f"cluster {status.cluster_id}, controller {status.controller}")
    typer.echo(
        f"{status.topics} topics, {status.partitions} partitions: {status.under_replicated_partitions} "
        f"under-replicated, {status.offline_partitions} offline"
    )


def _state(broker: BrokerStatus) -> str:
    if not broker.alive:
        return "gone"
    if not broker.member:
        return "not in the cluster"
    return "controller" if broker.controller else "serves"


def _status(
    bootstrap: str,
    view: ClusterSnapshot | None,
    brokers: list[BrokerStatus],
    zookeeper: ZooKeeperStatus | None,
) -> ClusterStatus:
    if view is None:
        return ClusterStatus(bootstrap, None, None, tuple(brokers), zookeeper, None, None, None, None)
    partitions = view.partitions
    return ClusterStatus(
        bootstrap,
        view.cluster_id,
        view.controller_id if view.controller_id >= 0 else None,
        tuple(brokers),
        zookeeper,
        len({partition.topic for partition in partitions}),
        len(partitions),
        sum(partition.is_under_replicated for partition in partitions),
        sum(partition.is_offline for partition in partitions),
    )


def _broker_status(
    view: ClusterSnapshot | None,
    node_id: int,
    host: str,
    port: int,
    *,
    http_port: int | None,
    pid: int | None,
    alive: bool,
) -> BrokerStatus:
    partitions = view.partitions if view else ()
    return BrokerStatus(
        node_id,
        pid,
        host,
        port,
        http_port,
        alive,
        member=view is not None and node_id in view.brokers,
        controller=view is not None and view.controller_id == node_id,
        leaders=sum(partition.leader == node_id for partition in partitions),
        replicas=sum(node_id in partition.replicas for partition in partitions),
    )


def _try_to_view(bootstrap: str) -> ClusterSnapshot | None:
    try:
        return _view(bootstrap)
    except Failure:
        return None


def _view(bootstrap: str) -> ClusterSnapshot:
    return run_admin(bootstrap, read_view, response_seconds=RESPONSE_SECONDS)
