"""`penstock group`: list, describe, reset, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli.admin_client import NO_GROUP
from penstock.cli.cluster import Cluster
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.group_description import (
    describe_group,
    describe_groups,
    group_ids,
    is_group_of_others,
    print_group,
)
from penstock.cli.group_reset import (
    TO_EARLIEST,
    TO_LATEST,
    Aim,
    Move,
    by_shift,
    commit_moves,
    plan_reset,
    to_offset,
    to_time,
)
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.times import parse_time_ms
from penstock.clock import SystemClock

GroupArgument = Annotated[str, typer.Argument(help="The group id.")]

app = typer.Typer(
    help="Inspect consumer groups and their lag, and reset their offsets.", no_args_is_help=True
)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="group")


@app.command("list")
def list_groups(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the consumer groups with their type, state, members, topics and lag."""
    cluster = Cluster(bootstrap)
    groups = describe_groups(cluster, group_ids(cluster))
    if json:
        print_json(
            [
                {"group": each.group, "type": each.type, "state": each.state}
                | {"members": len(each.members), "topics": each.topics, "lag": each.lag}
                for each in groups
            ]
        )
    elif groups:
        rows = [
            (each.group, each.type, each.state, len(each.members), ",".join(each.topics) or NONE, each.lag)
            for each in groups
        ]
        print_table(["group", "type", "state", "members", "topics", "lag"], rows)
    else:
        typer.echo("no groups; `penstock consume TOPIC --group GROUP` makes one", err=True)


@app.command()
def describe(
    group: GroupArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a group's members and, for each partition, the committed offset, the lag and the owner."""
    described = describe_group(Cluster(bootstrap), group)
    if json:
        print_json(described.as_json())
    else:
        print_group(described)


@app.command()
def reset(
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:PARTITION]", help="A topic, or one of its partitions; repeatable."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the log end: only new records are read.")
    ] = False,
    offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first record at or after 2026-03-01T12:00:00Z, or 2h ago.",
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="N", help="By N offsets: 10 forward, -10 back.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the changes; by default they are only shown.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Reset the committed offsets of a group without members. --execute applies the shown changes."""
    if bool(topic) == all_topics:
        raise Failure("give either --topic or --all-topics", code=ExitCode.USAGE)
    aim = _aim(to_earliest, to_latest, offset, time, shift)
    cluster = Cluster(bootstrap)
    moves = plan_reset(cluster, group, None if all_topics else topic, aim)
    if execute:
        commit_moves(cluster, group, moves)
    if json:
        print_json({"group": group, "executed": execute, "partitions": [_as_json(move) for move in moves]})
        return
    rows = [(move.topic, move.partition, NONE if move.old is None else move.old, move.new) for move in moves]
    print_table(["topic", "partition", "committed offset", "new offset"], rows)
    if not execute:
        typer.echo("nothing was changed; --execute does it", err=True)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The group ids.")],
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    cluster = Cluster(bootstrap)
    unlisted = sorted(set(groups) - set(group_ids(cluster)))
    missing = [group for group in unlisted if not is_group_of_others(cluster, group)]
    if missing:
        raise Failure(f"there is no group {missing[0]!r}", NO_GROUP)
    confirm(f"Delete {_named(groups)} and all committed offsets?", yes=yes)
    failures = []
    for group in groups:
        try:
            cluster.run(lambda client, name=group: client.groups.delete(name), group)  # type: ignore[misc]
        except Failure as failure:
            failures.append(failure)
        else:
            _tell_deleted(group, json)
    if failures:
        raise failures[0]


def _tell_deleted(group: str, json: bool) -> None:
    if json:
        print_json({"group": group, "deleted": True})
    else:
        typer.echo(f"deleted group {group}")


def _aim(to_earliest: bool, to_latest: bool, offset: int | None, time: str | None, shift: int | None) -> Aim:
    if to_earliest + to_latest + (offset is not None) + (time is not None) + (shift is not None) != 1:
        raise Failure(
            "give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift", code=ExitCode.USAGE
        )
    if offset is not None:
        return to_offset(offset)
    if time is not None:
        return to_time(parse_time_ms(time, SystemClock().now_ms()))
    if shift is not None:
        return by_shift(shift)
    return TO_EARLIEST if to_earliest else TO_LATEST


def _as_json(move: Move) -> dict[str, object]:
    return {"topic": move.topic, "partition": move.partition, "old": move.old, "new": move.new}


def _named(groups: Sequence[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups"
