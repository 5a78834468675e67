"""Reduction of the number of partitions, for `penstock topic alter` and `penstock topic drain-status`."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import NONE, confirm, print_json, print_table, show_bytes
from penstock.clock import SystemClock
from penstock.internal_client.drain_progress import DrainProgress, GoingPartition, read_progress
from penstock.internal_client.inspection import InspectionCalls

FOLLOW_SECONDS = 1.0

CountOption = Annotated[
    int | None,
    typer.Option(min=1, help="The new number of partitions. A smaller one lets the last partitions drain."),
]
WaitForGroupsOption = Annotated[
    bool, typer.Option(help="Seal a draining partition only when its consumer groups have read it.")
]
SealNowOption = Annotated[
    bool, typer.Option("--seal-now", help="Refuse new records for the partitions to be removed.")
]
DropSealedOption = Annotated[
    bool, typer.Option("--drop-sealed", help="Delete sealed partitions before their retention has passed.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the partitions that would drain.")]
_SEALED = ("sealed", "dropping")


@dataclass(frozen=True, slots=True)
class CountOptions:
    """Options of `penstock topic alter --partitions` for a smaller number of partitions."""

    seal_now: bool
    drop_sealed: bool
    waits_for_groups: bool
    dry_run: bool

    @property
    def change(self) -> str:
        return "drop-sealed" if self.drop_sealed else "seal-now" if self.seal_now else "set"

    @property
    def is_given(self) -> bool:
        return self.seal_now or self.drop_sealed or self.dry_run or not self.waits_for_groups


def change_count(
    cluster: ClusterClient, topic: str, count: int | None, options: CountOptions, *, yes: bool
) -> None:
    """Add or remove partitions."""
    present = len(cluster.topic(topic).partitions)
    if count is not None and count > present:
        if options.is_given:
            raise Failure(
                f"{topic} has only {present} partitions, so {count} would not remove any",
                "--seal-now, --drop-sealed, --no-wait-for-groups and --dry-run need a smaller number.",
                code=ExitCode.USAGE,
            )
        cluster.run(lambda client: client.topics.set_partitions(topic, count), topic)
        return
    if options.seal_now or options.drop_sealed:
        wanted = 0 if options.drop_sealed else count or 0
        _confirm_loss(progress_of(cluster, topic, wanted), options, yes=yes)
    cluster.run(
        lambda client: client.topics.reduce_partitions(
            topic,
            count or 0,
            options.change,
            waits_for_groups=options.waits_for_groups,
            dry_run=options.dry_run,
        ),
        topic,
    )


def _confirm_loss(progress: DrainProgress, options: CountOptions, *, yes: bool) -> None:
    if options.drop_sealed:
        sealed = [each for each in progress.going if each.phase in _SEALED]
        records = sum(each.records or 0 for each in sealed)
        question = f"Delete {len(sealed)} sealed partitions of {progress.topic} with {records:,} records?"
    else:
        writers = sorted(
            {f"{each.client_id} at {each.host}" for part in progress.going for each in part.writers}
        )
        named = ", ".join(writers) if writers else "no client that is known to write"
        question = (
            f"Refuse new records for the partitions to be removed? Records that clients have batched for them fail. "
            f"Clients that write to them: {named}."
        )
    confirm(question, yes=yes)


def show_plan(cluster: ClusterClient, topic: str, count: int, *, json: bool) -> None:
    """Show the partitions that would drain with `count` partitions: records, bytes, writers, and groups that have not
    read them.
    """
    going = progress_of(cluster, topic, count).going
    if json:
        partitions = [
            {
                "partition": each.partition,
                "records": each.records,
                "bytes": each.size_bytes,
                "writers": [asdict(writer) for writer in each.writers],
                "behind": [{"group": group, "offset": offset} for group, offset in each.behind],
            }
            for each in going
        ]
        print_json({"topic": topic, "partitions": count, "would_drain": partitions, "dry_run": True})
        return
    print_table(
        ["would drain", "records", "size", "writers", "groups behind"],
        [
            (
                each.partition,
                NONE if each.records is None else each.records,
                NONE if each.size_bytes is None else show_bytes(each.size_bytes),
                _named(each),
                ", ".join(group for group, _ in each.behind) or NONE,
            )
            for each in going
        ],
    )


def progress_of(cluster: ClusterClient, topic: str, count: int = 0) -> DrainProgress:
    """Return the draining partitions; with `count`, the partitions that would drain with this number of partitions."""
    return cluster.run(lambda client: read_progress(InspectionCalls(client.routes), topic, count), topic)


def show_progress(cluster: ClusterClient, topic: str, *, follow: bool, json: bool) -> None:
    """Show the draining partitions once, or with `follow` until all are sealed."""
    progress = progress_of(cluster, topic)
    if follow and not json:
        _follow(cluster, progress)
        return
    while follow and not progress.is_done:
        time.sleep(FOLLOW_SECONDS)
        progress = progress_of(cluster, topic)
    if json:
        print_json({**asdict(progress), "done": progress.is_done})
    elif not progress.going:
        typer.echo(f"{topic} has {progress.active} partitions; none is being removed")
    else:
        _print(progress)


def _follow(cluster: ClusterClient, progress: DrainProgress) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("sealed"))
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as bars:
        total = len(progress.going)
        bar = bars.add_task(progress.topic, total=total)
        while not progress.is_done:
            bars.update(bar, completed=total - sum(each.phase not in _SEALED for each in progress.going))
            time.sleep(FOLLOW_SECONDS)
            progress = progress_of(cluster, progress.topic)
        bars.update(bar, completed=total)
    _print(progress)


def _print(progress: DrainProgress) -> None:
    print_table(
        ["partition", "phase", "records", "size", "waits for", "writers"],
        [_row(each) for each in progress.going],
    )


def _row(each: GoingPartition) -> tuple[object, ...]:
    size = NONE if each.size_bytes is None else show_bytes(each.size_bytes)
    records = NONE if each.records is None else each.records
    waits_for = "; ".join(each.waits_for) or NONE
    return each.partition, each.phase, records, size, waits_for, _named(each)


def _named(each: GoingPartition) -> str:
    """Format the writers of a partition."""
    now_ms = SystemClock().now_ms()
    writers = [
        f"{writer.client_id or NONE} at {writer.host} ({max(0, now_ms - writer.last_write_ms) // 1000} s ago)"
        for writer in each.writers
    ]
    return ", ".join(writers) or NONE
