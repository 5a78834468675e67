"""`penstock queue`: create, list, describe, alter, purge, peek, send, receive and delete queues."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.cli.queue_description import describe_queue, print_details
from penstock.cli.queue_order import (
    OrderOption,
    PrioritiesOption,
    PriorityOption,
    PriorityShareOption,
    order_settings,
    parse_priority,
)
from penstock.cli.queue_retention import (
    MaxLengthOption,
    MaxLengthPolicyOption,
    RetainOption,
    length_settings,
    retain_value,
)
from penstock.client.errors import ClientError
from penstock.client.queue import Queue, QueueEmpty, QueueMessage
from penstock.config.retry_backoff import parse_delay_ms, parse_retry_backoff
from penstock.internal_client.queue_contents import ROUTE_HEADER, decode_content
from penstock.internal_client.queue_views import queue_filter
from penstock.internal_client.queues import NewQueue, QueueSummary

QueueArgument = Annotated[str, typer.Argument(help="The name of the queue.")]
OfOption = Annotated[
    str | None, typer.Option("--of", metavar="TOPIC", help="Read this existing topic; by default a new one.")
]
PartitionsOption = Annotated[
    int | None, typer.Option("--partitions", "-p", min=1, help="Partitions of a new topic.")
]
ReplicationOption = Annotated[
    int | None, typer.Option("--replication-factor", "-r", min=1, help="Replication factor of a new topic.")
]
LockOption = Annotated[
    str | None, typer.Option("--lock", metavar="TIME", help="How long a received message is locked: 30s.")
]
AttemptsOption = Annotated[
    int | None,
    typer.Option("--max-attempts", min=2, max=100, help="Maximum number of deliveries of a message."),
]
BackOffOption = Annotated[
    str | None,
    typer.Option(
        "--back-off",
        metavar="DELAYS",
        help="Delays before the next delivery: 1s,10s,1m or exponential:1s:10m.",
    ),
]
DeadLetterOption = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="TOPIC",
        help="Topic for rejected messages and those without attempts left; created unless it exists.",
    ),
]
FromEndOption = Annotated[
    bool, typer.Option("--from-end", help="With --of: skip the present messages of the topic.")
]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", "-f", metavar="EXPR", help="CEL expression that selects messages of the topic."),
]
RouteOption = Annotated[
    str | None,
    typer.Option(
        "--route",
        metavar="PATTERN",
        help="Select messages by the header penstock-route: * is a word, # any number of words.",
    ),
]
MaxOption = Annotated[int, typer.Option("--max", "-n", min=1, max=1_000, help="Number of messages.")]

app = typer.Typer(help="Create queues, send to them and receive from them.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="queue")


@app.command()
def create(
    queue: QueueArgument,
    of: OfOption = None,
    filter_text: FilterOption = None,
    route: RouteOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    lock: LockOption = None,
    max_attempts: AttemptsOption = None,
    back_off: BackOffOption = None,
    dead_letter: DeadLetterOption = None,
    order: OrderOption = None,
    priorities: PrioritiesOption = None,
    priority_share: PriorityShareOption = None,
    from_end: FromEndOption = False,
    retain: RetainOption = None,
    max_length: MaxLengthOption = None,
    max_length_policy: MaxLengthPolicyOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a queue, with its own topic or for an existing topic."""
    chosen = _filter(filter_text, route)
    _check_own(of, chosen, from_end=from_end)
    settings = _settings(lock, max_attempts, back_off, dead_letter)
    settings |= order_settings(order, priorities, priority_share)
    settings |= length_settings(max_length, max_length_policy)
    kept = retain_value(retain)
    new = NewQueue(queue, of, partitions or -1, replication_factor or -1, settings, from_end, chosen, kept)
    created = ClusterClient(bootstrap).run(lambda client: client.queues.create(new), queue)
    if json:
        print_json(_shown(created))
    else:
        typer.echo(f"created queue {queue}" + (f" of topic {of}" if of else ""))


@app.command("list")
def list_queues(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the queues with their topics and settings."""
    found = ClusterClient(bootstrap).run(lambda client: client.queues.all(), "the queues")
    if json:
        print_json([_shown(each) for each in found])
    elif found:
        rows = [
            (
                each.name,
                each.sent_to,
                f"{each.lock_ms / 1000:g} s",
                each.max_attempts,
                each.back_off or NONE,
                each.dead_letter or NONE,
                each.filter or NONE,
            )
            for each in found
        ]
        print_table(["queue", "topic", "lock", "max attempts", "back-off", "dead letters", "filter"], rows)
    else:
        typer.echo("no queues; `penstock queue create NAME` creates one", err=True)


@app.command()
def describe(
    queue: QueueArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show depth, messages in flight and waiting messages for each partition of a queue."""
    details, age_ms = ClusterClient(bootstrap).run(lambda client: describe_queue(client, queue), queue)
    if json:
        print_json(
            {
                **_shown(details.summary),
                "depth": details.depth,
                "depth_is_upper_bound": details.depth_is_upper_bound,
                "in_flight": details.in_flight,
                "delayed": details.delayed,
                "archiving": details.archiving,
                "redelivered": details.redelivered,
                "dead_letters": details.dead_letters,
                "oldest_age_ms": age_ms,
                "retain": details.retain,
                "kept_by": {str(partition): reason for partition, reason in details.kept_by.items()},
                "partitions": [asdict(each) for each in details.partitions],
            }
        )
    else:
        print_details(details, age_ms)


@app.command()
def alter(
    queue: QueueArgument,
    lock: LockOption = None,
    max_attempts: AttemptsOption = None,
    back_off: BackOffOption = None,
    dead_letter: DeadLetterOption = None,
    order: OrderOption = None,
    priorities: PrioritiesOption = None,
    priority_share: PriorityShareOption = None,
    filter_text: FilterOption = None,
    route: RouteOption = None,
    retain: RetainOption = None,
    max_length: MaxLengthOption = None,
    max_length_policy: MaxLengthPolicyOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings of a queue. Consumers need not be restarted."""
    settings, chosen = _settings(lock, max_attempts, back_off, dead_letter), _filter(filter_text, route)
    settings |= order_settings(order, priorities, priority_share)
    settings |= length_settings(max_length, max_length_policy)
    kept = retain_value(retain)
    if not (settings or chosen or kept):
        raise Failure(
            "no setting is given",
            "Give --lock, --order or another one; `penstock queue alter --help` lists them.",
            code=ExitCode.USAGE,
        )
    ClusterClient(bootstrap).run(lambda client: client.queues.alter(queue, settings, chosen, kept), queue)
    typer.echo(f"changed queue {queue}")


@app.command()
def purge(
    queue: QueueArgument, yes: YesOption = False, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP
) -> None:
    """Settle all messages of a queue without delivering them. Other queues of the topic keep their messages."""
    confirm(f"Purge queue {queue}?", yes=yes)
    count = ClusterClient(bootstrap).run(lambda client: client.queues.purge(queue), queue)
    typer.echo(f"purged {count:,} messages of {queue}")


@app.command()
def delete(
    queue: QueueArgument,
    keep_topic: Annotated[bool, typer.Option("--keep-topic", help="Keep the topic of the queue.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete a queue, and its topic if the topic has the name of the queue."""
    confirm(f"Delete queue {queue}?", yes=yes)
    ClusterClient(bootstrap).run(lambda client: client.queues.delete(queue, keeps_topic=keep_topic), queue)
    typer.echo(f"deleted queue {queue}")


@app.command()
def peek(
    queue: QueueArgument,
    max_messages: MaxOption = 10,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Show the oldest messages that are not settled, without locking them."""

    async def look(client: Any) -> Any:
        topic = (await client.queues.get(queue)).topic
        return await client.queue_messages.peek(queue, topic, max_messages)

    for each in ClusterClient(bootstrap).run(look, queue):
        value = decode_content(each.record.value, each.record.headers)
        _print_message(value, each.record.key, each.attempt, None, json=json)


@app.command()
def send(
    queue: QueueArgument,
    values: Annotated[
        list[str] | None, typer.Argument(help="The messages; lines of standard input unless given.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of the messages.")] = None,
    priority: PriorityOption = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="Deliver the messages after this time: 10m.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="The messages expire after this time: 1h.")
    ] = None,
    route: Annotated[
        str | None, typer.Option("--route", metavar="WORDS", help="Header penstock-route: invoice.paid.eu.")
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json-value", help="The messages are JSON; they are received as JSON.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Send messages to a queue."""
    ClusterClient(bootstrap)
    level = parse_priority(priority)
    delay_s, ttl_s = _seconds("--delay", delay), _seconds("--ttl", ttl)
    headers = None if route is None else {ROUTE_HEADER: route}
    texts = values if values else (line.rstrip("\n") for line in sys.stdin)
    with _reported(), Queue(queue, bootstrap=bootstrap) as opened:
        count = 0
        for text in texts:
            value = _parse_json(text) if is_json else text
            opened.send(value, key=key, delay_s=delay_s, ttl_s=ttl_s, priority=level, headers=headers)
            count += 1
    typer.echo(f"sent {count:,} {'message' if count == 1 else 'messages'} to {queue}", err=True)


@app.command()
def receive(
    queue: QueueArgument,
    max_messages: MaxOption = 1,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for a message.")] = 0,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Receive messages, print them and accept them."""
    ClusterClient(bootstrap)
    with _reported(), Queue(queue, bootstrap=bootstrap) as opened:
        for number in range(max_messages):
            try:
                message = opened.receive(wait_s=wait if number == 0 else 0)
            except QueueEmpty:
                if number == 0:
                    raise Failure(f"{queue} has no message that can be received now") from None
                break
            with message:
                _print_received(message, json=json)


@contextmanager
def _reported() -> Iterator[None]:
    """Convert errors of the client to Failures."""
    try:
        yield
    except ClientError as error:
        raise Failure(str(error)) from None


def _settings(
    lock: str | None, max_attempts: int | None, back_off: str | None, dead_letter: str | None
) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        if lock is not None:
            found["lock_ms"] = str(parse_delay_ms(lock))
        if dead_letter is not None:
            found["dead_letter"] = dead_letter
        if max_attempts is not None:
            found["max_attempts"] = str(max_attempts)
        if back_off is not None:
            found["back_off"] = str(parse_retry_backoff(back_off))
    except ValueError as error:
        raise Failure(str(error), "Write times as 500ms, 30s, 10m, 2h or 1d.", code=ExitCode.USAGE) from None
    return found


def _seconds(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else parse_delay_ms(text) / 1000
    except ValueError as error:
        raise Failure(
            f"{option}: {error}", "Write times as 500ms, 30s, 10m, 2h or 1d.", code=ExitCode.USAGE
        ) from None


def _filter(filter_text: str | None, route: str | None) -> str:
    """Return the filter of a queue; empty if there is none."""
    if filter_text is not None and not filter_text.strip():
        raise Failure("the filter is empty", "Omit --filter to read all messages.", code=ExitCode.USAGE)
    return queue_filter(filter_text, route)


def _check_own(of: str | None, chosen: str, *, from_end: bool) -> None:
    """Raise Failure for options that need an existing topic, if the queue has its own topic."""
    if of is None and from_end:
        raise Failure("--from-end needs --of: a new topic has no messages", code=ExitCode.USAGE)
    if of is None and chosen:
        raise Failure(
            "--filter and --route need --of",
            "Name the topic to select messages from.",
            code=ExitCode.USAGE,
        )


def _parse_json(text: str) -> Any:
    try:
        return json_module.loads(text)
    except ValueError as error:
        raise Failure(f"{text[:80]!r} is not JSON: {error}", code=ExitCode.USAGE) from None


def _shown(queue: QueueSummary) -> dict[str, Any]:
    shown = asdict(queue)
    shown["lock_s"] = shown.pop("lock_ms") / 1000
    return shown


def _print_received(message: QueueMessage, *, json: bool) -> None:
    _print_message(message.value, message.key, message.attempt, message.receipt, json=json)


def _print_message(value: Any, key: bytes | None, attempt: int, receipt: str | None, *, json: bool) -> None:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if json:
        shown = {"value": text, "key": None if key is None else key.decode(errors="replace")}
        shown |= {"attempt": attempt} | ({} if receipt is None else {"receipt": receipt})
        typer.echo(json_module.dumps(shown, ensure_ascii=False))
    else:
        typer.echo(text if isinstance(text, str) else json_module.dumps(text, ensure_ascii=False))
