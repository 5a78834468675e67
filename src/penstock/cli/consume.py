"""`penstock consume`: print records of a topic, standalone or as a member of a consumer group."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.cluster import Cluster
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.group_reader import read_group
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, TopicArgument
from penstock.cli.reader import read_topic
from penstock.cli.record_format import Form, json_form, template_form, value_form
from penstock.cli.starting_point import parse_start

_RESETS = {"beginning": "earliest", "end": "latest"}


def register(root: typer.Typer) -> None:
    root.command()(consume)


def consume(
    topic: TopicArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N for the last N of each partition, a time, or an age such as 2h.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this number of records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets; --from applies to a new group.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new records until Ctrl-C.")
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEMPLATE",
            help="Output template: {topic} {partition} {offset} {time} {timestamp} {key} {value} {headers} "
            "and \\t, \\n.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the key, this text, and the value.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic up to its current end, or with --follow also new ones as they arrive."""
    form = _form(template, key_separator, json)
    if group is not None:
        reset = _reset(start, partition)
        batches = read_group(Cluster(bootstrap), topic, group, reset=reset, follow=follow, maximum=maximum)
        for batch in batches:
            sys.stdout.buffer.write(b"".join(map(form, batch)))
            sys.stdout.buffer.flush()
        return
    cluster = Cluster(bootstrap)
    numbers = cluster.partitions_of(topic, partition)
    begin = parse_start(start)(cluster, topic, numbers)
    output = sys.stdout.buffer
    for record in read_topic(cluster, topic, begin, follow=follow, maximum=maximum):
        output.write(form(record))
        if follow:
            output.flush()
    output.flush()


def _reset(start: str, partition: list[int] | None) -> str:
    """Return the auto.offset.reset for a group without committed offsets; Failure if options conflict."""
    if partition:
        raise Failure("--partition and --group do not go together", code=ExitCode.USAGE)
    if start not in _RESETS:
        raise Failure(
            "with --group, --from is beginning or end",
            "It counts where the group has no offsets; `penstock group reset` moves one that has.",
            code=ExitCode.USAGE,
        )
    return _RESETS[start]


def _form(template: str | None, key_separator: str | None, json: bool) -> Form:
    if (template is not None) + (key_separator is not None) + json > 1:
        raise Failure("give only one of --format, --key-separator and --json", code=ExitCode.USAGE)
    is_terminal = sys.stdout.isatty()
    if json:
        return json_form
    if key_separator is not None:
        return template_form("{key}" + key_separator.replace("{", "{{") + "{value}\\n", escape=is_terminal)
    if template is not None:
        return template_form(template, escape=is_terminal)
    return value_form(escape=is_terminal)
