"""`penstock user`: create, list, show, password, disable, enable, delete. Tokens are in `user_token.py`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.user_token import token_app
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.users import UserDescription

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user name.")]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Change the data directory of a stopped broker instead."),
]

app = typer.Typer(help="Manage the users of a cluster.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    app.add_typer(token_app, name="token")
    root.add_typer(app, name="user")


@app.command("create")
def create_user(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, data_dir: DataDirOption = None
) -> None:
    """Create a user. The password comes from a prompt, or from standard input if that is not a terminal."""
    password = ask_password(name)
    if data_dir is not None:
        from penstock.cli.offline_users import create_offline

        create_offline(data_dir, name, password)
    else:

        async def work(client: InternalClient) -> None:
            if await _find(client, name) is not None:
                raise Failure(
                    f"user {name!r} exists", f"`penstock user password {name}` changes its password."
                )
            await client.users.set_password(name, password)

        run_admin(bootstrap, work, f"user {name}")
    typer.echo(f"created user {name}")


@app.command("password")
def change_password(name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP) -> None:
    """Change the password of a user. This closes the user's connections."""
    password = ask_password(name)

    async def work(client: InternalClient) -> None:
        await client.users.describe([name])
        await client.users.set_password(name, password)

    run_admin(bootstrap, work, f"user {name}")
    typer.echo(f"changed the password of user {name}")


@app.command("list")
def list_users(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the users with their SCRAM mechanisms."""
    users = run_admin(bootstrap, lambda client: client.users.describe())
    if json:
        print_json([asdict(user) for user in users])
    elif users:
        rows = [
            (user.name, _state(user), ", ".join(user.mechanisms), str(len(user.tokens))) for user in users
        ]
        print_table(("USER", "STATE", "MECHANISMS", "TOKENS"), rows)
    else:
        typer.echo("There are no users; `penstock user create NAME` creates one.")


@app.command("show")
def show_user(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show a user: whether it is disabled, its SCRAM mechanisms and its access tokens."""
    [user] = run_admin(bootstrap, lambda client: client.users.describe([name]), f"user {name}")
    if json:
        print_json(asdict(user))
        return
    typer.echo(f"user:       {user.name}")
    typer.echo(f"state:      {_state(user)}")
    for mechanism, iterations in user.mechanisms.items():
        typer.echo(f"mechanism:  {mechanism}, {iterations} iterations")
    for token in user.tokens:
        typer.echo(f"token:      {token.id} {token.label}".rstrip())


@app.command("disable")
def disable_user(name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP) -> None:
    """Disable a user. This closes the user's connections and sessions; the credentials are kept."""
    run_admin(bootstrap, lambda client: client.users.set_disabled(name, True), f"user {name}")
    typer.echo(f"disabled user {name}")


@app.command("enable")
def enable_user(name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP) -> None:
    """Let a disabled user log in again."""
    run_admin(bootstrap, lambda client: client.users.set_disabled(name, False), f"user {name}")
    typer.echo(f"enabled user {name}")


@app.command("delete")
def delete_user(
    name: NameArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, yes: YesOption = False
) -> None:
    """Delete a user. This closes the user's connections."""
    confirm(f"Delete user {name}?", yes=yes)

    async def work(client: InternalClient) -> None:
        [user] = await client.users.describe([name])
        await client.users.delete(user)

    run_admin(bootstrap, work, f"user {name}")
    typer.echo(f"deleted user {name}")


def ask_password(name: str) -> str:
    """Return a password from a prompt, or the first line of standard input. Raises Failure if it is empty."""
    if sys.stdin.isatty():
        password: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Failure(
            "the password is empty",
            "Type it at the prompt, or pass it on standard input.",
            code=ExitCode.USAGE,
        )
    return password


def _state(user: UserDescription) -> str:
    return "disabled" if user.is_disabled else "enabled"


async def _find(client: InternalClient, name: str) -> UserDescription | None:
    try:
        [user] = await client.users.describe([name])
    except BrokerError as error:
        if error.code is ErrorCode.resource_not_found:
            return None
        raise
    return user
