"""Options that the commands of `penstock pipeline` share."""

from __future__ import annotations

from typing import Annotated

import typer

TopicsOption = Annotated[
    str, typer.Option("--topics", "-t", metavar="NAME[,NAME]", help="The topics, separated by commas.")
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
