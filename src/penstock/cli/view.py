"""`penstock view`: create, list, describe, test and delete views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.reader import read_topic
from penstock.cli.record import IncomingRecord, to_json
from penstock.cli.record_format import template_form
from penstock.cli.starting_point import parse_start
from penstock.cluster.internal_topics import is_internal
from penstock.config import VIEW_FILTER, VIEW_OF
from penstock.config.resources import ConfigResourceType
from penstock.filters.matching import Filter
from penstock.internal_client.topics import NewTopic
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch

SAMPLED_RECORDS = 10_000
"""Number of records at the end of each partition that `view test` reads."""
SHOWN = "{partition}:{offset} {key} {value}\\n"

app = typer.Typer(help="Create, inspect and test views.", no_args_is_help=True)

ViewArgument = Annotated[str, typer.Argument(help="The name of the view.")]
SourceOption = Annotated[str, typer.Option("--of", metavar="TOPIC", help="The topic that the view shows.")]
FilterOption = Annotated[
    str,
    typer.Option("--filter", metavar="EXPR", help="A CEL expression, such as 'headers.region == \"eu\"'."),
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="view")


@app.command()
def create(
    view: ViewArgument,
    source: SourceOption,
    expression: FilterOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a view: a topic that shows the records of another topic that match a filter."""
    cluster = ClusterClient(bootstrap)
    wanted = NewTopic(view, configs={VIEW_OF.name: source, VIEW_FILTER.name: expression})
    cluster.run(lambda client: client.topics.create(wanted), view)
    if json:
        print_json({"view": view, "of": source, "filter": expression})
    else:
        typer.echo(f"created view {view} of {source}")


@app.command("list")
def list_views(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the views with their sources and filters."""
    found = _views(ClusterClient(bootstrap))
    if json:
        print_json([{"view": name, "of": of, "filter": text} for name, of, text in found])
    elif found:
        print_table(["view", "of", "filter"], found)
    else:
        typer.echo("no views; `penstock view create` creates one", err=True)


@app.command()
def describe(
    view: ViewArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show the source and the filter of a view, and the offsets of its partitions."""
    cluster = ClusterClient(bootstrap)
    of, text = _view(cluster, view)
    ranges = cluster.ranges(view, cluster.partitions(view))
    if json:
        partitions = [{"partition": each.partition, "start": each.start, "end": each.end} for each in ranges]
        print_json({"view": view, "of": of, "filter": text, "partitions": partitions})
        return
    typer.echo(f"view {view} of {of}\nfilter {text}")
    print_table(["partition", "start", "end"], [(each.partition, each.start, each.end) for each in ranges])


@app.command()
def delete(
    view: ViewArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a view. The records of its source stay; groups lose their committed offsets in the view."""
    cluster = ClusterClient(bootstrap)
    _view(cluster, view)
    confirm(f"Delete view {view} and the offsets that groups have committed in it?", yes=yes)
    cluster.run(lambda client: client.topics.delete(view), view)
    if json:
        print_json({"view": view, "deleted": True})
    else:
        typer.echo(f"deleted view {view}")


@app.command("test")
def try_filter(
    source: SourceOption,
    expression: FilterOption,
    shown: Annotated[int, typer.Option("-n", min=0, help="Number of matching records to print.")] = 10,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Try a filter on the newest records of a topic: print some matches and how many records match."""
    cluster = ClusterClient(bootstrap)
    partitions = cluster.partitions(source)
    filters = {number: Filter(expression, number) for number in partitions}
    begin = parse_start(f"-{SAMPLED_RECORDS}")(cluster, source, partitions)
    count = matched = failed = 0
    samples: list[IncomingRecord] = []
    for record in _sample(cluster, source, begin):
        found = _evaluate(filters[record.partition], record)
        count, matched, failed = count + 1, matched + (found is True), failed + (found is None)
        if found and len(samples) < shown:
            samples.append(record)
    if json:
        records = [to_json(record) for record in samples]
        print_json({"records": count, "matched": matched, "failed": failed, "samples": records})
        return
    show = template_form(SHOWN, escape=True)
    for record in samples:
        typer.echo(show(record).decode(), nl=False)
    share = f" ({matched / count:.1%})" if count else ""
    typer.echo(f"{matched} of {count} records match{share}; the evaluation failed on {failed}")


def _sample(cluster: ClusterClient, topic: str, begin: dict[int, int]) -> Iterator[IncomingRecord]:
    return read_topic(cluster, topic, begin, follow=False, maximum=None)


def _evaluate(matcher: Filter, record: IncomingRecord) -> bool | None:
    """Whether a record matches; None if the evaluation fails."""
    new = NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
    batch = memoryview(build_batch([new], base_offset=record.offset))
    matches, failed = matcher.select(batch[HEADER_SIZE:], read_header(batch))
    return None if failed else bool(matches)


def _views(cluster: ClusterClient) -> list[tuple[str, str, str]]:
    names = [name for name in cluster.topics() if not is_internal(name)]
    if not names:
        return []
    wanted = [VIEW_OF.name, VIEW_FILTER.name]
    described = cluster.run(
        lambda client: client.configs.describe(ConfigResourceType.TOPIC, names, wanted), "the topics"
    )
    found = []
    for name, entries in described.items():
        values = {entry.name: entry.value or "" for entry in entries if not entry.is_default}
        if values.get(VIEW_OF.name):
            found.append((name, values[VIEW_OF.name], values[VIEW_FILTER.name]))
    return sorted(found)


def _view(cluster: ClusterClient, name: str) -> tuple[str, str]:
    cluster.topic(name)
    for view, of, text in _views(cluster):
        if view == name:
            return of, text
    raise Failure(
        f"{name} is a topic, not a view", "List views with `penstock view list`.", code=ExitCode.FAILED
    )
