"""Overview of the cluster: problems and the time since which they exist, rates, the greatest lags, and disk space.

It is computed from the view in short steps, once for each sample, independent of the number of clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.figures import BrokerFigures, TopicFigures
from penstock.gateway.view.sampler import Sampler
from penstock.internal_client.slices import in_slices

MAX_PROBLEMS = 20
MAX_TROUBLED = 1_000
MAX_SHOWN = 5
MIN_GROWTH_BYTES = 1.0
"""Rate of writes in bytes per second below which no time until a full disk is computed."""


@dataclass(slots=True)
class _Totals:
    partitions: int = 0
    under_replicated: int = 0
    offline: int = 0
    bytes: int = 0
    records: int = 0
    record_rate: float = 0.0
    byte_rate: float = 0.0
    copies: int = 1
    """Greatest replication factor of the topics with a rate above zero."""
    troubled: list[TopicFigures] = field(default_factory=list)
    """Topics with partitions that have no leader or are under-replicated, at most `MAX_TROUBLED`."""
    active: list[TopicFigures] = field(default_factory=list)


async def overview(sampler: Sampler) -> dict[str, Any]:
    """Return the overview of the last sample, computed at the first call after it. Concurrent callers share it."""
    if sampler.overview is None or sampler.overview_of != sampler.samples:
        sampler.overview_of = sampler.samples
        sampler.overview = asyncio.ensure_future(_computed(sampler))
    return await asyncio.shield(sampler.overview)


async def _computed(sampler: Sampler) -> dict[str, Any]:
    return _compute(sampler, await in_slices(_add_up(sampler.view)))


def _add_up(view: ClusterView) -> Generator[None, None, _Totals]:
    totals = _Totals()
    for topic in list(view.topics.values()):
        stored, _, size = view.log_totals(topic.name)
        totals.partitions += topic.partitions
        totals.under_replicated += topic.under_replicated
        totals.offline += topic.offline
        totals.records += stored
        totals.bytes += size
        if topic.health != "ok" and len(totals.troubled) < MAX_TROUBLED:
            totals.troubled.append(topic)
        if not topic.rate.is_idle:
            totals.active.append(topic)
            totals.record_rate += topic.rate.records
            totals.byte_rate += topic.rate.bytes
            totals.copies = max(totals.copies, topic.replication_factor)
        yield
    return totals


def _compute(sampler: Sampler, totals: _Totals) -> dict[str, Any]:
    view = sampler.view
    problems = _problems(view, totals, sampler)
    return {
        "topics": len(view.topics),
        "partitions": totals.partitions,
        "groups": len(view.groups),
        "bytes": totals.bytes,
        "records": totals.records,
        "record_rate": round(totals.record_rate, 3),
        "byte_rate": round(totals.byte_rate, 3),
        "under_replicated": totals.under_replicated,
        "without_leader": totals.offline,
        "status": "failing" if totals.offline else "degraded" if problems else "ok",
        "problems": problems[:MAX_PROBLEMS],
        "worst_lag": [
            {"group": group.id, "lag": group.lag, "state": group.state}
            for group in nlargest(MAX_SHOWN, view.groups.values(), key=lambda group: group.lag)
            if group.lag
        ],
        "busiest": [
            {
                "topic": topic.name,
                "record_rate": round(topic.rate.records, 3),
                "byte_rate": round(topic.rate.bytes, 3),
            }
            for topic in nlargest(MAX_SHOWN, totals.active, key=lambda topic: topic.rate.records)
        ],
        "seconds_to_full": _seconds_to_full(view, totals),
        "brokers": [show_broker(broker) for _, broker in sorted(view.brokers.items())],
    }


def _problems(view: ClusterView, totals: _Totals, sampler: Sampler) -> list[dict[str, Any]]:
    """Return the problems of the cluster, worst first, each with the time since which it exists."""
    found: list[tuple[str, str, str, int | None]] = []
    for topic in totals.troubled:
        if topic.offline:
            text = f"{topic.offline} of {topic.partitions} partitions of {topic.name} have no leader"
            found.append(("failing", f"offline {topic.name}", text, None))
    for broker in view.brokers.values():
        if broker.error:
            text = f"broker {broker.id} does not answer: {broker.error}"
            found.append(("failing", f"broker {broker.id}", text, None))
        elif broker.figures.get("disk_full"):
            text = f"the disk of broker {broker.id} is full; writes are refused"
            found.append(("failing", f"disk {broker.id}", text, None))
        for kind, partition, detail, since_ms in broker.figures.get("alarms", ()):
            text = f"{kind.replace('_', ' ')} of {partition} on broker {broker.id}: {detail}"
            found.append(("degraded", f"{kind} {partition} {broker.id}", text, since_ms))
    for topic in totals.troubled:
        if topic.under_replicated and not topic.offline:
            text = f"{topic.under_replicated} of {topic.partitions} partitions of {topic.name} are under-replicated"
            found.append(("degraded", f"under {topic.name}", text, None))
    since = sampler.note_problems([key for _, key, _, _ in found])
    return [
        {"level": level, "text": text, "since_ms": since[key] if since_ms is None else since_ms}
        for level, key, text, since_ms in found
    ]


def _seconds_to_full(view: ClusterView, totals: _Totals) -> float | None:
    """Estimate the seconds until the disk with the least free space is full; None without figures or if the rate of
    writes is below `MIN_GROWTH_BYTES`.

    The estimate assumes that writes are spread equally over all brokers, and that retention deletes nothing.
    """
    brokers = [broker for broker in view.brokers.values() if broker.figures]
    if totals.byte_rate < MIN_GROWTH_BYTES or not brokers:
        return None
    growth = totals.byte_rate * totals.copies / len(brokers)
    free_bytes: int = min(broker.figures["free_bytes"] for broker in brokers)
    return round(free_bytes / growth, 1)


def show_broker(broker: BrokerFigures) -> dict[str, Any]:
    figures = broker.figures
    return {
        "id": broker.id,
        "error": broker.error,
        "partitions": figures.get("partitions", 0),
        "connections": figures.get("connections", 0),
        "received_rate": round(broker.received_rate, 1),
        "sent_rate": round(broker.sent_rate, 1),
        "request_rate": round(broker.request_rate, 1),
        "free_bytes": figures.get("free_bytes", 0),
        "disk_full": figures.get("disk_full", False),
        "alarms": [
            {"kind": kind, "partition": partition, "detail": detail, "since_ms": since_ms}
            for kind, partition, detail, since_ms in figures.get("alarms", ())
        ],
    }
