"""`penstock topic`: create, list, describe, alter, truncate, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from penstock.cli.admin_client import RETRY_SECONDS
from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    TopicArgument,
    TopicSettingsOption,
    YesOption,
)
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.partition_count import (
    CountOption,
    CountOptions,
    DropSealedOption,
    DryRunOption,
    SealNowOption,
    WaitForGroupsOption,
    change_count,
    show_plan,
    show_progress,
)
from penstock.cli.times import parse_time_ms
from penstock.cli.topic_description import describe_topic, print_description
from penstock.clock import SystemClock
from penstock.cluster.internal_topics import is_internal
from penstock.config.loading import parse_assignments
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.records import Truncated
from penstock.internal_client.retries import retry
from penstock.internal_client.topics import NewTopic

BROKERS_DEFAULT = -1

app = typer.Typer(help="Create, inspect and change topics.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="topic")


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions; the broker's num.partitions by default.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Number of replicas; the broker's default.replication.factor by default."),
    ] = None,
    settings: TopicSettingsOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a topic."""
    cluster = ClusterClient(bootstrap)
    wanted = NewTopic(
        topic,
        partitions or BROKERS_DEFAULT,
        replication_factor or BROKERS_DEFAULT,
        parse_assignments(settings or []),
    )
    count = cluster.run(lambda client: _create(client, wanted), topic)
    if json:
        print_json({"topic": topic, "partitions": count})
    else:
        typer.echo(f"created topic {topic} with {_counted(count, 'partition')}")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option(help="Also list internal topics.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """List the topics with their numbers of partitions and offsets.

    A topic can have fewer records than offsets, because of compaction and transaction markers.
    """
    cluster = ClusterClient(bootstrap)
    topics = [topic for name, topic in cluster.topics().items() if internal or not is_internal(name)]
    offsets = cluster.count_offsets(topics)
    rows = [(topic.name, len(topic.partitions), offsets[topic.name]) for topic in topics]
    if json:
        print_json([{"topic": name, "partitions": count, "offsets": held} for name, count, held in rows])
    elif rows:
        print_table(["topic", "partitions", "offsets"], rows)
    else:
        typer.echo("no topics; `penstock topic create` creates one", err=True)


@app.command()
def describe(
    topic: TopicArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a topic's settings, and the offsets and replicas of its partitions."""
    description = describe_topic(ClusterClient(bootstrap), topic)
    if json:
        print_json(description.as_json())
    else:
        print_description(description)


@app.command()
def alter(
    topic: TopicArgument,
    partitions: CountOption = None,
    wait_for_groups: WaitForGroupsOption = True,
    seal_now: SealNowOption = False,
    drop_sealed: DropSealedOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    settings: TopicSettingsOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Restore a setting to the broker's default; repeatable."
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Add or remove partitions of a topic, or change its settings.

    A smaller number drains the other partitions: producers that use them can still write to them, and consumers read
    them. `drain-status` shows the progress. Setting the old number again makes them active again.
    """
    values = parse_assignments(settings or [])
    options = CountOptions(seal_now, drop_sealed, wait_for_groups, dry_run)
    _check_alteration(topic, partitions, options, bool(values or unset))
    cluster = ClusterClient(bootstrap)
    if values or unset:
        changes: dict[str, str | None] = {**values, **dict.fromkeys(unset or ())}
        cluster.run(lambda client: client.configs.alter(ConfigResourceType.TOPIC, topic, changes), topic)
    if partitions is not None or drop_sealed:
        change_count(cluster, topic, partitions, options, yes=yes)
    if dry_run and partitions is not None:
        show_plan(cluster, topic, partitions, json=json)
    elif json:
        print_json({"topic": topic, "partitions": partitions, "set": values, "unset": unset or []})
    else:
        typer.echo(f"altered topic {topic}")


@app.command("drain-status")
def drain_status(
    topic: TopicArgument,
    follow: Annotated[bool, typer.Option("--follow", help="Wait until all of them are sealed.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Show the draining partitions of a topic: their phase, their writers, and groups that have not read them."""
    show_progress(ClusterClient(bootstrap), topic, follow=follow, json=json)


@app.command()
def truncate(
    topic: TopicArgument,
    before_offset: Annotated[
        int | None, typer.Option(min=0, help="Delete the records before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete the records before 2026-03-01T12:00:00Z, or 7d ago."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset or a time. They cannot be restored."""
    if (before_offset is None) == (before_time is None):
        raise Failure(
            f"the records to delete from {topic} must be given by exactly one option",
            "Give either --before-offset or --before-time.",
            code=ExitCode.USAGE,
        )
    cluster = ClusterClient(bootstrap)
    numbers = cluster.partitions_of(topic, partition)
    if before_time is not None:
        time_ms = parse_time_ms(before_time, SystemClock().now_ms())
        targets = cluster.offsets(topic, numbers, time_ms)
    else:
        held = cluster.ranges(topic, numbers)
        targets = {part.partition: min(before_offset or 0, part.end) for part in held}
    confirm(f"Delete records of {topic} before {before_time or f'offset {before_offset}'}?", yes=yes)
    truncated = cluster.run(lambda client: client.records.delete_before(topic, targets), topic)
    _show_truncated(topic, truncated, json=json)


@app.command()
def delete(
    topic: TopicArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a topic and all its records."""
    cluster = ClusterClient(bootstrap)
    cluster.partitions(topic)
    confirm(f"Delete topic {topic} and all its records?", yes=yes)
    cluster.run(lambda client: client.topics.delete(topic), topic)
    if json:
        print_json({"topic": topic, "deleted": True})
    else:
        typer.echo(f"deleted topic {topic}")


def _show_truncated(topic: str, truncated: Mapping[int, Truncated], *, json: bool) -> None:
    starts = {number: each.log_start_offset for number, each in sorted(truncated.items())}
    removed = sum(each.removed_pending for each in truncated.values())
    if json:
        shown = {"topic": topic, "start_offsets": {str(number): start for number, start in starts.items()}}
        print_json(shown | ({"removed_pending": removed} if removed else {}))
        return
    print_table(["partition", "start offset"], list(starts.items()))
    if removed:
        typer.echo(f"removed {removed} pending {'message' if removed == 1 else 'messages'}")


def _check_alteration(topic: str, partitions: int | None, options: CountOptions, has_settings: bool) -> None:
    if partitions is None and not options.drop_sealed and not has_settings:
        problem, next_step = f"no change to topic {topic} is given", "Give --partitions, --set or --unset."
    elif partitions is None and (options.seal_now or options.dry_run):
        problem, next_step = "the number of partitions is not given", "Give --partitions."
    elif options.seal_now and options.drop_sealed:
        problem, next_step = "--seal-now and --drop-sealed are both given", "Give one of them."
    else:
        return
    raise Failure(problem, next_step, code=ExitCode.USAGE)


async def _create(client: InternalClient, wanted: NewTopic) -> int:
    """Create a topic; return its number of partitions when a broker knows the topic."""
    await client.topics.create(wanted)

    async def look_up() -> int:
        try:
            return len((await client.topics.get(wanted.name, fresh=True)).partitions)
        except BrokerError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            # The metadata of this broker may not contain the new topic yet.
            raise BrokerError(
                ErrorCode.leader_not_available, f"topic {wanted.name} is not known yet"
            ) from error

    return await retry(look_up, RETRY_SECONDS)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
