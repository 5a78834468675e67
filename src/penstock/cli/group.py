"""`penstock group`: list, describe, reset, delete, remove members, delete offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli.admin_client import NO_GROUP
from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.group_changes import GroupArgument, delete_offsets, remove_member
from penstock.cli.group_description import (
    describe_group,
    describe_groups,
    group_ids,
    is_other_group,
    print_group,
)
from penstock.cli.group_reset import (
    TO_EARLIEST,
    TO_LATEST,
    Aim,
    OffsetReset,
    by_shift,
    commit_resets,
    plan_reset,
    to_offset,
    to_offsets_of,
    to_time,
)
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.share_group import describe_share_groups, print_share_group, share_group_ids
from penstock.cli.times import parse_time_ms
from penstock.clock import SystemClock
from penstock.internal_client.share_groups import SHARE

ResetTopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC[:PARTITION]", help="A topic, or one of its partitions; repeatable."
    ),
]
AllTopicsOption = Annotated[
    bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
]
ToEarliestOption = Annotated[bool, typer.Option("--to-earliest", help="To the log start.")]
ToLatestOption = Annotated[
    bool, typer.Option("--to-latest", help="To the log end: only new records are read.")
]
ToOffsetOption = Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")]
ToTimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-time", metavar="TIME", help="To the first record at or after 2026-03-01T12:00:00Z, or 2h ago."
    ),
]
ShiftOption = Annotated[
    int | None, typer.Option("--shift", metavar="N", help="By N offsets: 10 forward, -10 back.")
]
FromGroupOption = Annotated[
    str | None, typer.Option("--from-group", metavar="GROUP", help="To the committed offsets of this group.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Apply the changes; by default they are only shown.")
]

app = typer.Typer(
    help="Inspect consumer groups and their lag, and reset their offsets.", no_args_is_help=True
)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="group")
    app.command("remove-member")(remove_member)
    app.command("delete-offsets")(delete_offsets)


@app.command("list")
def list_groups(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the consumer and share groups with their type, state, members, topics and lag."""
    cluster = ClusterClient(bootstrap)
    groups = describe_groups(cluster, group_ids(cluster))
    shared = describe_share_groups(cluster, share_group_ids(cluster))
    if json:
        print_json(
            [
                {"group": each.group, "type": each.type, "state": each.state}
                | {"members": len(each.members), "topics": each.topics, "lag": each.lag}
                for each in groups
            ]
            + [
                {"group": each.details.id, "type": SHARE, "state": each.state}
                | {"members": len(each.details.members), "topics": each.topics, "lag": each.lag}
                for each in shared
            ]
        )
    elif groups or shared:
        rows = [
            (each.group, each.type, each.state, len(each.members), ",".join(each.topics) or NONE, each.lag)
            for each in groups
        ] + [
            (
                each.details.id,
                SHARE,
                each.state,
                len(each.details.members),
                ",".join(each.topics) or NONE,
                each.lag,
            )
            for each in shared
        ]
        print_table(["group", "type", "state", "members", "topics", "lag"], rows)
    else:
        typer.echo("no groups; `penstock consume TOPIC --group GROUP` creates one", err=True)


@app.command()
def describe(
    group: GroupArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a group's members, and the offset and lag of each partition; for a share group also the locks."""
    cluster = ClusterClient(bootstrap)
    if group in share_group_ids(cluster):
        [shared] = describe_share_groups(cluster, [group])
        print_json(shared.as_json()) if json else print_share_group(shared)
        return
    described = describe_group(cluster, group)
    if json:
        print_json(described.as_json())
    else:
        print_group(described)


@app.command()
def reset(
    group: GroupArgument,
    topic: ResetTopicsOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: ToEarliestOption = False,
    to_latest: ToLatestOption = False,
    offset: ToOffsetOption = None,
    time: ToTimeOption = None,
    shift: ShiftOption = None,
    from_group: FromGroupOption = None,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Reset the offsets of a group without members. --execute applies the shown changes."""
    if bool(topic) == all_topics:
        raise Failure(
            "--topic and --all-topics exclude each other" if topic else "no topics are named",
            "Give --topic TOPIC, or --all-topics for all topics with committed offsets.",
            code=ExitCode.USAGE,
        )
    aim = _aim(to_earliest, to_latest, offset, time, shift, from_group)
    cluster = ClusterClient(bootstrap)
    resets = plan_reset(cluster, group, None if all_topics else topic, aim)
    if execute:
        commit_resets(cluster, group, resets)
    if json:
        print_json({"group": group, "executed": execute, "partitions": [_as_json(each) for each in resets]})
        return
    rows = [(each.topic, each.partition, NONE if each.old is None else each.old, each.new) for each in resets]
    print_table(["topic", "partition", "committed offset", "new offset"], rows)
    if not execute:
        typer.echo("dry run: no offsets were changed; --execute applies the changes", err=True)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The group ids.")],
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    cluster = ClusterClient(bootstrap)
    unlisted = sorted(set(groups) - set(group_ids(cluster)) - set(share_group_ids(cluster)))
    missing = [group for group in unlisted if not is_other_group(cluster, group)]
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


def _aim(
    to_earliest: bool,
    to_latest: bool,
    offset: int | None,
    time: str | None,
    shift: int | None,
    from_group: str | None,
) -> Aim:
    named = [each for each in (offset, time, shift, from_group) if each is not None]
    if to_earliest + to_latest + len(named) != 1:
        raise Failure(
            "the new offsets must be given by exactly one option",
            "Give one of --to-earliest, --to-latest, --to-offset, --to-time, --shift and --from-group.",
            code=ExitCode.USAGE,
        )
    if from_group is not None:
        return to_offsets_of(from_group)
    if offset is not None:
        return to_offset(offset)
    if time is not None:
        return to_time(parse_time_ms(time, SystemClock().now_ms()))
    if shift is not None:
        return by_shift(shift)
    return TO_EARLIEST if to_earliest else TO_LATEST


def _as_json(each: OffsetReset) -> dict[str, object]:
    return {"topic": each.topic, "partition": each.partition, "old": each.old, "new": each.new}


def _named(groups: Sequence[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups"
