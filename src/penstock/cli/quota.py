"""`penstock quota`: limits of users and clients. Commands: set, list, remove, show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json, print_table
from penstock.internal_client.client import InternalClient
from penstock.security.quota import DEFAULT, Default, EntityName, QuotaEntity, QuotaKey, limit_of

UserOption = Annotated[str | None, typer.Option("--user", metavar="USER", help="The user.")]
ClientOption = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The client id.")]
IpOption = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The address of clients.")]
UserDefaultOption = Annotated[
    bool, typer.Option("--user-default", help="All users without a quota of their own.")
]
ClientDefaultOption = Annotated[
    bool, typer.Option("--client-id-default", help="All client ids without a quota of their own.")
]
IpDefaultOption = Annotated[
    bool, typer.Option("--ip-default", help="All addresses without a quota of their own.")
]

app = typer.Typer(help="Manage the quotas of users, client ids and addresses.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="quota")


@app.command("set")
def set_quota(
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="[USER] NAME=VALUE...", help=f"The user, and quotas per broker: {', '.join(QuotaKey)}."
        ),
    ],
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    user_default: UserDefaultOption = False,
    client_id_default: ClientDefaultOption = False,
    ip_default: IpDefaultOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas. Rates are per second and broker; request_percentage is the share of the event loop's time."""
    user, quotas = _leading_user(quotas, user, is_quota=lambda word: "=" in word)
    entity = _entity(user, client_id, ip, user_default, client_id_default, ip_default)
    values = dict(_value(text) for text in quotas)
    if not values:
        raise Failure(f"no quota is given for {entity}", "Give some, as NAME=VALUE.", code=ExitCode.USAGE)
    run_admin(bootstrap, lambda client: client.quotas.alter(entity, values), str(entity))
    typer.echo(f"set {', '.join(f'{name}={_shown(value)}' for name, value in values.items())} for {entity}")


@app.command("remove")
def remove_quota(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER] [NAME...]", help="The user, and the quotas; all if none."),
    ] = None,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    user_default: UserDefaultOption = False,
    client_id_default: ClientDefaultOption = False,
    ip_default: IpDefaultOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove quotas."""
    user, names = _leading_user(names or [], user, is_quota=lambda word: word in set(QuotaKey))
    entity = _entity(user, client_id, ip, user_default, client_id_default, ip_default)

    async def work(client: InternalClient) -> list[str]:
        present = (await client.quotas.describe()).get(entity, {})
        await client.quotas.alter(entity, dict.fromkeys(names or map(str, present)))
        return [str(key) for key in present if not names or key in names]

    removed = run_admin(bootstrap, work, str(entity))
    if removed:
        typer.echo(f"removed {', '.join(removed)} for {entity}")
    else:
        typer.echo(f"No such quota is set for {entity}; nothing was removed.")


@app.command("list")
def list_quotas(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List all quotas."""
    found = run_admin(bootstrap, lambda client: client.quotas.describe())
    if json:
        print_json([_fields(entity, values) for entity, values in found.items()])
    elif found:
        rows = [
            (str(entity), str(key), _shown(value))
            for entity, values in found.items()
            for key, value in values.items()
        ]
        print_table(("ENTITY", "QUOTA", "VALUE"), rows)
    else:
        typer.echo("There are no quotas; `penstock quota set` creates one.")


@app.command("show")
def show_quotas(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user.")],
    client_id: ClientOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Show the effective quotas of a user, as determined by the brokers."""
    quotas = run_admin(bootstrap, lambda client: client.quotas.describe())
    limits = {key: limit_of(quotas, key, user, client_id or "") for key in QuotaKey}
    in_force = {str(key): limit.rate for key, limit in limits.items() if limit is not None}
    if json:
        print_json(in_force)
    elif in_force:
        print_table(("QUOTA", "VALUE"), [(name, _shown(value)) for name, value in in_force.items()])
    else:
        typer.echo(f"No quota is in force for user {user}.")


def _leading_user(
    words: list[str], user: str | None, is_quota: Callable[[str], bool]
) -> tuple[str | None, list[str]]:
    """Return the user and the quota arguments. The first argument names the user if it is not a quota, as an
    alternative to `--user`.
    """
    if user is not None or not words or is_quota(words[0]):
        return user, words
    return words[0], words[1:]


def _entity(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    user_default: bool,
    client_id_default: bool,
    ip_default: bool,
) -> QuotaEntity:
    def name(given: str | None, is_default: bool) -> EntityName | None:
        if given is not None and is_default:
            raise Failure(
                "a name and the default exclude each other", "Give one of them.", code=ExitCode.USAGE
            )
        return DEFAULT if is_default else given

    entity = QuotaEntity(name(user, user_default), name(client_id, client_id_default), name(ip, ip_default))
    if entity == QuotaEntity():
        raise Failure("no entity is given", "Give a user, --client-id or --ip.", code=ExitCode.USAGE)
    return entity


def _value(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        if not separator:
            raise ValueError(text)
        return name, float(value)
    except ValueError:
        raise Failure(
            f"{text!r} is not NAME=NUMBER", f"Names are {', '.join(QuotaKey)}.", code=ExitCode.USAGE
        ) from None


def _fields(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> dict[str, Any]:
    names = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    shown = {
        kind: str(name) if isinstance(name, Default) else name
        for kind, name in names.items()
        if name is not None
    }
    return {"entity": shown, "quotas": {str(key): value for key, value in values.items()}}


def _shown(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
