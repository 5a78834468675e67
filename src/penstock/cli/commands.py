"""The commands of `penstock`. Only the module of the one asked for is loaded, so a broker starts quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.errors import ConfigError

COMMANDS = {
    "broker": "penstock.cli.broker",
    "topic": "penstock.cli.topic",
    "produce": "penstock.cli.produce",
    "consume": "penstock.cli.consume",
    "log": "penstock.cli.log",
    "config": "penstock.cli.config",
}
INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; the exit code."""
    try:
        make_app(arguments)(list(arguments), prog_name="penstock", standalone_mode=True)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else ExitCode.FAILED
    except Failure as failure:
        _complain(str(failure), failure.hint)
        return failure.code
    except ConfigError as error:
        _complain(str(error), "")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing to say, and nothing more to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    return 0


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """The command tree; of the commands only the first argument's where that is one."""
    app = typer.Typer(
        help="A Kafka-compatible event log and message queue.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    chosen = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    for name in chosen:
        import_module(COMMANDS[name]).register(app)
    return app


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=lambda on: _version(on)
    ),
) -> None:
    pass


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _complain(message: str, hint: str) -> None:
    sys.stdout.flush()
    typer.secho(f"error: {message}", err=True, fg="red")
    if hint:
        typer.echo(hint, err=True)
