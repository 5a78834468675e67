"""Progress of reducing the number of partitions of a topic, combined from the reports of all brokers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from penstock.internal_client.inspection import InspectionCalls


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    client_id: str
    host: str
    principal: str
    last_write_ms: int


@dataclass(frozen=True, slots=True)
class GoingPartition:
    partition: int
    phase: str
    since_ms: int
    records: int | None
    """Number of offsets between the log start and the high watermark; None if the leader did not respond."""
    size_bytes: int | None
    waits_for: tuple[str, ...]
    writers: tuple[PartitionWriter, ...]
    behind: tuple[tuple[str, int], ...]
    """Groups whose committed offset is below the high watermark, with that offset."""


@dataclass(frozen=True, slots=True)
class DrainProgress:
    topic: str
    active: int
    going: tuple[GoingPartition, ...]

    @property
    def is_done(self) -> bool:
        """True if every partition that is being removed is sealed: it takes no records and waits for no group."""
        return all(each.phase in ("sealed", "dropping") for each in self.going)


async def read_progress(inspection: InspectionCalls, topic: str, count: int = 0) -> DrainProgress:
    """Ask every broker about the partitions of the topic that are being removed. A `count` other than 0 asks
    about the partitions that would be removed with that number of partitions.
    """
    broker_ids = await inspection.broker_ids()
    answers = await asyncio.gather(*(inspection.drain_progress(each, topic, count) for each in broker_ids))
    newest = max(answers, key=lambda answer: (len(answer["phases"]), -answer["active"]))
    phases, since_ms, active = newest["phases"], newest["since_ms"], newest["active"]
    led = {int(index): report for answer in answers for index, report in answer["led"].items()}
    groups: dict[int, list[tuple[str, int]]] = {}
    for answer in answers:
        for index, found in answer["groups"].items():
            groups.setdefault(int(index), []).extend((group, offset) for group, offset in found)
    going = [
        _going(index, phases[index], since_ms[index], led.get(index), groups.get(index, []))
        for index in range(count or active, len(phases))
    ]
    return DrainProgress(topic, active, tuple(going))


def _going(
    index: int, phase: str, since_ms: int, report: Any, groups: list[tuple[str, int]]
) -> GoingPartition:
    if report is None:
        return GoingPartition(index, phase, since_ms, None, None, (), (), ())
    end = report["high_watermark"]
    writers = (PartitionWriter(client_id, host, who, ms) for who, client_id, host, ms in report["writers"])
    return GoingPartition(
        index,
        phase,
        since_ms,
        end - report["log_start_offset"],
        report["bytes"],
        tuple(report["waits_for"]),
        tuple(writers),
        tuple(sorted((group, offset) for group, offset in groups if offset < end)),
    )
