"""Options that several commands share, and what is read because of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT",
        help="The broker to connect to.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; repeat for several.")
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A file of settings: TOML, or name=value lines."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TopicArgument = Annotated[str, typer.Argument(help="The topic's name.")]

DEFAULT_BOOTSTRAP = "localhost:9092"


def read_config_file(name: str | None) -> tuple[str, str] | None:
    """The name and content of a settings file."""
    if name is None:
        return None
    try:
        return name, Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Failure(f"cannot read {name}: {reason}", code=ExitCode.USAGE) from None
