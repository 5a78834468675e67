"""`penstock pipeline stats`: windowed statistics of topics, in a Delta table, a topic and charts."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.pipeline.options import ConfOption, MasterOption, OnceOption, TopicsOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.session import pipeline_session
from penstock.cli.times import parse_duration_ms

_BESIDE_THE_CHART = 60

ToOption = Annotated[
    str, typer.Option("--to", metavar="DIR", help="The Delta table that windows are added to.")
]
ToTopicOption = Annotated[
    str | None,
    typer.Option("--to-topic", metavar="TOPIC", help="A topic that windows are also written to, as JSON."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint directory; beside the table by default."
    ),
]
WindowOption = Annotated[str, typer.Option("--window", metavar="TIME", help="Length of a window.")]
DelayOption = Annotated[
    str, typer.Option("--delay", metavar="TIME", help="Maximum delay of records that are still counted.")
]
ChartOption = Annotated[
    str | None, typer.Option("--chart", metavar="FILE", help="Draw a PNG of the windows.")
]


def register(app: typer.Typer) -> None:
    app.command("stats")(stats)


def stats(
    topics: TopicsOption,
    to: ToOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    to_topic: ToTopicOption = None,
    window: WindowOption = "1m",
    delay: DelayOption = "1m",
    checkpoint: CheckpointOption = None,
    chart: ChartOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    once: OnceOption = False,
    json: JsonOption = False,
) -> None:
    """Measure records, bytes, keys and latency of topics in time windows.

    A window is written after its end.
    """
    window_ms, delay_ms = parse_duration_ms(window), parse_duration_ms(delay)
    with pipeline_session("penstock stats", master, conf) as session:
        from penstock.pipeline.offsets import topics_of
        from penstock.pipeline.options import parse
        from penstock.pipeline.stats import StatsJob, start

        names = tuple(topics_of(parse({"bootstrap": bootstrap, "subscribe": topics})))
        if to_topic is not None:
            topics_of(parse({"bootstrap": bootstrap, "subscribe": to_topic}))
        job = StatsJob(bootstrap, names, to, checkpoint, window_ms, delay_ms, to_topic)
        job.checkpoint_location  # noqa: B018 - an invalid location fails before Spark starts
        with progress_of(session, "counting"):
            start(session.open(), job, once=once).awaitTermination()
        _show(_windows(job.store), chart, json)


def _windows(store: Any) -> list[dict[str, Any]]:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    from penstock.pipeline.table_store import storage_options

    try:
        table = DeltaTable(store.uri, storage_options=storage_options(store))
    except TableNotFoundError:
        return []
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    return rows


def _show(rows: list[dict[str, Any]], chart: str | None, json: bool) -> None:
    from penstock.pipeline.charts import in_terminal, to_png

    if chart is not None:
        to_png(rows, chart)
    if json:
        print_json({"windows": len(rows)})
        return
    if not rows:
        typer.echo("No window has ended yet.")
    for line in in_terminal(rows, "records", max(10, shutil.get_terminal_size().columns - _BESIDE_THE_CHART)):
        typer.echo(line)
