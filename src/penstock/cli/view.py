"""`penstock view`: create, list, describe, test and delete views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from penstock.filters.matching import Filter
from penstock.filters.trying import is_match
from penstock.internal_client.views import View
from penstock.records.building import NewRecord

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
    wanted = View(view, source, expression, is_shared=False)
    cluster.run(lambda client: client.views.create(wanted), view)
    if json:
        print_json({"view": view, "of": source, "filter": expression})
    else:
        typer.echo(f"created view {view} of {source}")


@app.command("list")
def list_views(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the views with their sources and filters."""
    found = _views(ClusterClient(bootstrap))
    if json:
        print_json([_shown(view) for view in found])
    elif found:
        print_table(["view", "of", "filter"], [(view.name, view.of, view.filter) for view in found])
    else:
        typer.echo("no views; `penstock view create` creates one", err=True)


@app.command()
def describe(
    view: ViewArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show the source and the filter of a view, and the offsets of its partitions."""
    cluster = ClusterClient(bootstrap)
    found = _view(cluster, view)
    ranges = cluster.ranges(view, cluster.partitions(view))
    if json:
        partitions = [{"partition": each.partition, "start": each.start, "end": each.end} for each in ranges]
        print_json({**_shown(found), "partitions": partitions})
        return
    typer.echo(f"view {view} of {found.of}\nfilter {found.filter}")
    if found.is_shared:
        typer.echo("shared: removed when it has no readers and no committed offsets")
    print_table(["partition", "start", "end"], [(each.partition, each.start, each.end) for each in ranges])


@app.command()
def delete(
    view: ViewArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a view. The records of its source are kept; groups lose their committed offsets in the view."""
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
    """Test a filter on the newest records of a topic: print some matches, and how many records match."""
    cluster = ClusterClient(bootstrap)
    partitions = cluster.partitions(source)
    filters = {number: Filter(expression, number) for number in partitions}
    begin = parse_start(f"-{SAMPLED_RECORDS}")(cluster, source, partitions)
    count = matched = failed = 0
    samples: list[IncomingRecord] = []
    for record in _sample(cluster, source, begin):
        new = NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
        found = is_match(filters[record.partition], new, record.offset)
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
    typer.echo(f"{matched} of {count} records match{share}; the filter could not be evaluated for {failed}")


def _shown(view: View) -> dict[str, object]:
    return {"view": view.name, "of": view.of, "filter": view.filter, "shared": view.is_shared}


def _sample(cluster: ClusterClient, topic: str, begin: dict[int, int]) -> Iterator[IncomingRecord]:
    return read_topic(cluster, topic, begin, follow=False, maximum=None)


def _views(cluster: ClusterClient) -> Sequence[View]:
    return cluster.run(lambda client: client.views.all(), "the views")


def _view(cluster: ClusterClient, name: str) -> View:
    cluster.topic(name)
    found = cluster.run(lambda client: client.views.get(name), name)
    if found is None:
        raise Failure(
            f"{name} is a topic, not a view", "List views with `penstock view list`.", code=ExitCode.FAILED
        )
    return found
