"""`penstock cluster add|drain|replace|balance`: add and remove brokers and reassign their replicas."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.cluster_file import LOCALHOST, ClusterFile, LocalCluster
from penstock.cli.cluster_mover import move
from penstock.cli.cluster_moves import require_two_in_sync
from penstock.cli.cluster_plan import plan_broker
from penstock.cli.cluster_process import end_all
from penstock.cli.cluster_situation import Situation, read_situation
from penstock.cli.cluster_start import ClusterStart
from penstock.cli.failures import ExitCode, Failure
from penstock.cluster.balance import plan_balance, plan_drain, plan_replacement
from penstock.cluster.replica_layout import Assignment, Location
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId

STOP_SECONDS = 30.0

LocalOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The directory of a cluster on this machine.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", metavar="HOST:PORT", help="A broker of any cluster."
    ),
]
ThrottleOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="BYTES", help="Replication limit of each broker, in bytes per second."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the reassignments without starting them.")
]
NodeArgument = Annotated[int, typer.Argument(metavar="N", help="The broker id.")]


def add_to(app: typer.Typer) -> None:
    for command in (balance, add, drain, replace):
        app.command()(command)


def balance(
    replication_factor: Annotated[
        int, typer.Option(min=1, help="Also raise every partition to at least this number of replicas.")
    ] = 1,
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Spread replicas and leaders evenly over the live brokers."""

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_balance(current, situation.locations, replication_factor)

    address = _address(data_dir, bootstrap)
    move(address, plan, throttle=throttle, dry_run=dry_run)
    if replication_factor > 1 and not dry_run:
        for topic in run_admin(address, _require_two_in_sync):
            typer.echo(f"set min.insync.replicas=2 on {topic}, which has three replicas")


def add(
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory of a cluster on this machine.")
    ],
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Start one more broker on this machine and reassign a fair share of the replicas to it.

    Elsewhere start a broker with `penstock broker --zookeeper`, then run `penstock cluster balance`.
    """
    newcomer = _newcomer(ClusterFile(data_dir), dry_run)

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_balance(current, newcomer | situation.locations)

    again = f"`penstock cluster balance --data-dir {data_dir}`"
    move(_address(data_dir, None), plan, throttle=throttle, dry_run=dry_run, again=again)


def drain(
    node_id: NodeArgument,
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Reassign all replicas of a broker to other brokers; with --data-dir the broker is then stopped."""

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_drain(current, situation.locations, BrokerId(node_id))

    address = _address(data_dir, bootstrap, without=node_id)
    let_go = _ending(data_dir, node_id)
    move(address, plan, throttle=throttle, dry_run=dry_run, leaving=node_id, let_go=let_go)
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
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Reassign all replicas of a broker, alive or dead, to another broker."""
    newcomer: dict[BrokerId, Location] = {}
    if new is None:
        if data_dir is None:
            raise Failure("name the broker that takes its place, --with N", code=ExitCode.USAGE)
        ClusterFile(data_dir).load().broker(node_id)
        newcomer = _newcomer(ClusterFile(data_dir), dry_run)
    heir = BrokerId(new) if new is not None else next(iter(newcomer))

    def plan(situation: Situation, current: Assignment) -> Assignment:
        locations = newcomer | situation.locations
        if heir not in locations:
            raise Failure(f"there is no broker {heir}", "`penstock cluster status` shows the brokers.")
        return plan_replacement(current, locations, BrokerId(node_id), heir)

    address = _address(data_dir, bootstrap, without=node_id)
    again = f"`penstock cluster replace {node_id} --with {heir}`"
    let_go = _ending(data_dir, node_id)
    move(address, plan, throttle=throttle, dry_run=dry_run, leaving=node_id, let_go=let_go, again=again)
    if not dry_run:
        _forget(data_dir, node_id)


def _address(data_dir: Path | None, bootstrap: str | None, without: int | None = None) -> str:
    """Return the bootstrap addresses; of a cluster on this machine without the broker `without`."""
    if data_dir is None:
        if bootstrap is None:
            raise Failure("name a cluster with --data-dir or --bootstrap", code=ExitCode.USAGE)
        return bootstrap
    running = [broker for broker in ClusterFile(data_dir).load().brokers if broker.running]
    asked = [broker.address for broker in running if broker.node_id != without]
    if not asked:
        raise Failure("no other broker runs", f"`penstock cluster up --data-dir {data_dir}` starts them.")
    return ",".join(asked)


def _newcomer(file: ClusterFile, dry_run: bool) -> dict[BrokerId, Location]:
    """Start one more broker and return its location; with `dry_run` only return the location."""
    node_id = plan_broker(file.load()).node_id
    if not dry_run:

        def grown(_: LocalCluster | None) -> LocalCluster:
            cluster = file.load()
            return cluster.with_broker(plan_broker(cluster))

        broker = ClusterStart(file).run(grown, node_id).broker(node_id)
        typer.echo(
            f"started broker {node_id} at {broker.address}, metrics and health at {broker.http_address}"
        )
    return {BrokerId(node_id): Location(LOCALHOST)}


def _ending(data_dir: Path | None, node_id: int) -> Callable[[], None] | None:
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
        typer.echo(
            f"broker {node_id} holds nothing and can be stopped; new topics may be placed on it until then"
        )
        return
    file = ClusterFile(data_dir)
    with file.locked():
        file.save(file.load().without_broker(node_id))
    typer.echo(f"broker {node_id} holds nothing; it is stopped, and {file.broker_directory(node_id)} can go")


async def _require_two_in_sync(client: InternalClient) -> list[str]:
    return await require_two_in_sync(client, await read_situation(client))
