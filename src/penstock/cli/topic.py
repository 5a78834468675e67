"""`penstock topic`: create, list, describe, alter, truncate, delete."""

from __future__ import annotations

from typing import Annotated

import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from penstock.cli.cluster import REQUEST_SECONDS, Cluster, answer, answers
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    SetOption,
    TopicArgument,
    YesOption,
)
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.times import parse_time_ms
from penstock.cli.topic_description import describe_topic, print_description
from penstock.clock import SystemClock
from penstock.cluster.internal_topics import is_internal
from penstock.config.loading import parse_assignments

BROKERS_DEFAULT = -1

app = typer.Typer(help="Create, look at and change topics.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="topic")


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; else the broker's num.partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="How many copies; else the broker's default.replication.factor.")
    ] = None,
    settings: SetOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a topic."""
    cluster = Cluster(bootstrap)
    wanted = NewTopic(
        topic,
        partitions or BROKERS_DEFAULT,
        replication_factor or BROKERS_DEFAULT,
        config=parse_assignments(settings or []),
    )
    answers(cluster.admin.create_topics([wanted], request_timeout=REQUEST_SECONDS))
    count = len(cluster.partitions_when_known(topic))
    if json:
        print_json({"topic": topic, "partitions": count})
    else:
        typer.echo(f"created topic {topic} with {_counted(count, 'partition')}")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option(help="Also those that the cluster keeps for itself.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """List the topics, with their partitions and how many offsets they hold.

    Compaction and the markers of transactions leave fewer records than offsets.
    """
    cluster = Cluster(bootstrap)
    partitions = {
        name: list(topic.partitions)
        for name, topic in sorted(cluster.metadata().topics.items())
        if internal or not is_internal(name)
    }
    offsets = cluster.count_offsets(partitions)
    rows = [(name, len(numbers), offsets[name]) for name, numbers in partitions.items()]
    if json:
        print_json([{"topic": name, "partitions": count, "offsets": held} for name, count, held in rows])
    elif rows:
        print_table(["topic", "partitions", "offsets"], rows)
    else:
        typer.echo("no topics; `penstock topic create` makes one", err=True)


@app.command()
def describe(
    topic: TopicArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a topic's partitions, their offsets and replicas, and its settings."""
    description = describe_topic(Cluster(bootstrap), topic)
    if json:
        print_json(description.as_json())
    else:
        print_description(description)


@app.command()
def alter(
    topic: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="The new, larger number of partitions.")
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Take a setting back to the broker's default."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Add partitions to a topic or change its settings."""
    values = parse_assignments(settings or [])
    if partitions is None and not values and not unset:
        raise Failure("nothing to alter", "Give --partitions, --set or --unset.", code=ExitCode.USAGE)
    cluster = Cluster(bootstrap)
    if values or unset:
        entries = [_change(name, value, AlterConfigOpType.SET) for name, value in values.items()]
        entries += [_change(name, None, AlterConfigOpType.DELETE) for name in unset or []]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for future in cluster.admin.incremental_alter_configs(
            [resource], request_timeout=REQUEST_SECONDS
        ).values():
            answer(future, topic)
    if partitions is not None:
        wanted = NewPartitions(topic, partitions)
        answers(cluster.admin.create_partitions([wanted], request_timeout=REQUEST_SECONDS))
    if json:
        print_json({"topic": topic, "partitions": partitions, "set": values, "unset": unset or []})
    else:
        typer.echo(f"altered topic {topic}")


@app.command()
def truncate(
    topic: TopicArgument,
    before_offset: Annotated[
        int | None, typer.Option(min=0, help="Remove the records before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Remove the records before 2026-03-01T12:00:00Z, or 7d ago."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Remove the oldest records of a topic, up to an offset or a time. They cannot be brought back."""
    if (before_offset is None) == (before_time is None):
        raise Failure("give either --before-offset or --before-time", code=ExitCode.USAGE)
    cluster = Cluster(bootstrap)
    numbers = cluster.partitions_of(topic, partition)
    if before_time is not None:
        time_ms = parse_time_ms(before_time, SystemClock().now_ms())
        targets = cluster.offsets_at_time(topic, numbers, time_ms)
    else:
        held = cluster.ranges(topic, numbers)
        targets = {part.partition: min(before_offset or 0, part.end) for part in held}
    confirm(f"Remove records of {topic} before {before_time or f'offset {before_offset}'}?", yes=yes)
    wanted = [TopicPartition(topic, number, offset) for number, offset in targets.items()]
    deleted = cluster.admin.delete_records(wanted, request_timeout=REQUEST_SECONDS)
    starts = {part.partition: answer(future, topic).low_watermark for part, future in deleted.items()}
    if json:
        print_json(
            {"topic": topic, "start_offsets": {str(number): start for number, start in starts.items()}}
        )
    else:
        print_table(["partition", "start offset"], sorted(starts.items()))


@app.command()
def delete(
    topic: TopicArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a topic and everything in it."""
    cluster = Cluster(bootstrap)
    cluster.partitions(topic)
    confirm(f"Delete topic {topic} and all its records?", yes=yes)
    answers(cluster.admin.delete_topics([topic], request_timeout=REQUEST_SECONDS))
    if json:
        print_json({"topic": topic, "deleted": True})
    else:
        typer.echo(f"deleted topic {topic}")


def _change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
