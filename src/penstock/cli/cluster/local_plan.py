"""Brokers and ports of a cluster on this machine, with checks before any process is started."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

import msgspec

from penstock.cli.cluster.local_cluster import LOCALHOST, Form, LocalBroker, LocalCluster, LocalZooKeeper
from penstock.cli.failures import ExitCode, Failure
from penstock.config.loading import load_broker_config

FIRST_NODE_ID = 1
MAX_PORT = 65_535

_OF_ONE_BROKER = {
    "node.id",
    "port",
    "http.port",
    "log.dir",
    "zookeeper.connect",
    "advertised.listeners",
    "processes",
}


def plan_cluster(form: Form) -> LocalCluster:
    """Plan a new cluster; its own ZooKeeper gets the first free port below the ports of the brokers."""
    planned = tuple(
        LocalBroker(
            FIRST_NODE_ID + number, form.base_port + number, form.http_base_port + number, has_tls=form.secure
        )
        for number in range(form.brokers)
    )
    ports = _ports_of(planned)
    if len(set(ports)) < len(ports):
        raise Failure(
            f"the ports for Kafka (from {form.base_port}) and for HTTP (from {form.http_base_port}) overlap",
            f"Choose --base-port and --http-base-port at least {form.brokers} apart.",
            code=ExitCode.USAGE,
        )
    if max(ports) > MAX_PORT:
        raise Failure(
            f"port {max(ports)} of the last broker is above {MAX_PORT}",
            "Choose a smaller --base-port or --http-base-port.",
            code=ExitCode.USAGE,
        )
    if form.zookeeper is not None:
        return LocalCluster(form, planned, LocalZooKeeper(form.zookeeper), {})
    below = (port for port in range(form.base_port - 1, 0, -1) if port not in ports)
    port = next(port for port in below if _problem_with(LOCALHOST, port) is None)
    return LocalCluster(form, planned, LocalZooKeeper(f"{LOCALHOST}:{port}", port), {})


def plan_broker(cluster: LocalCluster) -> LocalBroker:
    """Plan one more broker, with the ports after those of the other brokers."""
    return LocalBroker(
        max(broker.node_id for broker in cluster.brokers) + 1,
        max(broker.port for broker in cluster.brokers) + 1,
        max(broker.http_port for broker in cluster.brokers) + 1,
        has_tls=cluster.form.secure,
    )


def with_settings(cluster: LocalCluster, settings: Mapping[str, str]) -> LocalCluster:
    """Return the cluster with settings added. Raises ConfigError or Failure if brokers would not start with them."""
    for name in sorted(_OF_ONE_BROKER & settings.keys()):
        raise Failure(
            f"{name} cannot be set for all brokers of the cluster",
            "Each broker of a local cluster gets its own value.",
            code=ExitCode.USAGE,
        )
    merged = {**cluster.settings, **settings}
    load_broker_config(command_line=merged)
    return msgspec.structs.replace(cluster, settings=merged)


def check_ports(cluster: LocalCluster, brokers: Iterable[LocalBroker], zookeeper_port: int | None) -> None:
    """Raise Failure with all ports that are not free."""
    host = cluster.settings.get("host", LOCALHOST)
    wanted = [(host, port) for port in _ports_of(brokers)]
    if zookeeper_port is not None:
        wanted.append((LOCALHOST, zookeeper_port))
    problems = [
        f"{at}:{port} ({problem})" for at, port in wanted if (problem := _problem_with(at, port)) is not None
    ]
    if problems:
        raise Failure(
            f"cannot listen on {', '.join(problems)}",
            "Stop the processes that use these ports, or create a cluster in another --data-dir with another "
            "--base-port and --http-base-port.",
        )


def _ports_of(brokers: Iterable[LocalBroker]) -> list[int]:
    return [port for broker in brokers for port in (broker.port, broker.http_port)]


def _problem_with(host: str, port: int) -> str | None:
    """Return the reason why a port cannot be listened on; None if it can."""
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return None
