"""`penstock broker`: run a broker in this process until it is told to stop."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli.options import ConfigOption, SetOption, read_config_file
from penstock.config.loading import load_broker_config, parse_assignments


def register(root: typer.Typer) -> None:
    root.command()(broker)


def broker(
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where everything is stored (log.dir).")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The port for Kafka clients (port).")
    ] = None,
    http_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The port for /metrics and /health (http.port).")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (host).")] = None,
    advertised: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The address clients are told to use (advertised.listeners)."),
    ] = None,
    node_id: Annotated[str | None, typer.Option(metavar="N", help="The broker's number (node.id).")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Run a broker. Settings come from the file, over it the environment, over it the options here."""
    options = {
        "log.dir": data_dir,
        "port": port,
        "http.port": http_port,
        "host": host,
        "advertised.listeners": advertised,
        "node.id": node_id,
    }
    loaded = load_broker_config(
        file=read_config_file(config),
        environment=os.environ,
        command_line=parse_assignments(settings or [])
        | {name: value for name, value in options.items() if value is not None},
    )
    from penstock.cli.broker_process import run_broker

    run_broker(loaded.config)
