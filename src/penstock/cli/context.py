"""`penstock context`: named clusters for the other commands. Commands: add, use, list, show."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.contexts import Context, load_contexts, save_contexts
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import JsonOption
from penstock.cli.output import NONE, print_json, print_table

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the context.")]

app = typer.Typer(help="Remember clusters: address, authority and user.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="context")


@app.command("add")
def add_context(
    name: NameArgument,
    address: Annotated[str, typer.Option("--address", metavar="HOST:PORT", help="The bootstrap address.")],
    ca: Annotated[Path | None, typer.Option("--ca", help="The authority of the brokers (PEM).")] = None,
    user: Annotated[str | None, typer.Option("--user", help="The user to log in as.")] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="The file with the password of the user.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="A client certificate with its key (PEM).")
    ] = None,
) -> None:
    """Add a context, or replace it. The first context becomes the current one."""
    if (user is None) != (password_file is None):
        raise Failure("--user and --password-file belong together", "Give both.", code=ExitCode.USAGE)
    contexts = load_contexts()
    contexts.contexts[name] = Context(address, _path(ca), user, _path(password_file), _path(certificate))
    contexts.current = contexts.current or name
    save_contexts(contexts)
    typer.echo(f"added context {name}")


@app.command("use")
def use_context(name: NameArgument) -> None:
    """Select the current context, which commands use without --context and --bootstrap."""
    contexts = load_contexts()
    contexts.get(name)
    contexts.current = name
    save_contexts(contexts)
    typer.echo(f"the current context is {name}")


@app.command("list")
def list_contexts(json: JsonOption = False) -> None:
    """List the contexts; a star marks the current one."""
    contexts = load_contexts()
    if json:
        print_json(
            [
                {"name": name, "is_current": name == contexts.current, **asdict(context)}
                for name, context in contexts.contexts.items()
            ]
        )
    elif contexts.contexts:
        rows = [
            ("*" if name == contexts.current else "", name, context.bootstrap, context.user or NONE)
            for name, context in contexts.contexts.items()
        ]
        print_table(("", "CONTEXT", "BOOTSTRAP", "USER"), rows)
    else:
        typer.echo("There are no contexts; `penstock context add` adds one.")


@app.command("show")
def show_context(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The context; the current one if none.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a context."""
    contexts = load_contexts()
    chosen = name or contexts.current
    if chosen is None:
        raise Failure("there is no current context", "`penstock context use NAME` chooses one.")
    fields = {"name": chosen, **asdict(contexts.get(chosen))}
    if json:
        print_json(fields)
        return
    for key, value in fields.items():
        typer.echo(f"{key.replace('_', ' ') + ':':15}{value or NONE}")


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
