"""`penstock search`: find messages of a topic, the newest first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, TopicArgument
from penstock.cli.output import show_bytes
from penstock.cli.progress import search_progress
from penstock.cli.record import IncomingRecord
from penstock.cli.record_format import Form, json_form, template_form
from penstock.cli.times import parse_time_ms
from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError
from penstock.gateway.search.matcher import Matcher, WrongQuery
from penstock.gateway.search.search_rounds import DEFAULT_LIMIT, SearchRounds, open_partitions
from penstock.internal_client.client import InternalClient
from penstock.internal_client.records import RecordCalls
from penstock.records.iteration import Record
from penstock.wire.fetch import FetchResult

T = TypeVar("T")

SHOWN = "{time} {partition}:{offset} {key} {value}\\n"
_NO_BUDGET = 2**62
_ENDS = {
    "limit": "stopped at --max",
    "bytes": "stopped at --max-bytes",
    "seconds": "stopped at --max-seconds",
}

TextArgument = Annotated[
    str | None, typer.Argument(help="Text in the value, the key or a header's value, in any case.")
]
RegexOption = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Regular expression of RE2 that the value matches.")
]
KeyOption = Annotated[str | None, typer.Option(metavar="KEY", help="The key, exactly.")]
HeaderOption = Annotated[
    str | None,
    typer.Option(metavar="NAME[=TEXT]", help="A header that the message has, or text in its value."),
]
JsonPathOption = Annotated[
    str | None,
    typer.Option("--json-path", metavar="PATH[=VALUE]", help="A path in a JSON value, as $.user.id=7."),
]
FilterOption = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="EXPR", help="A CEL expression, as of a view.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Not before 2026-03-01T12:00:00Z, or 2h ago.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Not after this time.")]
PartitionOption = Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; repeatable.")]
MaximumOption = Annotated[int, typer.Option("--max", min=1, help="Stop after this number of matches.")]
MaxBytesOption = Annotated[int, typer.Option(min=1, help="Stop after reading this many bytes.")]
MaxSecondsOption = Annotated[int, typer.Option(min=1, help="Stop after this many seconds.")]
TemplateOption = Annotated[
    str | None, typer.Option("--format", metavar="TEMPLATE", help="Output template, as of `consume`.")
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")]


def register(root: typer.Typer) -> None:
    root.command()(search)


def search(
    topic: TopicArgument,
    text: TextArgument = None,
    regex: RegexOption = None,
    key: KeyOption = None,
    header: HeaderOption = None,
    json_path: JsonPathOption = None,
    expression: FilterOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    partition: PartitionOption = None,
    maximum: MaximumOption = DEFAULT_LIMIT,
    max_bytes: MaxBytesOption = _NO_BUDGET,
    max_seconds: MaxSecondsOption = _NO_BUDGET,
    template: TemplateOption = None,
    json: JsonLinesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the messages of a topic that match all conditions, the newest first."""
    query: dict[str, Any] = {"limit": maximum, "max_bytes": max_bytes, "max_seconds": max_seconds}
    query |= {"text": text, "regex": regex, "key": key, "filter": expression}
    query |= _pair("header", "header_value", header) | _pair("json_path", "json_value", json_path)
    now_ms = SystemClock().now_ms()
    query |= {
        "from_ms": since and parse_time_ms(since, now_ms),
        "to_ms": until and parse_time_ms(until, now_ms),
    }
    query = {name: value for name, value in query.items() if value is not None}
    matcher, form = _matcher(query), _form(template, json)
    cluster = ClusterClient(bootstrap)
    numbers = cluster.partitions_of(topic, partition)
    reached = cluster.run(lambda client: _search(client, topic, numbers, matcher, query, form), topic)
    typer.echo(_summary(reached), err=True)


async def _search(
    client: InternalClient,
    topic: str,
    numbers: Sequence[int],
    matcher: Matcher,
    query: Mapping[str, Any],
    form: Form,
) -> dict[str, Any]:
    """Print the matches as they are found; return the progress at the end."""
    clock = SystemClock()
    records = _Records(client.records, clock)
    try:
        partitions = await open_partitions(records, topic, numbers, query)
    except ConfigError as error:
        raise Failure(
            f"--filter: {error}", "The filters of views have the same form.", code=ExitCode.USAGE
        ) from None
    rounds = SearchRounds(records, clock, matcher, partitions, query)
    output = sys.stdout.buffer
    with search_progress() as bar:
        while not rounds.end_reason:
            found = await rounds.next()
            if found:
                with bar.pause():
                    output.write(b"".join(form(_incoming(topic, *each)) for each in found))
                    output.flush()
            reached = rounds.progress()
            bar.advance_to(reached["fraction"], reached["matches"])
    return rounds.progress()


class _Records:
    """Source of records for a search in the cluster. Batches are scanned in a thread."""

    def __init__(self, records: RecordCalls, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> FetchResult:
        return await self._records.fetch(topic, partition, offset, max_bytes)

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        return await self._records.offsets(topic, partitions, time_ms)

    async def in_pool(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    def now_ms(self) -> int:
        return self._clock.now_ms()


def _pair(name: str, value_name: str, given: str | None) -> dict[str, str]:
    if given is None:
        return {}
    left, has_value, right = given.partition("=")
    return {name: left, value_name: right} if has_value and right else {name: left}


def _matcher(query: Mapping[str, Any]) -> Matcher:
    try:
        return Matcher(query)
    except WrongQuery as error:
        raise Failure(
            str(error), "`penstock search --help` describes the conditions.", code=ExitCode.USAGE
        ) from None


def _form(template: str | None, json: bool) -> Form:
    if json and template is not None:
        raise Failure("several output formats are given", "Give --format or --json.", code=ExitCode.USAGE)
    return json_form if json else template_form(template or SHOWN, escape=sys.stdout.isatty())


def _incoming(topic: str, number: int, record: Record) -> IncomingRecord:
    return IncomingRecord(
        topic, number, record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
    )


def _summary(reached: Mapping[str, Any]) -> str:
    matches, records = reached["matches"], reached["scanned_records"]
    parts = [
        f"{matches:,} {'match' if matches == 1 else 'matches'} "
        f"in {records:,} messages ({show_bytes(reached['scanned_bytes'])})"
    ]
    if reached["reason"] in _ENDS:
        parts.append(_ENDS[reached["reason"]])
    if reached["failed"]:
        parts.append(f"the filter could not be evaluated for {reached['failed']:,} messages")
    if reached["damaged"]:
        parts.append(f"{reached['damaged']:,} damaged places were skipped")
    return "; ".join(parts)
