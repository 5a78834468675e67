"""`penstock cluster add|drain|replace|balance`: add and remove brokers, and reassign replicas."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.cluster.local_cluster import LOCALHOST, ClusterFile, LocalCluster
from penstock.cli.cluster.local_plan import plan_broker
from penstock.cli.cluster.options import (
    DataDirOption,
    MaybeBootstrapOption,
    MaybeDataDirOption,
    NodeArgument,
    no_cluster_named,
)
from penstock.cli.cluster.reassignment_rounds import LIST_BROKERS, DecommissionedBroker, reassign
from penstock.cli.cluster.reassignment_settings import require_two_in_sync
from penstock.cli.cluster.replicas import ClusterReplicas
from penstock.cli.cluster.start import ClusterStart, where
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.processes.process_id import STOP_SECONDS, end_all
from penstock.cluster.balance import plan_balance, plan_drain, plan_replacement
from penstock.cluster.replica_layout import Assignment, Location
from penstock.model import BrokerId

ThrottleOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="BYTES", help="Replication limit of each broker, in bytes per second."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the reassignments without starting them.")
]


def register(app: typer.Typer) -> None:
    for command in (balance, add, drain, replace):
        app.command()(command)


def balance(
    replication_factor: Annotated[
        int, typer.Option(min=1, help="Also raise every partition to at least this number of replicas.")
    ] = 1,
    data_dir: MaybeDataDirOption = None,
    bootstrap: MaybeBootstrapOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Spread replicas and leaders evenly over the live brokers."""

    def plan(replicas: ClusterReplicas, current: Assignment) -> Assignment:
        return plan_balance(current, replicas.locations, replication_factor)

    address = _address(data_dir, bootstrap)
    reassign(address, plan, throttle=throttle, dry_run=dry_run)
    if replication_factor > 1 and not dry_run:
        for topic in run_admin(address, require_two_in_sync):
            typer.echo(f"set min.insync.replicas=2 on {topic}, which has three or more replicas")


def add(
    data_dir: DataDirOption,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Add a broker on this machine and reassign a proportional share of the replicas to it.

    To add a broker on another machine, start it with `penstock broker --zookeeper`, then run `penstock cluster
    balance`.
    """
    added = _add_broker(ClusterFile(data_dir), dry_run)

    def plan(replicas: ClusterReplicas, current: Assignment) -> Assignment:
        return plan_balance(current, added | replicas.locations)

    address = _address(data_dir, None)
    wait_command = f"`penstock cluster balance --data-dir {data_dir}`"
    reassign(address, plan, throttle=throttle, dry_run=dry_run, wait_command=wait_command)


def drain(
    node_id: NodeArgument,
    data_dir: MaybeDataDirOption = None,
    bootstrap: MaybeBootstrapOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Reassign all replicas of a broker to other brokers. With --data-dir the broker is stopped afterwards."""

    def plan(replicas: ClusterReplicas, current: Assignment) -> Assignment:
        return plan_drain(current, replicas.locations, BrokerId(node_id))

    address = _address(data_dir, bootstrap, without=node_id)
    removal = DecommissionedBroker(node_id, _stopping(data_dir, node_id))
    reassign(address, plan, throttle=throttle, dry_run=dry_run, removal=removal)
    if not dry_run:
        _forget(data_dir, node_id)


def replace(
    node_id: NodeArgument,
    new: Annotated[
        int | None,
        typer.Option(
            "--with", metavar="N", help="The new broker; with --data-dir one is started by default."
        ),
    ] = None,
    data_dir: MaybeDataDirOption = None,
    bootstrap: MaybeBootstrapOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Reassign all replicas of a broker, which may be dead, to another broker."""
    added: dict[BrokerId, Location] = {}
    if new is None:
        if data_dir is None:
            raise Failure(
                f"no replacement for broker {node_id} is named",
                "Give --with N, the id of a running broker.",
                code=ExitCode.USAGE,
            )
        ClusterFile(data_dir).load().broker(node_id)
        added = _add_broker(ClusterFile(data_dir), dry_run)
    replacement = BrokerId(new) if new is not None else next(iter(added))

    def plan(replicas: ClusterReplicas, current: Assignment) -> Assignment:
        locations = added | replicas.locations
        if replacement not in locations:
            raise Failure(f"there is no broker {replacement}", LIST_BROKERS)
        return plan_replacement(current, locations, BrokerId(node_id), replacement)

    address = _address(data_dir, bootstrap, without=node_id)
    wait_command = f"`penstock cluster replace {node_id} --with {replacement}`"
    removal = DecommissionedBroker(node_id, _stopping(data_dir, node_id))
    reassign(address, plan, throttle=throttle, dry_run=dry_run, removal=removal, wait_command=wait_command)
    if not dry_run:
        _forget(data_dir, node_id)


def _address(data_dir: Path | None, bootstrap: str | None, without: int | None = None) -> str:
    """Return the bootstrap addresses. For a cluster on this machine, the broker `without` is left out."""
    if data_dir is None:
        if bootstrap is None:
            raise no_cluster_named()
        return bootstrap
    running = [broker for broker in ClusterFile(data_dir).load().brokers if broker.running]
    addresses = [broker.address for broker in running if broker.node_id != without]
    if not addresses:
        other = "" if without is None else f" other than {without}"
        raise Failure(
            f"no broker{other} of the cluster in {data_dir} is running",
            f"Start the brokers with `penstock cluster up --data-dir {data_dir}`.",
        )
    return ",".join(addresses)


def _add_broker(file: ClusterFile, dry_run: bool) -> dict[BrokerId, Location]:
    """Add a broker on this machine; return its id and location. With `dry_run`, nothing is started."""
    node_id = plan_broker(file.load()).node_id
    if not dry_run:

        def grown(_: LocalCluster | None) -> LocalCluster:
            cluster = file.load()
            return cluster.with_broker(plan_broker(cluster))

        broker = ClusterStart(file).run(grown, node_id).broker(node_id)
        typer.echo(f"started {where(broker)}")
    return {BrokerId(node_id): Location(LOCALHOST)}


def _stopping(data_dir: Path | None, node_id: int) -> Callable[[], None] | None:
    """Return a function that stops the broker; None if it is not in a cluster on this machine."""
    if data_dir is None:
        return None
    file = ClusterFile(data_dir)

    def stop() -> None:
        process = file.load().broker(node_id).running
        if process is not None:
            end_all([process], signal.SIGTERM, STOP_SECONDS)

    return stop


def _forget(data_dir: Path | None, node_id: int) -> None:
    """Remove a drained broker from the cluster file, and tell the user that it holds no replicas."""
    if data_dir is None:
        typer.echo(f"broker {node_id} holds no replicas; stop it before new topics are placed on it")
        return
    file = ClusterFile(data_dir)
    with file.locked():
        file.save(file.load().without_broker(node_id))
    directory = file.broker_directory(node_id)
    typer.echo(f"broker {node_id} holds no replicas and is stopped; {directory} can be deleted")
