"""Options shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; repeatable.")
]
TopicSettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", "--config", metavar="NAME=VALUE", help="A setting; repeatable."),
]
"""Settings of a topic. Also accepted as `--config`, the name in Kafka's tools."""
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A settings file: TOML, or name=value lines."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TopicArgument = Annotated[str, typer.Argument(help="The topic name.")]

DEFAULT_BOOTSTRAP = "localhost:9092"
