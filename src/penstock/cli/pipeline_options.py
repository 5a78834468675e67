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
        help="The Spark master, such as spark://host:7077; this machine if left out.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Do what there is to do now, and end.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="An archive of the topics: read together with their logs."),
]
EveryOption = Annotated[
    str, typer.Option("--every", metavar="TIME", help="How often to look for more: 30s, 15m, 1h.")
]
