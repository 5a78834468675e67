"""`penstock pipeline forget`: remove the records of a key from an archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.pipeline.options import ConfOption, MasterOption, TopicsOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.session import pipeline_session

KeyOption = Annotated[str, typer.Option("--key", metavar="KEY", help="The key whose records are removed.")]
ArchiveOption = Annotated[str, typer.Option("--archive", metavar="DIR", help="The archive.")]


def register(app: typer.Typer) -> None:
    app.command("forget")(forget)


def forget(
    key: KeyOption,
    topics: TopicsOption,
    archive: ArchiveOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = None,
    conf: ConfOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Remove all records of a key from an archive, and write a tombstone to compacted topics."""
    names = [name.strip() for name in topics.split(",") if name.strip()]
    confirm(f"Remove all records with the key {key!r} from {archive}?", yes=yes)
    with pipeline_session("penstock forget", master, conf) as session:
        from penstock.pipeline.archive.forgetting import forget as run
        from penstock.pipeline.archive.table import ArchiveTable

        with progress_of(session, "removing"):
            report = run(bootstrap, ArchiveTable.at(archive), key.encode(), names, session.open)
    if json:
        print_json({"key": key, "archive": archive, "records": report.records, **asdict(report)})
        return
    columns = ["topic", "records removed", "files rewritten", "tombstone", "note"]
    print_table(
        columns,
        [
            (each.topic, each.records, each.files, "yes" if each.tombstone else "no", each.note)
            for each in report.topics
        ],
    )
    typer.echo(
        f"Removed {report.records:,} records with the key {key}; {report.deleted_files} old files deleted."
    )
