"""Options of `penstock queue` for priorities and for order by key."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.config import SHARE_PRIORITY_SHARE
from penstock.internal_client.queues import QueueSummary


class Order(StrEnum):
    KEY = "key"
    NONE = "none"


OrderOption = Annotated[
    Order | None,
    typer.Option("--order", help="key: a message only after all earlier ones of its key are settled."),
]
PrioritiesOption = Annotated[
    bool | None,
    typer.Option("--priorities/--no-priorities", help="Deliver messages of a higher priority first."),
]
PriorityShareOption = Annotated[
    str | None,
    typer.Option(
        "--priority-share", metavar="SHARE", help="Share of deliveries for lower priorities: 0 to 0.5."
    ),
]
PriorityOption = Annotated[
    str | None, typer.Option("--priority", metavar="LEVEL", help="Priority of the messages, 0 to 9.")
]


def order_settings(order: Order | None, priorities: bool | None, share: str | None) -> dict[str, str]:
    """Return the given settings of a queue, by their names in `internal_client.queues.SETTINGS`."""
    found: dict[str, str] = {}
    if order is not None:
        found["order"] = order.value
    if priorities is not None:
        found["priorities"] = "true" if priorities else "false"
    if share is not None:
        try:
            found["priority_share"] = str(SHARE_PRIORITY_SHARE.type.parse(share))
        except ValueError:
            raise Failure(
                f"{share[:80]!r} is not {SHARE_PRIORITY_SHARE.type.expected}",
                "Give a tenth of the deliveries to lower priorities with 0.1.",
                code=ExitCode.USAGE,
            ) from None
    return found


def parse_priority(text: str | None) -> int | None:
    if text is not None and (len(text) != 1 or not text.isascii() or not text.isdigit()):
        raise Failure(
            f"priority {text[:80]!r} is not a whole number from 0 to 9",
            "9 is delivered first, 0 is the default.",
            code=ExitCode.USAGE,
        )
    return None if text is None else int(text)


def show_order(queue: QueueSummary) -> str:
    """Format priorities and order for the description of a queue; empty if it has neither."""
    shown = ", order by key" if queue.order == Order.KEY else ""
    if queue.priorities:
        shown += ", priorities"
    if queue.priorities and queue.priority_share:
        shown += f" with {queue.priority_share:g} for lower ones"
    return shown
