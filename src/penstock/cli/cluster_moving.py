"""`penstock cluster add|drain|replace|balance`: what moves is planned, shown, and seen through."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.cluster_file import LOCALHOST, ClusterFile, LocalCluster
from penstock.cli.cluster_moves import Move, carry_out, moves_of, require_two_in_sync, set_throttle
from penstock.cli.cluster_plan import plan_broker
from penstock.cli.cluster_process import end_all
from penstock.cli.cluster_situation import Situation, read_situation
from penstock.cli.cluster_start import ClusterStart
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import print_table, show_bytes
from penstock.cluster.balance import plan_balance, plan_drain, plan_replacement
from penstock.cluster.replica_layout import Assignment, Location, NoPlan
from penstock.model import BrokerId

MAX_ROUNDS = 5
STOP_SECONDS = 30.0

Plan = Callable[[Situation, Assignment], Assignment]
"""What shall be, of the partitions that can move."""

LocalOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Of a cluster on this machine.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", metavar="HOST:PORT", help="Of any cluster."
    ),
]
ThrottleOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="BYTES", help="How much each broker may give to copies in a second."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")]
NodeArgument = Annotated[int, typer.Argument(metavar="N", help="The broker's number.")]


def add_to(app: typer.Typer) -> None:
    for command in (balance, add, drain, replace):
        app.command()(command)


def balance(
    replication_factor: Annotated[
        int, typer.Option(min=1, help="Also give every partition at least so many replicas.")
    ] = 1,
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Spread replicas and leaders evenly over the brokers that are there."""

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_balance(current, situation.locations, replication_factor)

    address = _address(data_dir, bootstrap)
    _move(address, plan, throttle, dry_run)
    if replication_factor > 1 and not dry_run:
        for topic in asyncio.run(_require_two_in_sync(address)):
            typer.echo(f"set min.insync.replicas=2 on {topic}, which has three replicas")


def add(
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Of a cluster on this machine.")],
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Start one more broker on this machine and give it its share.

    Elsewhere start it with `penstock broker --zookeeper`, and run `penstock cluster balance`.
    """
    file = ClusterFile(data_dir)
    if dry_run:
        node_id = BrokerId(plan_broker(file.load()).node_id)

        def plan_ahead(situation: Situation, current: Assignment) -> Assignment:
            return plan_balance(current, situation.locations | {node_id: Location(LOCALHOST)})

        _move(file.load().bootstrap, plan_ahead, throttle, dry_run)
        return
    cluster = _start_one_more(file)

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_balance(current, situation.locations)

    _move(cluster.bootstrap, plan, throttle, dry_run)


def drain(
    node_id: NodeArgument,
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Have other brokers hold all that a broker holds; one on this machine (--data-dir) is then stopped."""

    def plan(situation: Situation, current: Assignment) -> Assignment:
        return plan_drain(current, situation.locations, BrokerId(node_id))

    _move(_address(data_dir, bootstrap, without=node_id), plan, throttle, dry_run, leaving=node_id)
    if not dry_run:
        _let_go(data_dir, node_id)


def replace(
    node_id: NodeArgument,
    new: Annotated[
        int | None,
        typer.Option(
            "--with", metavar="N", help="The broker that takes its place; with --data-dir a new one."
        ),
    ] = None,
    data_dir: LocalOption = None,
    bootstrap: ClusterOption = None,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Give all that a broker holds, or held before it died, to another one."""
    planned = new
    if new is None:
        if data_dir is None:
            raise Failure("name the broker that takes its place, --with N", code=ExitCode.USAGE)
        file = ClusterFile(data_dir)
        file.load().broker(node_id)
        planned = plan_broker(file.load()).node_id
        if not dry_run:
            planned = _start_one_more(file).brokers[-1].node_id
    assert planned is not None
    heir = BrokerId(planned)

    def plan(situation: Situation, current: Assignment) -> Assignment:
        if new is not None and heir not in situation.locations:
            raise Failure(f"there is no broker {heir}", "`penstock cluster status` shows the brokers.")
        locations = (
            situation.locations if new is not None else situation.locations | {heir: Location(LOCALHOST)}
        )
        return plan_replacement(current, locations, BrokerId(node_id), heir)

    _move(_address(data_dir, bootstrap, without=node_id), plan, throttle, dry_run, leaving=node_id)
    if not dry_run:
        _let_go(data_dir, node_id)


def _move(address: str, plan: Plan, throttle: int | None, dry_run: bool, leaving: int | None = None) -> None:
    try:
        asyncio.run(_plan_and_move(address, plan, throttle, dry_run, leaving))
    except NoPlan as error:
        raise Failure(str(error), "Start another broker first.") from None
    except KeyboardInterrupt:
        typer.echo("what was begun goes on in the cluster; the same command waits for it again", err=True)
        raise


async def _plan_and_move(
    address: str, plan: Plan, throttle: int | None, dry_run: bool, leaving: int | None
) -> None:
    """Again, until there is nothing left to move: topics are made and deleted meanwhile."""
    async with ClusterClient(address) as client:
        for count in range(MAX_ROUNDS):
            situation = await read_situation(client)
            if leaving is not None and count == 0:
                _check_known(situation, leaving)
            movable = {
                name: replicas
                for name, replicas in situation.assignment.items()
                if situation.leaders[name] in situation.view.brokers
            }
            moves = moves_of(situation, plan(situation, movable))
            if dry_run:
                _show(moves)
                return
            if not moves:
                typer.echo("done" if count else "nothing to move")
                break
            typer.echo(_summary(moves))
            if throttle is not None:
                await set_throttle(client, throttle)
            await carry_out(client, situation, moves)
        if throttle is not None:
            await set_throttle(client, None)
        _check_nothing_is_lost(situation, leaving)


async def _require_two_in_sync(address: str) -> list[str]:
    async with ClusterClient(address) as client:
        return await require_two_in_sync(client, await read_situation(client))


def _show(moves: list[Move]) -> None:
    rows = [
        (str(move.name), _listed(move.before), _listed(move.after), show_bytes(move.missing_bytes))
        for move in moves
    ]
    if rows:
        print_table(["partition", "from", "to", "bytes"], rows)
    typer.echo(_summary(moves) if moves else "nothing to move")


def _summary(moves: list[Move]) -> str:
    added = sum(len(move.added) for move in moves)
    copied = sum(move.missing_bytes for move in moves)
    return f"{added} replicas to copy ({show_bytes(copied)}) in {len(moves)} partitions that change"


def _listed(brokers: tuple[BrokerId, ...]) -> str:
    return ",".join(map(str, brokers))


def _check_known(situation: Situation, node_id: int) -> None:
    is_used = any(node_id in replicas for replicas in situation.assignment.values())
    if node_id not in situation.view.brokers and not is_used:
        raise Failure(f"there is no broker {node_id}", "`penstock cluster status` shows the brokers.")


def _check_nothing_is_lost(situation: Situation, leaving: int | None) -> None:
    """A partition that nobody leads cannot move: its only copies in sync are on brokers that are away."""
    stuck = [name for name, replicas in situation.assignment.items() if leaving in replicas]
    if stuck:
        raise Failure(
            f"broker {leaving} has the only copy in sync of {len(stuck)} partitions, {stuck[0]} first",
            "Start it again to have them moved. If its disk is lost, so are they.",
        )


def _address(data_dir: Path | None, bootstrap: str | None, without: int | None = None) -> str:
    """Where to ask; of a cluster on this machine not the broker that is to go."""
    if data_dir is not None:
        brokers = ClusterFile(data_dir).load().brokers
        return ",".join(broker.address for broker in brokers if broker.running and broker.node_id != without)
    if bootstrap is None:
        raise Failure("name a cluster with --data-dir or --bootstrap", code=ExitCode.USAGE)
    return bootstrap


def _start_one_more(file: ClusterFile) -> LocalCluster:
    def grown(known: LocalCluster | None) -> LocalCluster:
        cluster = file.load() if known is None else known
        return cluster.with_broker(plan_broker(cluster))

    node_id = plan_broker(file.load()).node_id
    cluster = ClusterStart(file).run(grown, node_id)
    broker = cluster.broker(node_id)
    typer.echo(f"started broker {node_id} at {broker.address}, metrics and health at {broker.http_address}")
    return cluster


def _let_go(data_dir: Path | None, node_id: int) -> None:
    """Nobody needs the broker any more; one of ours is stopped and forgotten."""
    if data_dir is None:
        typer.echo(
            f"broker {node_id} holds nothing and can be stopped; new topics may be placed on it until then"
        )
        return
    file = ClusterFile(data_dir)
    with file.locked():
        cluster = file.load()
        process = cluster.broker(node_id).running
        if process is not None:
            end_all([process], signal.SIGTERM, STOP_SECONDS)
        file.save(cluster.without_broker(node_id))
    typer.echo(f"broker {node_id} holds nothing; it is stopped, and {file.broker_directory(node_id)} can go")
