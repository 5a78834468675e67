"""Description of share groups for the command line: members, and for each partition start offset, lag and locks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.output import NONE, print_table
from penstock.internal_client.client import InternalClient
from penstock.internal_client.share_groups import SHARE, ShareGroupDetails
from penstock.wire.share_status import ShareStatus


@dataclass(frozen=True, slots=True)
class SharePartitionReport:
    topic: str
    partition: int
    start_offset: int | None
    lag: int | None
    in_flight: int
    waiting: int
    """Number of records that wait for redelivery."""
    oldest_lock_ms: int | None


@dataclass(frozen=True, slots=True)
class ShareGroupReport:
    details: ShareGroupDetails
    partitions: tuple[SharePartitionReport, ...]

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.partitions})

    @property
    def state(self) -> str:
        return self.details.state.lower()

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.details.id,
            "type": SHARE,
            "state": self.state,
            "lag": self.lag,
            "members": [
                {"member_id": each.id, "client_id": each.client_id, "host": each.host}
                for each in self.details.members
            ],
            "partitions": [asdict(each) for each in self.partitions],
        }


def share_group_ids(cluster: ClusterClient) -> list[str]:
    """Return the ids of all share groups, sorted."""
    listed = cluster.run(lambda client: client.groups.all(), "the groups")
    return [each.id for each in listed if each.type == SHARE]


def describe_share_groups(cluster: ClusterClient, groups: Sequence[str]) -> list[ShareGroupReport]:
    async def describe(client: InternalClient) -> list[ShareGroupReport]:
        return [
            _report(await client.share_groups.describe(group), await client.share_groups.status(group))
            for group in groups
        ]

    return cluster.run(describe, "the share groups") if groups else []


def _report(details: ShareGroupDetails, served: Sequence[ShareStatus]) -> ShareGroupReport:
    status = {(each.topic, each.partition): each for each in served}
    partitions = []
    for offset in sorted(details.offsets, key=lambda each: (each.topic, each.partition)):
        known = status.get((offset.topic, offset.partition))
        oldest_ms = None if known is None or known.oldest_lock_ms < 0 else known.oldest_lock_ms
        partitions.append(
            SharePartitionReport(
                offset.topic,
                offset.partition,
                offset.start_offset,
                offset.lag,
                0 if known is None else known.in_flight,
                0 if known is None else known.waiting,
                oldest_ms,
            )
        )
    return ShareGroupReport(details, tuple(partitions))


def print_share_group(report: ShareGroupReport) -> None:
    typer.echo(f"{report.details.id}  {SHARE}, {report.state}, lag {report.lag:,}")
    if report.details.members:
        typer.echo()
        rows = [(each.id, each.client_id, each.host, len(each.partitions)) for each in report.details.members]
        print_table(["member", "client", "host", "partitions"], rows)
    if report.partitions:
        typer.echo()
        columns = ["topic", "partition", "start offset", "in flight", "waiting", "lag", "oldest lock"]
        print_table(columns, [_row(each) for each in report.partitions])


def _row(each: SharePartitionReport) -> tuple[object, ...]:
    start = NONE if each.start_offset is None else each.start_offset
    lag = NONE if each.lag is None else each.lag
    oldest = NONE if each.oldest_lock_ms is None else f"{each.oldest_lock_ms / 1000:.1f} s"
    return each.topic, each.partition, start, each.in_flight, each.waiting, lag, oldest
