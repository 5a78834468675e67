"""`penstock gateway`: serve HTTP for a cluster from a separate process, or from several on one port.

A gateway has no state except its open connections, so any number of them can start and stop at any time.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.broker_config import load_config
from penstock.cli.failures import ExitCode, Failure
from penstock.config import HTTP_PORT, parse_address

if TYPE_CHECKING:
    import typer


def register(root: typer.Typer) -> None:
    """List the command in `penstock --help`. `main` runs the command without typer."""

    def gateway() -> None:
        """Serve HTTP in front of a cluster."""

    root.command(add_help_option=False)(gateway)


def gateway(arguments: Sequence[str]) -> None:
    given = _parser().parse_args(arguments)
    loaded = load_config(given.config, given.set, {"http.port": given.http_port, "host": given.host})
    try:
        bootstrap = [parse_address(text.strip()) for text in given.bootstrap.split(",")]
    except ValueError as error:
        raise Failure(
            f"--bootstrap {given.bootstrap!r}: {error}", "Give HOST:PORT[,HOST:PORT].", code=ExitCode.USAGE
        ) from None
    if loaded.config[HTTP_PORT] < 0:
        raise Failure(
            f"http.port is {loaded.config[HTTP_PORT]}, but a gateway needs a port",
            "Give --http-port PORT.",
            code=ExitCode.USAGE,
        )
    if given.workers > 1 and given.worker_of is None:
        from penstock.cli.gateway_workers import run_workers

        if loaded.config[HTTP_PORT] == 0:
            raise Failure(
                f"http.port is 0, but {given.workers} workers need to share a fixed port",
                "Give --http-port PORT.",
                code=ExitCode.USAGE,
            )
        run_workers(given.workers, arguments)
    else:
        from penstock.cli.gateway_process import GatewayWorker, run_gateway

        worker = None if given.worker_of is None else GatewayWorker(given.worker_of, given.worker_socket)
        run_gateway(loaded.config, bootstrap, worker)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "penstock gateway",
        description="Serve HTTP in front of a cluster. Options override the environment, which overrides the "
        "settings file.",
        epilog="`penstock config show --docs` explains every setting.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("PENSTOCK_BOOTSTRAP", "localhost:9092"),
        help="brokers of the cluster, separated by commas",
    )
    parser.add_argument("--http-port", metavar="PORT", help="the port to serve HTTP on (http.port)")
    parser.add_argument("--host", metavar="HOST", help="the address to listen on (host)")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=1,
        help="number of processes that share the port; one per core is a good choice",
    )
    parser.add_argument("--worker-of", metavar="PID", type=int, help=SUPPRESS)
    parser.add_argument("--worker-socket", metavar="PATH", type=Path, help=SUPPRESS)
    parser.add_argument("--config", metavar="FILE", help="a settings file: TOML, or name=value lines")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeatable"
    )
    return parser
