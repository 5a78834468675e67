"""Requests of a simulated member of a share group: fields of ShareFetch and ShareAcknowledge, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from random import Random
from typing import Any
from uuid import UUID

from penstock.queues.states import AcknowledgeType
from penstock.records.iteration import iterate, read_batches
from simulation.models.partition_history import Place

FETCH, ACKNOWLEDGE = "ShareFetch", "ShareAcknowledge"

Types = Mapping[int, AcknowledgeType]
"""The type of acknowledgement of each offset."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a fetch; zeros fetch nothing."""

    max_wait_ms: int
    max_bytes: int
    max_records: int
    batch_size: int = 10
    mode: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "max_wait": timedelta(milliseconds=self.max_wait_ms),
            "min_bytes": 1 if self.max_records else 0,
            "max_bytes": self.max_bytes,
            "max_records": self.max_records,
            "batch_size": self.batch_size,
            "share_acquire_mode": self.mode,
            "forgotten_topics_data": [],
        }


NOTHING = Limits(0, 0, 0, 0)


def acknowledgement_batches(types: Types, random: Random) -> list[dict[str, Any]]:
    """Ranges of consecutive offsets, each with one type or with one for each offset."""
    batches = []
    for _, group in groupby(enumerate(sorted(types)), lambda each: each[1] - each[0]):
        offsets = [offset for _, offset in group]
        kinds = [int(types[offset]) for offset in offsets]
        if len(set(kinds)) == 1 and random.random() < 0.5:
            kinds = kinds[:1]
        batches.append({"first_offset": offsets[0], "last_offset": offsets[-1], "acknowledge_types": kinds})
    return batches


def topics(topic_id: UUID, partitions: Mapping[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    named = [
        {"partition_index": index, "acknowledgement_batches": batches}
        for index, batches in partitions.items()
    ]
    return [{"topic_id": topic_id, "partitions": named}] if named else []


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    place: Place
    error_code: int
    acknowledge_error_code: int
    acquired: dict[int, int]
    """Delivery count of each acquired offset."""
    values: dict[int, bytes]
    """The records in the answer, acquired or not."""


def read_answer(response: Any, topic_id: UUID, name: str) -> Iterable[PartitionAnswer]:
    for topic in response.responses:
        if topic.topic_id != topic_id:
            continue
        for partition in topic.partitions:
            place = (name, partition.partition_index)
            if not hasattr(partition, "acquired_records"):
                yield PartitionAnswer(place, 0, int(partition.error_code), {}, {})
                continue
            acquired = {
                offset: each.delivery_count
                for each in partition.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            values = {
                record.offset: record.value or b""
                for header, batch in read_batches(memoryview(partition.records or b""))
                for record in iterate(batch, header)
            }
            yield PartitionAnswer(
                place, int(partition.error_code), int(partition.acknowledge_error_code), acquired, values
            )
