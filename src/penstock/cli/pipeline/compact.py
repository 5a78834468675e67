"""`penstock pipeline compact`: write topics to a table with one row per key."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.pipeline.options import ArchiveOption, ConfOption, MasterOption, TopicsOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.session import pipeline_session

ToOption = Annotated[
    str,
    typer.Option("--to", metavar="DIR", help="The Delta table, created or atomically replaced."),
]
ByOption = Annotated[
    str,
    typer.Option("--by", metavar="SQL", help="Columns that identify a row: key, or for example key, value."),
]
KeepOption = Annotated[
    str, typer.Option("--keep", metavar="last|first", help="The record to keep for each row.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="Accepted for consistency with other commands; compact always ends.")
]


def register(app: typer.Typer) -> None:
    app.command("compact")(compact)


def compact(
    topics: TopicsOption,
    to: ToOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    archive: ArchiveOption = None,
    by: ByOption = "key",
    keep: KeepOption = "last",
    master: MasterOption = None,
    conf: ConfOption = None,
    once: OnceOption = False,
    json: JsonOption = False,
) -> None:
    """Write the last record of each key to a Delta table.

    To remove duplicates, use --by 'key, value' --keep first.
    """
    given = {"bootstrap": bootstrap, "subscribe": topics}
    if archive is not None:
        given["archive"] = archive
    with pipeline_session("penstock compact", master, conf) as session:
        from penstock.pipeline.compact import CompactJob, Keep
        from penstock.pipeline.compact import compact as run
        from penstock.pipeline.options import parse
        from penstock.pipeline.replay import plan_of

        if keep not in (each.value for each in Keep):
            raise Failure(f"unknown --keep {keep!r}", "Give last or first.", code=ExitCode.USAGE)
        options = parse(given)
        plan_of(options)  # invalid options are reported before Spark starts
        with progress_of(session, "compacting"):
            rows = run(session.open(), CompactJob(options, to, by, Keep(keep)))
    if json:
        print_json({"rows": rows})
    else:
        typer.echo(f"{to} has {rows:,} rows.")
