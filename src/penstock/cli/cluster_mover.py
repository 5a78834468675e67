"""Reassignment of replicas from start to end: read the cluster, plan, show the plan, start it and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import typer

from penstock.cli.admin_client import admin_client, reported
from penstock.cli.cluster_moves import Move, carry_out, moves_of, set_throttle
from penstock.cli.cluster_situation import Situation, read_situation
from penstock.cli.failures import Failure
from penstock.cli.output import print_table, show_bytes
from penstock.cluster.replica_layout import Assignment, NoPlan
from penstock.model import BrokerId

MAX_ROUNDS = 5

Plan = Callable[[Situation, Assignment], Assignment]
"""Function from the situation and the assignment of the movable partitions to the target assignment."""


def move(
    address: str,
    plan: Plan,
    *,
    throttle: int | None,
    dry_run: bool,
    leaving: int | None = None,
    let_go: Callable[[], None] | None = None,
    again: str = "the same command",
) -> None:
    """Reassign replicas of the cluster at an address until the plan has nothing left to change.

    `leaving` is a broker that must hold no replica at the end, and `let_go` stops it once it holds none.
    `again` is the command that waits for the reassignments after an interruption; the user is shown it.
    """
    try:
        with reported():
            asyncio.run(_move(address, plan, throttle, dry_run, leaving, let_go))
    except NoPlan as error:
        raise Failure(str(error), "Start another broker first.") from None
    except KeyboardInterrupt:
        typer.echo(f"what was begun goes on in the cluster; {again} waits for it", err=True)
        if throttle is not None:
            typer.echo(
                "so does the throttle, also for brokers that come back, until a command like this one comes to its end",
                err=True,
            )
        raise


async def _move(
    address: str,
    plan: Plan,
    throttle: int | None,
    dry_run: bool,
    leaving: int | None,
    let_go: Callable[[], None] | None,
) -> None:
    """Plan and reassign in rounds, because topics may be created or deleted meanwhile."""
    async with admin_client(address) as client:
        moved = False
        for count in range(MAX_ROUNDS):
            situation = await read_situation(client)
            if leaving is not None and count == 0:
                _check_known(situation, leaving)
            moves = moves_of(situation, plan(situation, _movable(situation)))
            if dry_run:
                _show(moves)
                return
            if moves:
                moved = True
                typer.echo(_summary(moves))
                await set_throttle(client, throttle)
                await carry_out(client, situation, moves)
                continue
            _check_nothing_is_left(situation, leaving)
            if let_go is None:
                break
            let_go()
            let_go = None
        typer.echo("done" if moved else "nothing to move")
        await set_throttle(client, None)
        _check_nothing_is_left(situation, leaving)


def _movable(situation: Situation) -> Assignment:
    """Return the assignment of partitions with a live leader: only these can be replicated."""
    return {
        name: replicas
        for name, replicas in situation.assignment.items()
        if situation.leaders[name] in situation.view.brokers
    }


def _check_known(situation: Situation, node_id: int) -> None:
    is_used = any(node_id in replicas for replicas in situation.assignment.values())
    if node_id not in situation.view.brokers and not is_used:
        raise Failure(f"there is no broker {node_id}", "`penstock cluster status` shows the brokers.")


def _check_nothing_is_left(situation: Situation, leaving: int | None) -> None:
    left = [name for name, replicas in situation.assignment.items() if leaving in replicas]
    if left:
        raise Failure(
            f"broker {leaving} has the only copy in sync of {len(left)} partitions, {left[0]} first",
            "Start it again to have them moved. If its disk is lost, so are they.",
        )


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
