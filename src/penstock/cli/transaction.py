"""`penstock transaction`: list, describe, abort."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.failures import Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.transaction_client import (
    HELD,
    Described,
    abort,
    ask,
    describe,
    describe_all,
    transactional_ids,
)
from penstock.clock import SystemClock
from penstock.net.routes import Routes

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Only those with an open transaction.")]

app = typer.Typer(help="Look at transactions, and abort one that is in the way.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="transaction")


@app.command("list")
def list_transactions(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, only_open: OpenOption = False, json: JsonOption = False
) -> None:
    """List the transactional ids, what each is doing, and for how long."""

    async def work(routes: Routes) -> list[Described]:
        ids = await transactional_ids(routes, ["Ongoing"] if only_open else ())
        return await describe_all(routes, ids)

    found = ask(bootstrap, work)
    if json:
        print_json([_fields(each) for each in found])
    elif found:
        columns = ("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "OPEN FOR", "TIMEOUT", "PARTITIONS")
        print_table(columns, [_row(each) for each in found])
    else:
        typer.echo("There are no open transactions." if only_open else "There are no transactional ids.")


@app.command("describe")
def describe_transaction(
    transactional_id: IdArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show one: its state, its producer, and the partitions it has written to."""
    found = ask(bootstrap, lambda routes: describe(routes, transactional_id))
    if json:
        print_json(_fields(found))
        return
    typer.echo(f"transactional id: {found.transactional_id}")
    typer.echo(f"state:            {found.state}")
    typer.echo(f"producer id:      {found.producer_id}")
    typer.echo(f"epoch:            {found.producer_epoch}")
    typer.echo(f"timeout:          {_timeout(found)}")
    typer.echo(f"open for:         {_age(found)}")
    for topic, indexes in found.partitions.items():
        typer.echo(f"partitions:       {topic} {','.join(map(str, indexes))}")


@app.command("abort")
def abort_transaction(
    transactional_id: IdArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, yes: YesOption = False
) -> None:
    """Abort an open transaction, also a held one. What it wrote is never read; its producer is fenced."""
    found = ask(bootstrap, lambda routes: describe(routes, transactional_id))
    if not found.is_open:
        raise Failure(f"{transactional_id} has no open transaction: it is {found.state}")
    confirm(f"Abort the transaction of {transactional_id}, open for {_age(found)}?", yes=yes)
    ask(bootstrap, lambda routes: abort(routes, found))
    typer.echo(f"The transaction of {transactional_id} is aborted.")


def _fields(each: Described) -> dict[str, Any]:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "held": each.timeout_ms is None,
        "start_ms": each.start_ms,
        "partitions": each.partitions,
    }


def _row(each: Described) -> tuple[object, ...]:
    count = sum(len(indexes) for indexes in each.partitions.values())
    return (
        each.transactional_id,
        each.state,
        str(each.producer_id),
        str(each.producer_epoch),
        _age(each),
        _timeout(each),
        count,
    )


def _timeout(each: Described) -> str:
    return HELD if each.timeout_ms is None else f"{each.timeout_ms / 1000:g} s"


def _age(each: Described) -> str:
    return NONE if each.start_ms is None else f"{(SystemClock().now_ms() - each.start_ms) / 1000:.1f} s"
