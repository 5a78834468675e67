"""Description of a queue for `penstock queue describe`."""

from __future__ import annotations

import typer

from penstock.cli.output import NONE, print_table
from penstock.cli.queue_order import show_order
from penstock.clock import SystemClock
from penstock.internal_client.client import InternalClient
from penstock.internal_client.queues import QueueDetails


async def describe_queue(client: InternalClient, queue: str) -> tuple[QueueDetails, int | None]:
    """Describe a queue; the second result is the age of its oldest message."""
    details = await client.queues.describe(queue)
    oldest = await client.queue_messages.peek(queue, details.summary.topic, 1)
    age_ms = max(0, SystemClock().now_ms() - oldest[0].record.timestamp) if oldest else None
    return details, age_ms


def print_details(details: QueueDetails, age_ms: int | None) -> None:
    queue = details.summary
    back_off = f", back-off {queue.back_off}" if queue.back_off else ""
    back_off += f", dead letters in {queue.dead_letter}" if queue.dead_letter else ""
    depth = f"{'at most ' if details.depth_is_upper_bound and details.depth else ''}{details.depth:,}"
    typer.echo(
        f"{queue.name}  topic {queue.sent_to}, depth {depth}, in flight {details.in_flight:,}, "
        f"delayed {details.delayed:,}" + ("" if age_ms is None else f", oldest message {age_ms / 1000:.0f} s")
    )
    if queue.filter:
        typer.echo(f"filter {queue.filter}, in view {queue.topic}")
    typer.echo(
        f"lock {queue.lock_ms / 1000:g} s, at most {queue.max_attempts} attempts{back_off}{show_order(queue)}"
    )
    if details.retain:
        typer.echo(f"retain {details.retain}")
    typer.echo(_show_work(details))
    for reason in dict.fromkeys(details.kept_by.values()):
        typer.echo(f"deletion waits: {reason}")
    typer.echo()
    rows = [
        (
            each.partition,
            NONE if each.start_offset is None else each.start_offset,
            NONE if each.depth is None else each.depth,
            each.in_flight,
            each.waiting,
            each.delayed,
        )
        for each in details.partitions
    ]
    print_table(["partition", "start offset", "depth", "in flight", "released", "delayed"], rows)


def _show_work(details: QueueDetails) -> str:
    """Format the redeliveries and dead letters of a queue in one line."""
    letters = (
        ", ".join(f"{name} {count:,}" for name, count in details.dead_letters.items() if count) or "none"
    )
    waiting = f", {details.archiving:,} waiting to be written" if details.archiving else ""
    return f"since the last load: {details.redelivered:,} redeliveries, dead letters: {letters}{waiting}"
