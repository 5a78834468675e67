"""The part of `Replica` that is used by work which only a leader does, such as delayed delivery."""

from __future__ import annotations

from typing import Protocol

from penstock.model import Offset
from penstock.records.batch import BatchHeader
from penstock.replication.partition import ReplicatedPartition
from penstock.storage.log import AppendInfo, Log


class LeadingReplica(Protocol):
    log: Log
    partition: ReplicatedPartition

    @property
    def is_in_doubt(self) -> bool: ...

    @property
    def is_under_min_insync(self) -> bool: ...

    @property
    def is_only_replica(self) -> bool: ...

    def append_delivery(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, keeps_time: bool = False
    ) -> AppendInfo: ...

    def on_unreadable(self, offset: Offset) -> None: ...
