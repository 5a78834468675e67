"""`penstock pipeline archive`: archive topics to a Delta table, once or continuously."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.pipeline.options import (
    ConfOption,
    EveryOption,
    MasterOption,
    OnceOption,
    TopicPatternsOption,
)
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.schema_option import read_schema, subscription_of
from penstock.cli.pipeline.session import PipelineSession, failure_of, pipeline_session
from penstock.cli.times import parse_duration_ms
from penstock.clock import SystemClock

ToOption = Annotated[
    str,
    typer.Option(
        "--to", metavar="DIR", help="The archive, new or existing: a directory, or s3://bucket/path."
    ),
]
TruncateOption = Annotated[
    bool, typer.Option("--truncate", help="Delete archived records from the topics after the grace time.")
]
GraceOption = Annotated[
    str, typer.Option("--grace", metavar="TIME", help="Time that archived records stay in a truncated topic.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA|FILE",
        help="Also parse values into columns: 'id bigint, total double', or a file with a JSON Schema or Avro schema.",
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        "--keep", metavar="TIME", help="Delete days from the archive that are older than this: 365d."
    ),
]


def register(app: typer.Typer) -> None:
    app.command("archive")(archive)


def archive(
    topics: TopicPatternsOption,
    to: ToOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = None,
    conf: ConfOption = None,
    once: OnceOption = False,
    every: EveryOption = "10s",
    truncate: TruncateOption = False,
    grace: GraceOption = "10m",
    keep: KeepOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Archive topics to a Delta table, each record once. Without --once, archiving continues until Ctrl-C."""
    every_ms, grace_ms = parse_duration_ms(every), parse_duration_ms(grace)
    keep_ms = None if keep is None else parse_duration_ms(keep)
    parsed = None if schema is None else read_schema(schema)
    with pipeline_session("penstock archive", master, conf) as session:
        from penstock.pipeline.archive.archiver import ArchiveJob
        from penstock.pipeline.archive.table import ArchiveTable
        from penstock.pipeline.options import parse

        options = parse({"bootstrap": bootstrap, **subscription_of(topics)})
        job = ArchiveJob(options, ArchiveTable.at(to), truncate, grace_ms, schema=parsed)
        if once:
            _report(_run(job, session, keep_ms), json)
            return
        while True:
            try:
                _report(_run(job, session, keep_ms), json, only_news=True)
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                _warn(str(failure))
            threading.Event().wait(every_ms / 1000)


def _run(job: Any, session: PipelineSession, keep_ms: int | None) -> dict[str, object]:
    from penstock.pipeline.archive.archiver import Archiver
    from penstock.pipeline.archive.maintenance import maintain

    clock = SystemClock()
    started, opened = clock.monotonic(), 0.0

    def open_session() -> Any:
        nonlocal opened
        began = clock.monotonic()
        current = session.open()
        opened += clock.monotonic() - began
        return current

    with progress_of(session, "archiving"):
        *_, done = Archiver(job, open_session, _warn).run()
        today = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).date()
        before = None if keep_ms is None else today - timedelta(milliseconds=keep_ms)
        upkeep = maintain(job.table, open_session, before)
    return {
        "rows": done.rows,
        "files": done.files,
        "merged_files": upkeep.merged,
        "expired_files": upkeep.expired,
        "seconds": round(clock.monotonic() - started, 3),
        "spark_start_seconds": round(opened, 3),
    }


def _report(done: dict[str, object], json: bool, *, only_news: bool = False) -> None:
    if only_news and not (done["rows"] or done["expired_files"]):
        return
    if json:
        print_json(done)
        return
    typer.echo(
        f"Archived {done['rows']:,} records in {done['files']} files, in {done['seconds']} s "
        f"({done['spark_start_seconds']} s of it to start Spark)."
    )


def _warn(what: str) -> None:
    typer.echo(f"warning: {what}", err=True)
