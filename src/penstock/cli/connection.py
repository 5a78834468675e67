"""`penstock connection`: list and close the Kafka connections of clients."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table, show_bytes
from penstock.internal_client import open_connections

_COLUMNS = ("ID", "CLIENT ID", "SOFTWARE", "USER", "ADDRESS", "OPEN FOR", "RECEIVED", "SENT")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Broker and number, as `list` shows: 1-42.")]
BrokersOption = Annotated[bool, typer.Option("--brokers", help="Show connections of brokers as well.")]

app = typer.Typer(help="List and close the connections of clients.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="connection")


@app.command("list")
def list_connections(
    brokers: BrokersOption = False, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """List the connections of clients to all brokers, the oldest of each broker first."""
    found, total = _connections(ClusterClient(bootstrap))
    shown = [each for each in found if brokers or not each["is_broker"]]
    if json:
        print_json(shown)
        return
    print_table(_COLUMNS, [_row(each) for each in shown])
    if total > len(found):
        typer.echo(f"{len(found):,} of {total:,} connections: a broker lists its oldest 1,000", err=True)


@app.command()
def close(
    connection: IdArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Close a connection. If the client is still running, it connects again."""
    cluster = ClusterClient(bootstrap)
    found = next((each for each in _connections(cluster)[0] if each["id"] == connection), None)
    if found is None:
        raise Failure(
            f"there is no connection {connection[:40]!r}", "`penstock connection list` shows the connections."
        )
    confirm(f"Close the connection of {found['client_id'] or 'a client'} at {found['address']}?", yes=yes)
    cluster.run(lambda client: open_connections.close_connection(client.inspection, connection), connection)
    if json:
        print_json({"connection": connection, "closed": True})
    else:
        typer.echo(f"closed connection {connection}")


def _connections(cluster: ClusterClient) -> tuple[list[dict[str, Any]], int]:
    return cluster.run(lambda client: open_connections.list_connections(client.inspection), "the connections")


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    return (
        each["id"],
        each["client_id"] or NONE,
        each["software"] or NONE,
        each["principal"],
        each["address"],
        f"{each['age_seconds']:,.0f} s",
        show_bytes(each["received_bytes"]),
        show_bytes(each["sent_bytes"]),
    )
