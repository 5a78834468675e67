"""Options shared by the commands of `penstock cluster`, and the address of the cluster that these options select."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="The directory of a cluster on this machine.")
]
MaybeDataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The directory of a cluster on this machine.")
]
MaybeBootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", metavar="HOST:PORT", help="A broker of any cluster."
    ),
]
NodeArgument = Annotated[int, typer.Argument(metavar="N", help="The broker id.")]


def no_cluster_named() -> Failure:
    """Return the Failure for a command with neither --data-dir nor --bootstrap."""
    return Failure(
        "no cluster is named",
        "Give --data-dir DIR for a cluster on this machine, or --bootstrap HOST:PORT for any cluster.",
        code=ExitCode.USAGE,
    )
