"""Reassignment of replicas from start to end: read the cluster, plan, show the plan, start the reassignments and wait.

Topics may be created or deleted during the reassignment, so these steps are repeated until the plan changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import typer

from penstock.cli.admin_client import admin_client, reported
from penstock.cli.cluster.reassignment import PlannedReassignment, execute, reassignments_of
from penstock.cli.cluster.reassignment_settings import set_throttle
from penstock.cli.cluster.replicas import ClusterReplicas, Replicas, read_replicas
from penstock.cli.failures import Failure
from penstock.cli.output import print_table, show_bytes
from penstock.cluster.replica_layout import Assignment, NoPlan

MAX_ROUNDS = 5
NOTHING_TO_DO = "no replicas to reassign"
LIST_BROKERS = "`penstock cluster status` lists the brokers."

Plan = Callable[[ClusterReplicas, Assignment], Assignment]
"""Function from the replicas of the cluster and the assignment of the movable partitions to the target assignment."""


@dataclass(frozen=True, slots=True)
class DecommissionedBroker:
    """Broker that must have no replicas at the end."""

    node_id: int
    stop: Callable[[], None] | None = None
    """Function that stops the broker once it has no replicas; None to leave the broker running."""


def reassign(
    address: str,
    plan: Plan,
    *,
    throttle: int | None,
    dry_run: bool,
    removal: DecommissionedBroker | None = None,
    wait_command: str = "the same command",
) -> None:
    """Reassign replicas of the cluster at an address until the plan has nothing left to change.

    `throttle` is a limit in bytes per second. `wait_command` is the command that waits for the reassignments in
    progress; it is shown when the user interrupts this command.
    """
    try:
        with reported():
            asyncio.run(_reassign(address, plan, throttle, dry_run, removal))
    except NoPlan as error:
        raise Failure(str(error), "Start another broker first.") from None
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted: reassignments continue in the cluster; {wait_command} waits for them", err=True
        )
        if throttle is not None:
            typer.echo(
                f"the throttle of {throttle} bytes per second stays set on all brokers until such a command "
                "completes",
                err=True,
            )
        raise


async def _reassign(
    address: str, plan: Plan, throttle: int | None, dry_run: bool, removal: DecommissionedBroker | None
) -> None:
    async with admin_client(address) as client:
        stop = removal.stop if removal else None
        has_changed = False
        for count in range(MAX_ROUNDS):
            replicas = await read_replicas(client)
            if count == 0:
                _check_known(replicas, removal)
            wanted = reassignments_of(replicas, plan(replicas, replicas.movable))
            if dry_run:
                _show(wanted)
                return
            if wanted:
                has_changed = True
                typer.echo(_summary(wanted))
                await set_throttle(client, throttle)
                await execute(client, replicas, wanted)
                continue
            _check_empty(replicas, removal)
            if stop is None:
                break
            stop()
            stop = None
        typer.echo("done" if has_changed else NOTHING_TO_DO)
        await set_throttle(client, None)
        _check_empty(replicas, removal)


def _check_known(replicas: ClusterReplicas, removal: DecommissionedBroker | None) -> None:
    if removal is None or removal.node_id in replicas.view.brokers or replicas.held_by(removal.node_id):
        return
    raise Failure(f"there is no broker {removal.node_id}", LIST_BROKERS)


def _check_empty(replicas: ClusterReplicas, removal: DecommissionedBroker | None) -> None:
    left = replicas.held_by(removal.node_id) if removal else []
    if removal and left:
        raise Failure(
            f"broker {removal.node_id} has the only in-sync replica of {len(left)} partitions, the first is {left[0]}",
            "Start the broker and run the command again. If its disk is lost, these partitions are lost.",
        )


def _show(wanted: list[PlannedReassignment]) -> None:
    rows = [
        (str(each.name), _listed(each.before), _listed(each.after), show_bytes(each.missing_bytes))
        for each in wanted
    ]
    if rows:
        print_table(["partition", "from", "to", "bytes"], rows)
    typer.echo(_summary(wanted) if wanted else NOTHING_TO_DO)


def _summary(wanted: list[PlannedReassignment]) -> str:
    added = sum(len(each.added) for each in wanted)
    missing_bytes = sum(each.missing_bytes for each in wanted)
    return f"{added} replicas to copy ({show_bytes(missing_bytes)}), {len(wanted)} partitions to reassign"


def _listed(brokers: Replicas) -> str:
    return ",".join(map(str, brokers))
