"""`penstock pipeline query`: run SQL over topics and their archive."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import NONE, print_json, print_table
from penstock.cli.pipeline.options import ArchiveOption, ConfOption, MasterOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.session import pipeline_session

SqlArgument = Annotated[str, typer.Argument(metavar="SQL", help="A query with topics as tables.")]
TopicsOption = Annotated[
    str | None,
    typer.Option(
        "--topics", "-t", metavar="NAME[,NAME]", help="The topics; by default those named in the SQL."
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows to show.")]


def register(app: typer.Typer) -> None:
    app.command("query")(query)


def query(
    sql: SqlArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    topics: TopicsOption = None,
    archive: ArchiveOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    limit: LimitOption = 100,
    json: JsonOption = False,
) -> None:
    """Run an SQL query: select key, count(*) from orders group by key. Names with a dash need `backticks`."""
    names = [name.strip() for name in topics.split(",") if name.strip()] if topics else []
    with pipeline_session("penstock query", master, conf) as session:
        from penstock.pipeline.query import query as run

        with progress_of(session, "running the query"):
            frame = run(session.open(), bootstrap, sql, names, archive)
            columns = frame.columns
            found = frame.limit(limit + 1).collect()
    rows = [[_shown(value) for value in row] for row in found[:limit]]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table(columns, [[NONE if value is None else value for value in row] for row in rows])
    if len(found) > limit:
        typer.echo(f"Only the first {limit} rows are shown; --limit shows more.", err=True)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if value is None or isinstance(value, int | float | str | bool):
        return value
    return str(value)
