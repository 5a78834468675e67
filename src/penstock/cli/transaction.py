"""`penstock transaction`: list, describe, find-hanging, abort."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.hanging_transactions import abort_hanging, describe_all, find_hanging, open_in
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.times import show_time
from penstock.clock import SystemClock
from penstock.internal_client.client import InternalClient
from penstock.internal_client.transactions import ONGOING, OpenInPartition, TransactionDescription

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]
MaybeIdArgument = Annotated[str | None, typer.Argument(metavar="[ID]", help="The transactional id.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="The topic of a hanging transaction.")]
TopicsOption = Annotated[list[str] | None, typer.Option("--topic", help="Only in this topic; repeatable.")]
HELD = "held"

PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, help="The partition of a hanging transaction.")
]
ProducerIdOption = Annotated[
    int | None, typer.Option("--producer-id", min=0, help="The producer id of a hanging transaction.")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Only ids with an open transaction.")]

app = typer.Typer(help="Inspect transactions, and abort one that blocks consumers.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="transaction")


@app.command("list")
def list_transactions(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, only_open: OpenOption = False, json: JsonOption = False
) -> None:
    """List the transactional ids with their states, and the ages of open transactions."""

    async def work(client: InternalClient) -> list[TransactionDescription]:
        return await describe_all(client, [ONGOING] if only_open else ())

    found = run_admin(bootstrap, work)
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
    """Show a transactional id: its state, its producer, and the partitions of its transaction."""
    found = _describe(bootstrap, transactional_id)
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


@app.command("find-hanging")
def find_hanging_transactions(
    topics: TopicsOption = None, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Find open transactions that no coordinator knows; they block read_committed consumers."""
    found = run_admin(bootstrap, lambda client: find_hanging(client, topics or ()))
    if json:
        print_json([asdict(each) for each in found])
    elif found:
        columns = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "FIRST OFFSET", "LAST WRITE")
        print_table(columns, [_hanging_row(each) for each in found])
    else:
        typer.echo("There are no hanging transactions.")


@app.command("abort")
def abort_transaction(
    transactional_id: MaybeIdArgument = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    producer_id: ProducerIdOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    yes: YesOption = False,
) -> None:
    """Abort an open or held transaction: read_committed consumers skip its records, and its producer is fenced.

    To abort a hanging transaction (`find-hanging`), give --topic, --partition and --producer-id.
    """
    place = (topic, partition, producer_id)
    if transactional_id is not None and place == (None, None, None):
        _abort_by_id(bootstrap, transactional_id, yes=yes)
    elif transactional_id is None and topic is not None and partition is not None and producer_id is not None:
        _abort_in_partition(bootstrap, topic, partition, producer_id, yes=yes)
    else:
        raise Failure(
            "no transaction is named",
            "Give a transactional id, or all of --topic, --partition and --producer-id.",
            code=ExitCode.USAGE,
        )


def _describe(bootstrap: str, transactional_id: str) -> TransactionDescription:
    found = run_admin(
        bootstrap,
        lambda client: client.transactions.find(transactional_id),
        f"cannot describe {transactional_id}",
    )
    if found is None:
        raise Failure(
            f"there is no transactional id {transactional_id!r}",
            "`penstock transaction list` shows all ids.",
        )
    return found


def _abort_by_id(bootstrap: str, transactional_id: str, *, yes: bool) -> None:
    found = _describe(bootstrap, transactional_id)
    if not found.is_open:
        raise Failure(
            f"{transactional_id} has no open transaction: its state is {found.state}",
            "`penstock transaction list --open` shows open transactions.",
        )
    confirm(f"Abort the transaction of {transactional_id}, open for {_age(found)}?", yes=yes)
    run_admin(
        bootstrap,
        lambda client: client.transactions.end(found.producer, is_commit=False),
        f"cannot abort {transactional_id}",
    )
    typer.echo(f"The transaction of {transactional_id} is aborted.")


def _abort_in_partition(bootstrap: str, topic: str, partition: int, producer_id: int, *, yes: bool) -> None:
    found = run_admin(bootstrap, lambda client: open_in(client, topic, partition))
    hanging = next((each for each in found if each.producer_id == producer_id), None)
    if hanging is None:
        raise Failure(
            f"producer {producer_id} has no open transaction in {topic}-{partition}",
            "`penstock transaction find-hanging` shows hanging transactions.",
        )
    confirm(f"Abort the transaction of producer {producer_id} in {topic}-{partition}?", yes=yes)
    run_admin(bootstrap, lambda client: abort_hanging(client, hanging))
    typer.echo(f"The transaction of producer {producer_id} in {topic}-{partition} is aborted.")


def _fields(each: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "held": each.timeout_ms is None,
        "start_ms": each.start_ms,
        "partitions": {topic: list(indexes) for topic, indexes in each.partitions.items()},
    }


def _row(each: TransactionDescription) -> tuple[object, ...]:
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


def _hanging_row(each: OpenInPartition) -> tuple[object, ...]:
    return (
        each.topic,
        str(each.partition),
        str(each.producer_id),
        str(each.producer_epoch),
        each.start_offset,
        show_time(each.last_timestamp_ms),
    )


def _timeout(each: TransactionDescription) -> str:
    return HELD if each.timeout_ms is None else f"{each.timeout_ms / 1000:g} s"


def _age(each: TransactionDescription) -> str:
    return NONE if each.start_ms is None else f"{(SystemClock().now_ms() - each.start_ms) / 1000:.1f} s"
