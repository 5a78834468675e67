"""`penstock dead-letters`: list, show, redrive and purge the dead letters of a queue, or of a consumer group with
retries.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json, print_table
from penstock.cli.times import parse_time_ms, show_time
from penstock.clock import SystemClock
from penstock.errors import ConfigError
from penstock.filters.expression import check_expression
from penstock.internal_client.client import InternalClient
from penstock.internal_client.dead_letters import DeadLetter, Selection
from penstock.internal_client.queue_contents import decode_content

ORIGIN = "origin"
QueueArgument = Annotated[str, typer.Argument(help="The queue, or a consumer group with a retry policy.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", metavar="EXPR", help="A CEL expression, as in the filter of a view.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Dead letters since 2026-03-01T12:00:00Z, or 2h ago."),
]

app = typer.Typer(help="Inspect and redrive dead letters of queues and retries.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="dead-letters")


@app.command("list")
def list_letters(
    queue: QueueArgument,
    expression: FilterOption = None,
    since: SinceOption = None,
    max_letters: Annotated[int, typer.Option("--max", "-n", min=1, help="Number of dead letters.")] = 100,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """List the dead letters that have not been redriven or purged."""
    found = _find(ClusterClient(bootstrap), queue, _selection(expression, since, max_letters))
    if json:
        print_json([_shown(each) for each in found])
    elif found:
        rows = [
            (each.id, show_time(each.record.timestamp), each.reason, each.attempts, each.origin, each.detail)
            for each in found
        ]
        print_table(["id", "time", "reason", "attempts", "origin", "detail"], rows)
    else:
        typer.echo(f"{queue} has no dead letters", err=True)


@app.command()
def show(
    queue: QueueArgument,
    letter: Annotated[
        str, typer.Argument(help="The id of a dead letter, as `list` shows it: PARTITION-OFFSET.")
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Show one dead letter with its value and headers."""
    for each in _find(ClusterClient(bootstrap), queue, Selection()):
        if each.id == letter:
            print_json(_shown(each))
            return
    raise Failure(f"{queue} has no dead letter {letter!r}", "`penstock dead-letters list` shows their ids.")


@app.command()
def redrive(
    queue: QueueArgument,
    expression: FilterOption = None,
    since: SinceOption = None,
    to: Annotated[str, typer.Option("--to", metavar="origin|TOPIC", help="Their destination.")] = ORIGIN,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Dead letters per second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them without sending.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Send dead letters back to the queue, or to another topic. A repeated redrive sends nothing twice."""
    cluster, selection = ClusterClient(bootstrap), _selection(expression, since, None)
    target = None if to == ORIGIN else to
    if dry_run:
        count = len(_find(cluster, queue, selection))
    else:

        async def work(client: InternalClient) -> int:
            known = await client.dead_letters.owner(queue)
            return await client.dead_letters.redrive(
                known, selection, to=target, rate=rate, progress=_print_progress
            )

        count = cluster.run(work, queue)
    if json:
        print_json({"queue": queue, "selected" if dry_run else "redriven": count})
    else:
        typer.echo(f"{'would redrive' if dry_run else 'redrove'} {count:,} dead letters of {queue}")


@app.command()
def purge(
    queue: QueueArgument, yes: YesOption = False, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP
) -> None:
    """Purge all dead letters of a queue: they are no longer listed or redriven."""
    confirm(f"Purge the dead letters of {queue}?", yes=yes)

    async def work(client: InternalClient) -> int:
        return await client.dead_letters.purge(await client.dead_letters.owner(queue))

    count = ClusterClient(bootstrap).run(work, queue)
    typer.echo(f"purged {count:,} dead letters of {queue}")


def _find(cluster: ClusterClient, queue: str, selection: Selection) -> list[DeadLetter]:
    async def work(client: InternalClient) -> list[DeadLetter]:
        return await client.dead_letters.find(await client.dead_letters.owner(queue), selection)

    return cluster.run(work, queue)


def _selection(expression: str | None, since: str | None, max_letters: int | None) -> Selection:
    try:
        if expression is not None:
            check_expression(expression)
    except ConfigError as error:
        raise Failure(f"the filter is invalid: {error}", code=ExitCode.USAGE) from None
    since_ms = 0 if since is None else parse_time_ms(since, SystemClock().now_ms())
    return Selection(expression, since_ms, max_letters)


def _print_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\rredriven {done:,} of {total:,}", err=True, nl=done == total)


def _shown(letter: DeadLetter) -> dict[str, Any]:
    value = decode_content(letter.record.value, letter.record.headers)
    key = letter.record.key
    return {
        "id": letter.id,
        "value": value.decode(errors="replace") if isinstance(value, bytes) else value,
        "key": None if key is None else key.decode(errors="replace"),
        "reason": letter.reason,
        "detail": letter.detail,
        "attempts": letter.attempts,
        "origin": letter.origin,
        "headers": dict(letter.headers),
    }
