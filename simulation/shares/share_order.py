"""Order of delivery in simulated share groups: settings, contents of records, and the check of each acquisition.

With order by key no record is acquired while an earlier one of its key is unsettled, or its settlement is not durable.
With strict priorities no record is acquired while one of a higher level is available; records that are not indexed yet
count for a second.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from penstock.model import Offset
from penstock.queues.delivery_order import DeliveryOrder
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateUpdate
from penstock.records.content import Headers
from penstock.records.iteration import iterate, read_batches
from penstock.records.priority import PRIORITY, priority_of
from simulation.models.history import InvariantViolated

_READ_BYTES: Final = 1 << 24
_INDEX_MS: Final = 1_000
"""Time in milliseconds for which records wait for the index of records with a higher level."""


def draw_order(random: Random) -> dict[str, object]:
    """Settings of a group with an order, by the names of `ShareGroup.configure`."""
    return {
        "order": random.choice(("key", "key", "none")),
        "priority_enable": random.choice(("true", "false")),
        "priority_share": random.choice(("0.0", "0.0", "0.3")),
    }


def draw_content(random: Random) -> tuple[bytes | None, Headers]:
    """Key and headers of a record."""
    key = random.choice((None, b"a", b"b", b"c"))
    level = random.choice((None, None, b"5", b"9", b"high"))
    return key, () if level is None else ((PRIORITY, level),)


class DurableSettlements:
    """Settled records of a share-partition whose settlement no loss of its leader takes back."""

    def __init__(self, leader: ShareLeader, partition: SharePartition) -> None:
        self._partition = partition
        self._start = partition.start_offset
        self._settled = {
            offset
            for offset in range(self._start, partition.end_offset)
            if not partition.is_unsettled(offset)
        }
        self._update: StateUpdate | None = None
        assert leader._writer is not None
        self._take_update, self._on_written = partition.take_update, leader._writer._on_written
        partition.take_update = self._take  # type: ignore[method-assign]
        leader._writer._on_written = self._note  # type: ignore[method-assign]

    def __contains__(self, offset: int) -> bool:
        return offset < self._start or offset in self._settled

    @property
    def start_offset(self) -> int:
        """Offset below which all records are settled."""
        return self._start

    def _take(self) -> StateUpdate:
        self._update = self._take_update()
        return self._update

    def _note(self) -> None:
        if self._update is not None:
            self._start = max(self._start, self._update.start_offset)
            for each in self._update.batches:
                if each.state in (ACKNOWLEDGED, ARCHIVED):
                    self._settled.update(range(each.first_offset, each.last_offset + 1))
        self._on_written()


class OrderWatch:
    """Judges each acquisition of one share-partition, before it is made."""

    def __init__(
        self,
        leader: ShareLeader,
        partition: SharePartition,
        what: str,
        report: Callable[[InvariantViolated], None],
    ) -> None:
        """Watch a share-partition. `report` takes violations: a broker would treat an exception as its own."""
        self._report = report
        self._leader = leader
        self._partition = partition
        self._what = what
        self._order: DeliveryOrder | None = None
        self._durable = DurableSettlements(leader, partition)
        self._began = 0
        """Offset behind the records that were in flight when the present order began."""
        self._contents: dict[int, tuple[bytes | None, int]] = {}
        self._read_to = 0
        self._acquire = partition.acquire
        partition.acquire = self._judge  # type: ignore[method-assign]

    def _judge(self, *arguments: Any, **options: Any) -> Any:
        partition, order = self._partition, self._partition.order
        if order is not self._order:
            self._order, self._began = order, partition.end_offset
        taken = self._acquire(*arguments, **options)
        if order is not None and taken:
            self._read()
            mine = {offset for each in taken for offset in range(each.first_offset, each.last_offset + 1)}
            for offset in mine:
                self._check(order, offset, mine)
        return taken

    def _read(self) -> None:
        """Read the contents of the records that were appended since the last call."""
        log = self._leader.replica.log
        self._read_to = max(log.log_start_offset, self._read_to)
        while (first := self._read_to) < log.high_watermark:
            part = log.read(
                Offset(first), _READ_BYTES, below=log.high_watermark, at_least_one=True, wait=True
            ).read()
            for header, batch in read_batches(memoryview(part)):
                self._read_to = header.next_offset
                for record in () if header.is_control else iterate(batch, header):
                    self._contents[record.offset] = record.key, priority_of(record.headers)
            if self._read_to <= first:
                break

    def _check(self, order: DeliveryOrder, offset: int, mine: set[int]) -> None:
        partition = self._partition
        key, level = self._contents.get(offset, (None, 0))
        is_strict = order.wanted.levels and not partition.settings.lower_share
        first = max(self._durable.start_offset, self._leader.replica.log.log_start_offset)
        for other in range(first, self._known_end(order)):
            other_key, other_level = self._contents.get(other, (None, 0))
            if other in mine and other >= offset:
                continue
            is_earlier = other < offset and key is not None and other_key == key
            if order.wanted.keys and is_earlier and offset >= self._began and self._is_unsettled(other):
                self._report(
                    InvariantViolated("key order", f"{self._what}: {offset} before {other} of key {key!r}")
                )
            if is_strict and other_level > level and self._is_deliverable(order, other):
                self._report(
                    InvariantViolated("priority", f"{self._what}: {offset} of level {level} before {other}")
                )

    def _known_end(self, order: DeliveryOrder) -> int:
        """Offset behind the records that have to be considered: those that are indexed, or are not behind for long."""
        since_ms = self._leader._ordered._indexer._behind_since_ms
        if order.is_full or (since_ms is not None and self._leader.now_ms() - since_ms >= _INDEX_MS):
            return order.end_offset
        return max(order.end_offset, self._leader.read_limit)

    def _is_unsettled(self, offset: int) -> bool:
        """Whether the next record of the key has to wait. Settlements from before the order count as they are made."""
        if offset < self._began:
            return self._partition.is_unsettled(offset)
        return offset not in self._durable

    def _is_deliverable(self, order: DeliveryOrder, offset: int) -> bool:
        partition = self._partition
        if offset < partition.start_offset:
            return False
        if order.keys is not None and offset in order.keys.blocked:
            return False
        return (
            offset >= partition.end_offset
            or partition._ranges.all[partition._ranges.place(offset)].state == AVAILABLE
        )
