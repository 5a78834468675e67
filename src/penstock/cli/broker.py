"""`penstock broker`: run a broker in this process until SIGTERM or SIGINT.

Options are parsed with argparse: importing typer, which the other commands use, takes longer than the
start of the broker.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.broker_config import load_config
from penstock.cli.failures import ExitCode, Failure
from penstock.config import LISTENERS, LOG_DIR, PROCESSES, BrokerConfig

if TYPE_CHECKING:
    import typer

# Option of the command, setting, metavar, help text.
_SHORTHANDS = (
    ("--data-dir", "log.dir", "DIR", "the data directory"),
    ("--port", "port", "PORT", "the port for Kafka clients"),
    ("--http-port", "http.port", "PORT", "the port for HTTP: gateway, /metrics and /health; -1 for none"),
    ("--host", "host", "HOST", "the address to listen on"),
    ("--advertised", "advertised.listeners", "HOST:PORT", "the address that clients connect to"),
    ("--node-id", "node.id", "N", "the broker id"),
    ("--processes", "processes", "N", "the number of broker processes, one for each core at most"),
    (
        "--zookeeper",
        "zookeeper.connect",
        "HOST:PORT[/CHROOT]",
        "the ZooKeeper of the cluster; standalone without it",
    ),
)


def register(root: typer.Typer) -> None:
    """List the command in `penstock --help`. `main` runs the command without typer."""

    def broker() -> None:
        """Run a broker."""

    root.command(add_help_option=False)(broker)


def broker(arguments: Sequence[str]) -> None:
    given = _parser().parse_args(arguments)
    shorthands = {setting: getattr(given, setting) for _, setting, _, _ in _SHORTHANDS}
    loaded = load_config(given.config, given.set, shorthands)
    made: dict[str, str] = {}
    if given.secure:
        made = _secure_settings(loaded.config)
        loaded = load_config(given.config, given.set, {**shorthands, **made})
    if given.supervised is None:
        from penstock.cli.exposure import mark_directory, refuse_open_places

        refuse_open_places(loaded.config, is_insecure=given.insecure)
        mark_directory(loaded.config)
    if given.supervised is not None:
        from penstock.cli.broker_process import run_supervised_broker
        from penstock.cli.processes.supervised import SupervisorLink, decode_place

        run_supervised_broker(loaded.config, SupervisorLink(decode_place(given.supervised)))
    elif _has_processes(loaded.config):
        from penstock.cli.processes.broker_processes import run_processes

        run_processes(loaded, _arguments_of_processes(arguments, made))
    else:
        from penstock.cli.broker_process import run_broker

        run_broker(loaded.config, loaded.ignored)


def _secure_settings(config: BrokerConfig) -> dict[str, str]:
    """Return the settings of `--secure`. Raises Failure if the user has set listeners."""
    if config[LISTENERS] is not None:
        raise Failure(
            "--secure creates a listener, but the setting listeners is given too",
            "Remove one of them; docs/security.md shows the settings that --secure creates.",
            code=ExitCode.USAGE,
        )
    from penstock.cli.secure_setup import enter, secure_broker

    settings = secure_broker(config)
    enter(config)
    return settings


def _arguments_of_processes(arguments: Sequence[str], made: Mapping[str, str]) -> list[str]:
    """Return the arguments for broker processes, with the settings made by `--secure` instead of this option, so that
    all processes use the same certificates.
    """
    settings = [part for name, value in made.items() for part in ("--set", f"{name}={value}")]
    return [*(each for each in arguments if each != "--secure"), *settings]


def _has_processes(config: BrokerConfig) -> bool:
    """Return True if several processes are configured, or if the data directory belongs to several processes."""
    from penstock.cli.processes.machine_directory import MachineDirectory

    return config[PROCESSES] > 1 or MachineDirectory(config[LOG_DIR]).is_in_use


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
    parser.add_argument(
        "--secure",
        action="store_true",
        help="encrypt and authenticate: make certificates and an administrator below the data directory",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="accept that other machines can reach the broker without authentication",
    )
    parser.add_argument("--supervised", metavar="PLACE", help=SUPPRESS)
    return parser
