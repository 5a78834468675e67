"""Command tree. Only the module of the requested command is imported."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

import typer

from penstock.build import current_build

COMMANDS = {
    "broker": "penstock.cli.broker",
    "gateway": "penstock.cli.gateway",
    "topic": "penstock.cli.topic",
    "view": "penstock.cli.view",
    "queue": "penstock.cli.queue",
    "dead-letters": "penstock.cli.dead_letters",
    "webhook": "penstock.cli.webhook",
    "retry-policy": "penstock.cli.retry_policy",
    "produce": "penstock.cli.produce",
    "delayed": "penstock.cli.delayed",
    "schedule": "penstock.cli.schedule",
    "consume": "penstock.cli.consume",
    "search": "penstock.cli.search",
    "group": "penstock.cli.group",
    "connection": "penstock.cli.connection",
    "transaction": "penstock.cli.transaction",
    "user": "penstock.cli.user",
    "acl": "penstock.cli.acl",
    "quota": "penstock.cli.quota",
    "tls": "penstock.cli.tls",
    "context": "penstock.cli.context",
    "cluster": "penstock.cli.cluster",
    "pipeline": "penstock.cli.pipeline",
    "log": "penstock.cli.log",
    "config": "penstock.cli.config",
    "export": "penstock.cli.definitions",
    "apply": "penstock.cli.definitions",
}


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """Create the command tree; if the first argument is a command, the tree has only that command."""
    app = typer.Typer(
        help="A Kafka-compatible event log and message queue.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    chosen = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    for module in dict.fromkeys(COMMANDS[name] for name in chosen):
        import_module(module).register(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')} ({current_build()})")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and the build: pure or compiled.", callback=_show_version
    ),
) -> None:
    pass
