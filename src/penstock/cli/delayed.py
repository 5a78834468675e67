"""`penstock delayed`: list, count, show and cancel the pending messages of a topic, whose delay has not passed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, TopicArgument
from penstock.cli.output import print_json, print_table
from penstock.cli.record import IncomingRecord, to_json
from penstock.cli.times import show_time
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.delayed import DelayedCalls, DelayedMessageId, PendingMessage, PendingPage
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.producer import IdempotentProducer

app = typer.Typer(help="List, show and cancel delayed messages.", no_args_is_help=True)

IdArgument = Annotated[
    str, typer.Argument(metavar="PARTITION-OFFSET", help="The id of the message, such as 0-42.")
]
LimitOption = Annotated[int, typer.Option(min=1, max=1_000, help="The number of messages to list.")]
AfterOption = Annotated[
    str | None, typer.Option(metavar="POSITION", help="Continue a list after this position.")
]
PartitionOption = Annotated[int | None, typer.Option(min=0, help="Only messages of this partition.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="delayed")


@app.command("list")
def list_messages(
    topic: TopicArgument,
    partition: PartitionOption = None,
    limit: LimitOption = 100,
    after: AfterOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """List pending messages in the order of their delivery times."""
    start = None if after is None else _parse_position(after)
    page = _page(bootstrap, topic, partition, start, limit)
    position = page.messages[-1].cursor if len(page.messages) == limit else None
    if json:
        print_json(
            {"count": page.total, "messages": [_as_json(each) for each in page.messages], "next": position}
        )
    elif page.messages:
        print_table(["message", "due"], [(str(each.id), show_time(each.due_ms)) for each in page.messages])
        if position is not None:
            typer.echo(f"{page.total:,} messages are pending; continue with --after {position}", err=True)
    else:
        typer.echo("no message is pending", err=True)


@app.command()
def count(
    topic: TopicArgument,
    partition: PartitionOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Count pending messages."""
    found = _page(bootstrap, topic, partition, None, 1).total
    print_json({"topic": topic, "count": found}) if json else typer.echo(str(found))


@app.command()
def show(
    topic: TopicArgument,
    message: IdArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Show a pending message with its content."""
    wanted = _parse_id(message)
    found = ClusterClient(bootstrap).run(
        lambda client: _calls(client).show(topic, wanted), f"message {message}"
    )
    record = IncomingRecord(
        topic,
        wanted.partition,
        wanted.offset,
        found["stored_ms"],
        found["key"],
        found["value"],
        tuple((name, value) for name, value in found["headers"]),
    )
    shown = to_json(record)
    if json:
        print_json({"message": message, "due": show_time(found["due_ms"]), **shown})
        return
    rows: list[tuple[str, Any]] = [
        ("message", message),
        ("due", show_time(found["due_ms"])),
        ("stored", show_time(found["stored_ms"])),
        ("key", shown["key"]),
        ("value", shown["value"]),
        *((f"header {each['name']}", each["value"]) for each in shown["headers"]),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {'-' if value is None else value}")


@app.command()
def cancel(
    topic: TopicArgument,
    message: IdArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Cancel a pending message: it will never be delivered."""
    wanted = _parse_id(message)
    ClusterClient(bootstrap).run(lambda client: _cancel(client, topic, wanted), topic)
    if json:
        print_json({"topic": topic, "cancelled": message})
    else:
        typer.echo(f"cancelled message {message} of {topic}")


async def _cancel(client: InternalClient, topic: str, message: DelayedMessageId) -> None:
    producer = IdempotentProducer(client.routes)
    try:
        await _calls(client).cancel(producer, topic, message, time.time_ns() // 1_000_000)
    except BrokerError as error:
        if error.code is not ErrorCode.invalid_record:
            raise
        raise Failure(
            f"message {message} of {topic} is not pending",
            "It is unknown, or was delivered or cancelled before. `penstock delayed list` lists pending messages.",
        ) from None
    finally:
        await producer.close()


def _page(
    bootstrap: str, topic: str, partition: int | None, after: PendingMessage | None, limit: int
) -> PendingPage:
    return ClusterClient(bootstrap).run(
        lambda client: _calls(client).page(topic, partition, after, limit), topic
    )


def _calls(client: InternalClient) -> DelayedCalls:
    return DelayedCalls(client.topics, InspectionCalls(client.routes))


def _as_json(message: PendingMessage) -> dict[str, Any]:
    return {"message": str(message.id), "due": show_time(message.due_ms), "due_ms": message.due_ms}


def _parse_id(text: str) -> DelayedMessageId:
    try:
        return DelayedMessageId.parse(text)
    except ValueError:
        raise Failure(
            f"{text!r} is not PARTITION-OFFSET",
            "Write 0-42, as `penstock delayed list` shows it.",
            code=ExitCode.USAGE,
        ) from None


def _parse_position(text: str) -> PendingMessage:
    try:
        return PendingMessage.parse_cursor(text)
    except ValueError:
        raise Failure(
            f"--after {text!r} is not a position",
            "Give the position that `penstock delayed list` printed at its end.",
            code=ExitCode.USAGE,
        ) from None
