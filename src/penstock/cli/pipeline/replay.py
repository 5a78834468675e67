"""`penstock pipeline replay`: write records of topics and their archive to another topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.pipeline.options import ArchiveOption, ConfOption, MasterOption, TopicsOption
from penstock.cli.pipeline.progress import progress_of
from penstock.cli.pipeline.session import pipeline_session
from penstock.cli.times import parse_time_ms
from penstock.clock import SystemClock

_MOST_OFFSET_DIGITS = 10

ToOption = Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic to write to.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME|OFFSET", help="Start position; the beginning by default."),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME|OFFSET", help="End position; the end by default.")
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="Filter of records: key = 'eu' and value like '%paid%'."),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, metavar="N", help="Maximum number of records per second.")
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="Name of the replay, which resumes one of the same name; derived from the options by default.",
    ),
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="Accepted for consistency with other commands; replay always ends.")
]


def register(app: typer.Typer) -> None:
    app.command("replay")(replay)


def replay(
    topics: TopicsOption,
    to: ToOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    archive: ArchiveOption = None,
    begin: FromOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    rate: RateOption = None,
    name: NameOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    once: OnceOption = False,
    json: JsonOption = False,
) -> None:
    """Write the records of topics to another topic, each exactly once.

    An interrupted replay resumes when the command is run again.
    """
    given = {"bootstrap": bootstrap, "subscribe": topics, "startingOffsetsByTimestampStrategy": "latest"}
    if archive is not None:
        given["archive"] = archive
    with pipeline_session("penstock replay", master, conf) as session:
        from penstock.pipeline.options import parse
        from penstock.pipeline.replay import ReplayJob, plan_of
        from penstock.pipeline.replay import replay as run

        found = plan_of(parse(given)).topics
        given |= _bound("starting", begin, found) | _bound("ending", until, found)
        job = ReplayJob(parse(given), to, where, rate, name)
        with progress_of(session, "replaying"):
            *_, done = run(job, session.open)
    if json:
        print_json({"written": done.written})
    elif done.written:
        typer.echo(f"Replayed {done.written:,} records to {to}.")
    else:
        typer.echo(
            "No records to replay: the range is empty or already replayed; --name starts another replay."
        )


def _bound(which: str, text: str | None, topics: Mapping[str, Any]) -> dict[str, str]:
    if text is None:
        return {}
    if text.isascii() and text.isdigit() and len(text) <= _MOST_OFFSET_DIGITS:
        offsets = {
            name: {str(number): int(text) for number in topic.partitions} for name, topic in topics.items()
        }
        return {f"{which}Offsets": json.dumps(offsets)}
    return {f"{which}Timestamp": str(parse_time_ms(text, SystemClock().now_ms()))}
