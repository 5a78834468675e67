"""Idempotent batches that were refused with a retriable error, so that their producer sends them again.

A client pipelines requests: after a refused batch it sends further batches before it learns of the refusal. The
sequence numbers of these batches do not follow those in the log. OUT_OF_ORDER_SEQUENCE_NUMBER would be the wrong
response: librdkafka then bumps the producer epoch and sends all unacknowledged batches of all partitions again, so that
stored batches are stored twice. A log that does not know the producer would even accept the later batches, and then the
refused batch could never be stored. The later batches therefore get the error of the first refused batch.

Another gap occurs after an election: librdkafka sends a batch to the new leader while an earlier batch is still in
flight to the former leader, whose log may have lost it. Until the producer has stored a batch in the new leader epoch,
the response to a batch after such a gap is NOT_LEADER_OR_FOLLOWER, for `FORMER_LEADER_SECONDS` (see
`Admission.check_overtaking`).

One instance serves all partitions of a broker, including partitions that it does not lead or does not know yet: a batch
may be refused before the broker becomes the leader, and the next batch arrives afterwards. Runs of refused sequence
numbers are kept for `REMEMBERED_SECONDS`, at most `MAX_RUNS`; without a run only the check of the log applies. Loop
thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.clock import Clock
from penstock.cluster.topics import MAX_NAME_LENGTH
from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    MAX_SEQUENCE,
    BatchHeader,
    read_header,
)
from penstock.storage.producer_state import ProducerEntry

MAX_RUNS = 20_000
REMEMBERED_SECONDS = 60.0
"""Time in seconds that a run is kept. It is longer than a client waits before a retry; a client that gives up bumps its
epoch.
"""

FORMER_LEADER_SECONDS = 60.0
"""Time in seconds after an election during which a missing batch may be in flight to the former leader. It is the time
that a client waits for a response.
"""

PartitionKey = tuple[str | UUID, int]
"""Topic and partition as in a request: the name of the topic or, from Produce version 13 on, its id."""


@dataclass(slots=True)
class _Run:
    """Consecutive refused sequences of one producer epoch."""

    epoch: int
    first: int
    next: int
    """Sequence number after the last one of the run."""
    code: ErrorCode
    until: float


class RefusedBatches:
    __slots__ = ("_clock", "runs")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.runs: dict[tuple[PartitionKey, int], _Run] = {}
        """Runs by partition and producer id, in the order of their expiry."""

    def __len__(self) -> int:
        return len(self.runs)

    def now(self) -> float:
        """Monotonic time in seconds."""
        return self._clock.monotonic()

    def on_refusal(self, partition: PartitionKey, records: memoryview, code: ErrorCode) -> None:
        """Record a refused batch if the error means that it was not stored and that its producer sends it again."""
        if (
            code.retriable
            and code is not ErrorCode.not_enough_replicas_after_append
            and len(records) >= HEADER_SIZE
            and records[MAGIC_POSITION] == MAGIC
        ):
            self.remember(partition, read_header(records), code)

    def remember(self, partition: PartitionKey, header: BatchHeader, code: ErrorCode) -> None:
        """Record a batch that was refused with this error and was not stored."""
        if header.producer_id < 0 or header.base_sequence < 0 or not _may_exist(partition[0]):
            return
        now = self._clock.monotonic()
        key = partition, header.producer_id
        run = self.runs.get(key)
        behind = _after(header.last_sequence)
        if run is not None and run.epoch > header.producer_epoch:
            return
        if run is None or run.epoch < header.producer_epoch or run.until < now:
            run = _Run(header.producer_epoch, header.base_sequence, behind, code, 0.0)
        elif header.base_sequence == run.first:
            run.code = code
        elif header.base_sequence == run.next:
            run.next = behind
        elif _is_within(run.first, header.base_sequence, run.next):
            return  # `until` stays, so that a client that never resends the first batch does not prolong the run
        else:
            end = run.next if behind == run.first else behind
            run = _Run(header.producer_epoch, header.base_sequence, end, code, 0.0)
        run.until = now + REMEMBERED_SECONDS
        self.runs.pop(key, None)
        self._make_room(now)
        self.runs[key] = run

    def cause(self, header: BatchHeader, *partitions: PartitionKey) -> BrokerError | None:
        """Error for a batch that must not be stored before an earlier refused batch; None if it may be stored."""
        for partition in partitions:
            run = self.runs.get((partition, header.producer_id))
            if (
                run is not None
                and run.epoch == header.producer_epoch
                and run.first != header.base_sequence
                and (
                    header.base_sequence == run.next or _is_within(run.first, header.base_sequence, run.next)
                )
                and run.until >= self._clock.monotonic()
            ):
                self.remember(partition, header, run.code)
                return BrokerError(
                    run.code,
                    f"sequence {run.first} of producer {header.producer_id} was refused before with "
                    f"{run.code.name}: send it first",
                )
        return None

    def on_append(self, header: BatchHeader, *partitions: PartitionKey) -> None:
        """Forget runs that are obsolete, because this batch of the producer was stored or is a duplicate."""
        for partition in partitions:
            run = self.runs.get((partition, header.producer_id))
            if run is not None and (
                header.producer_epoch > run.epoch
                or (header.producer_epoch == run.epoch and _is_at_or_after(run.first, header.base_sequence))
            ):
                del self.runs[partition, header.producer_id]

    def on_epoch_end(self, producer_id: int, below: int, *partitions: PartitionKey) -> None:
        """Forget runs of producer epochs below `below`, because a marker has ended their transactions."""
        for partition in partitions:
            run = self.runs.get((partition, producer_id))
            if run is not None and run.epoch < below:
                del self.runs[partition, producer_id]

    def _make_room(self, now: float) -> None:
        """Drop expired or surplus runs: at most two for each new run, to bound the time of a request."""
        for _ in range(2):
            if not self.runs:
                return
            oldest = next(iter(self.runs))
            if len(self.runs) < MAX_RUNS and self.runs[oldest].until >= now:
                return
            del self.runs[oldest]


def is_missing_batch(header: BatchHeader, entry: ProducerEntry | None) -> bool:
    """True if batches are missing between the last stored batch of a producer and this batch.

    `entry` is the state of the producer in the log; None if the log does not know the producer.
    """
    expected = 0
    if entry is not None and entry.batches and entry.epoch == header.producer_epoch:
        expected = _after(entry.batches[-1].last_sequence)
    return expected != header.base_sequence and _is_at_or_after(expected, header.base_sequence)


def _may_exist(topic: str | UUID) -> bool:
    """True if a topic can have this name. Other names are not recorded, to save memory."""
    return isinstance(topic, UUID) or len(topic) <= MAX_NAME_LENGTH


def _after(sequence: int) -> int:
    """The next sequence number; after 2^31 - 1 comes 0."""
    return (sequence + 1) & MAX_SEQUENCE


def _is_within(first: int, sequence: int, end: int) -> bool:
    return (sequence - first) & MAX_SEQUENCE < (end - first) & MAX_SEQUENCE


def _is_at_or_after(first: int, sequence: int) -> bool:
    """True if `sequence` is at or after `first`, assuming that they are less than half of the range apart."""
    return (sequence - first) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
