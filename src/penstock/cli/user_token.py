"""`penstock user token`: create, list, revoke."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json, print_table
from penstock.cli.times import parse_duration_ms, show_time
from penstock.internal_client.client import InternalClient
from penstock.security.access_token import AccessToken

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user name.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the token.")]
LabelOption = Annotated[str, typer.Option("--label", metavar="TEXT", help="What the token is for.")]
LifetimeOption = Annotated[
    str | None,
    typer.Option(
        "--expires-in",
        metavar="DURATION",
        help="Lifetime, as 12h or 90d. By default the token never expires.",
    ),
]

token_app = typer.Typer(help="Manage access tokens of users for HTTP.", no_args_is_help=True)


@token_app.command("create")
def create_token(
    user: UserArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    label: LabelOption = "",
    expires_in: LifetimeOption = None,
    json: JsonOption = False,
) -> None:
    """Create a token and print it. It cannot be shown again: the cluster stores only a digest."""
    lifetime_ms = 0 if expires_in is None else parse_duration_ms(expires_in)
    if expires_in is not None and not lifetime_ms:
        raise Failure(
            f"--expires-in {expires_in} is not a lifetime",
            "Give a duration such as 12h or 90d; without --expires-in the token does not expire.",
            code=ExitCode.USAGE,
        )

    async def work(client: InternalClient) -> AccessToken:
        await client.users.describe([user])
        return await client.users.create_token(user, label, lifetime_ms)

    token = run_admin(bootstrap, work, f"user {user}")
    if json:
        print_json({"user": user, "id": token.id, "token": token.text()})
    else:
        typer.echo(token.text())


@token_app.command("list")
def list_tokens(
    user: UserArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """List the tokens of a user, without their secrets."""
    [found] = run_admin(bootstrap, lambda client: client.users.describe([user]), f"user {user}")
    if json:
        print_json([asdict(token) for token in found.tokens])
    elif found.tokens:
        rows = [
            (each.id, each.label, show_time(each.created_ms), _end(each.expires_ms)) for each in found.tokens
        ]
        print_table(("ID", "LABEL", "CREATED", "EXPIRES"), rows)
    else:
        typer.echo(f"User {user} has no tokens; `penstock user token create {user}` creates one.")


@token_app.command("revoke")
def revoke_token(
    user: UserArgument, token_id: IdArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP
) -> None:
    """Revoke a token at once."""

    async def work(client: InternalClient) -> None:
        [found] = await client.users.describe([user])
        if token_id not in {each.id for each in found.tokens}:
            raise Failure(
                f"user {user} has no token with the id {token_id!r}",
                f"`penstock user token list {user}` lists them.",
            )
        await client.users.revoke_token(user, token_id)

    run_admin(bootstrap, work, f"user {user}")
    typer.echo(f"revoked token {token_id} of user {user}")


def _end(expires_ms: int) -> str:
    return show_time(expires_ms) if expires_ms else "never"
