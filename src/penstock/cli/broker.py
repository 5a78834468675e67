"""`penstock broker`: run a broker in this process until SIGTERM or SIGINT.

Options are parsed with argparse: importing typer, which the other commands use, takes longer than the
start of the broker.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence

from penstock.cli.config_file import read_config_file
from penstock.config.loading import load_broker_config, parse_assignments

# Option of the command, setting, metavar, help text.
_SHORTHANDS = (
    ("--data-dir", "log.dir", "DIR", "the data directory"),
    ("--port", "port", "PORT", "the port for Kafka clients"),
    ("--http-port", "http.port", "PORT", "the port for HTTP: gateway, /metrics and /health; -1 for none"),
    ("--host", "host", "HOST", "the address to listen on"),
    ("--advertised", "advertised.listeners", "HOST:PORT", "the address that clients connect to"),
    ("--node-id", "node.id", "N", "the broker id"),
    (
        "--zookeeper",
        "zookeeper.connect",
        "HOST:PORT[/CHROOT]",
        "the ZooKeeper of the cluster; standalone without it",
    ),
)


def broker(arguments: Sequence[str]) -> None:
    given = _parser().parse_args(arguments)
    shorthands = {setting: getattr(given, setting) for _, setting, _, _ in _SHORTHANDS}
    loaded = load_broker_config(
        file=read_config_file(given.config),
        environment=os.environ,
        command_line=parse_assignments(given.set)
        | {setting: value for setting, value in shorthands.items() if value is not None},
    )
    from penstock.cli.broker_process import run_broker

    run_broker(loaded.config, loaded.ignored)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "penstock broker",
        description="Run a broker. Options override the environment, which overrides the settings file.",
        epilog="`penstock config show --docs` explains every setting.",
        allow_abbrev=False,
    )
    for option, setting, metavar, purpose in _SHORTHANDS:
        parser.add_argument(option, dest=setting, metavar=metavar, help=f"{purpose} ({setting})")
    parser.add_argument("--config", metavar="FILE", help="a settings file: TOML, or name=value lines")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeatable"
    )
    return parser
