"""`penstock pipeline query`: run SQL over topics and their archive."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.pipeline.options import ArchiveOption, ConfOption, MasterOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.result_format import ResultFormat, show_result
from penstock.cli.pipeline.schema_option import read_schema
from penstock.cli.pipeline.session import pipeline_session

SqlArgument = Annotated[str, typer.Argument(metavar="SQL", help="A query with topics as tables.")]
TopicsOption = Annotated[
    str | None,
    typer.Option(
        "--topics", "-t", metavar="NAME[,NAME]", help="The topics; by default those named in the SQL."
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA|FILE",
        help="Values as columns: 'id bigint, total double', or a file with a JSON Schema or Avro schema.",
    ),
]
FormatOption = Annotated[ResultFormat, typer.Option("--format", help="The form of the result.")]
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
    schema: SchemaOption = None,
    limit: LimitOption = 100,
    form: FormatOption = ResultFormat.TABLE,
    json: JsonOption = False,
) -> None:
    """Run an SQL query: select key, count(*) from orders group by key. Names with a dash need `backticks`."""
    names = [name.strip() for name in topics.split(",") if name.strip()] if topics else []
    columns_of_values = None if schema is None else read_schema(schema).source
    with pipeline_session("penstock query", master, conf) as session:
        from penstock.pipeline.query import query as run

        with progress_of(session, "running the query"):
            frame = run(session.open(), bootstrap, sql, names, archive, columns_of_values)
            columns = frame.columns
            found = frame.limit(limit + 1).collect()
    rows = [[_shown(value) for value in row] for row in found[:limit]]
    show_result(columns, rows, ResultFormat.JSON if json else form)
    if len(found) > limit:
        typer.echo(f"Only the first {limit} rows are shown; --limit shows more.", err=True)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if value is None or isinstance(value, int | float | str | bool):
        return value
    return str(value)
