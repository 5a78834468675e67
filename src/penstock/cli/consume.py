"""`penstock consume`: print records of a topic, standalone or as a member of a consumer group."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.group_reader import read_group
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, TopicArgument
from penstock.cli.reader import read_topic
from penstock.cli.record import IncomingRecord
from penstock.cli.record_format import Form, json_form, template_form, value_form
from penstock.cli.starting_point import parse_start

_RESETS = {"beginning": "earliest", "end": "latest"}


StartOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="beginning, end, an offset, -N for the last N of each partition, a time, or an age such as 2h.",
    ),
]
PartitionsOption = Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")]
MaximumOption = Annotated[int | None, typer.Option("--max", min=1, help="Stop after this number of records.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="Read as a member of this group, from its committed offsets; --from applies to a new group.",
    ),
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new records until Ctrl-C.")]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Output template: {topic} {partition} {offset} {time} {timestamp} {key} {value} {headers} "
        "and \\t, \\n.",
    ),
]
KeySeparatorOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Print the key, this text, and the value.")
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")]


def register(root: typer.Typer) -> None:
    root.command()(consume)


def consume(
    topic: TopicArgument,
    start: StartOption = "beginning",
    partition: PartitionsOption = None,
    maximum: MaximumOption = None,
    group: GroupOption = None,
    follow: FollowOption = False,
    template: TemplateOption = None,
    key_separator: KeySeparatorOption = None,
    json: JsonLinesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic up to its current end, or with --follow also new ones as they arrive."""
    form = _form(template, key_separator, json)
    if group is not None:
        reset = _reset(start, partition)
        cluster = ClusterClient(bootstrap)
        batches = read_group(cluster, topic, group, reset=reset, follow=follow, maximum=maximum)
        _print_batches(batches, form)
        return
    cluster = ClusterClient(bootstrap)
    numbers = cluster.partitions_of(topic, partition)
    begin = parse_start(start)(cluster, topic, numbers)
    records = read_topic(cluster, topic, begin, follow=follow, maximum=maximum)
    _print_records(records, form, flush=follow)


def _print_batches(batches: Iterable[list[IncomingRecord]], form: Form) -> None:
    """Print batches of a group. Each is flushed before the next one is requested, because that request commits it."""
    for batch in batches:
        sys.stdout.buffer.write(b"".join(map(form, batch)))
        sys.stdout.buffer.flush()


def _print_records(records: Iterable[IncomingRecord], form: Form, *, flush: bool) -> None:
    """Print records; with `flush`, each record is flushed at once."""
    output = sys.stdout.buffer
    for record in records:
        output.write(form(record))
        if flush:
            output.flush()
    output.flush()


def _reset(start: str, partition: list[int] | None) -> str:
    """Return the auto.offset.reset for a group without committed offsets. Raises Failure if options conflict."""
    if partition:
        raise Failure(
            "--partition and --group exclude each other",
            "Omit --partition: the group assigns the partitions to its members.",
            code=ExitCode.USAGE,
        )
    if start not in _RESETS:
        raise Failure(
            f"--from {start} is not possible with --group",
            "Give beginning or end for a group without committed offsets; `penstock group reset` changes others.",
            code=ExitCode.USAGE,
        )
    return _RESETS[start]


def _form(template: str | None, key_separator: str | None, json: bool) -> Form:
    if (template is not None) + (key_separator is not None) + json > 1:
        raise Failure(
            "several output formats are given",
            "Give only one of --format, --key-separator and --json.",
            code=ExitCode.USAGE,
        )
    is_terminal = sys.stdout.isatty()
    if json:
        return json_form
    if key_separator is not None:
        return template_form("{key}" + key_separator.replace("{", "{{") + "{value}\\n", escape=is_terminal)
    if template is not None:
        return template_form(template, escape=is_terminal)
    return value_form(escape=is_terminal)
