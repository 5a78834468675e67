"""Options shared by the commands of `penstock pipeline`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure

TopicsOption = Annotated[
    str, typer.Option("--topics", "-t", metavar="NAME[,NAME]", help="The topics, separated by commas.")
]
TopicPatternsOption = Annotated[
    str,
    typer.Option(
        "--topics",
        "-t",
        metavar="NAME[,NAME]",
        help="The topics, separated by commas, or a pattern (a regular expression such as 'orders-.*').",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark master, such as spark://host:7077; this machine by default.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Process the records present now, then end.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="An archive of the topics, read together with their logs."),
]
EveryOption = Annotated[
    str,
    typer.Option("--every", metavar="TIME", help="Interval between checks for new records: 30s, 15m, 1h."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g; repeatable.",
    ),
]


def parse_conf(given: list[str] | None) -> dict[str, str]:
    """Parse settings of Spark from `--conf KEY=VALUE`."""
    settings = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not sign or not name.startswith("spark."):
            raise Failure(
                f"--conf {each}: this is not a setting of Spark",
                "Write --conf spark.NAME=VALUE.",
                code=ExitCode.USAGE,
            )
        settings[name.strip()] = value
    return settings
