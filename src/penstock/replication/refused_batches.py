"""Idempotent batches that were refused with a retriable error, so that their producer sends them again.

A client pipelines: the next batches of its producer follow a refused one before the client knows of the
refusal. Their sequences do not follow the log's. OUT_OF_ORDER_SEQUENCE_NUMBER would be the wrong response:
librdkafka then takes a new producer epoch and sends all unacknowledged batches of all partitions again,
and stored batches are stored twice. A log that does not know the producer would even accept them, and the
refused batch could never follow. Such batches get the error of the first refused one.

Another gap comes with a new leader: librdkafka sends the next batch to it while an earlier one is still in flight to
the former leader, whose log may have lost it. Until the producer has stored a batch in the new leader's epoch, such a
gap gets NOT_LEADER_OR_FOLLOWER for `FORMER_LEADER_SECONDS` (see `Admission.check_overtaking`).

One instance serves all partitions of a broker, also those that it does not lead or does not know yet: a
batch may be refused before the broker becomes the leader, and the next one arrive afterwards. Runs of
refused sequences are kept for `REMEMBERED_SECONDS` and in a bounded number; after that the log's own check
decides. Loop thread only.
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
"""Time in seconds that a run is kept: longer than a client waits before a retry. A client that gives up takes
a new epoch.
"""

FORMER_LEADER_SECONDS = 60.0
"""Time in seconds after an election in which a batch may be missing because it was sent to the former leader: as
long as a client waits for the response to a request.
"""

PartitionKey = tuple[str | UUID, int]
"""Topic and partition as a request names them: by the topic's name or, from Produce version 13 on, by its id."""


@dataclass(slots=True)
class _Run:
    """Consecutive refused sequences of one producer epoch."""

    epoch: int
    first: int
    next: int
    """Sequence behind the run."""
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
        """Remember a refused batch when its producer sends it again after this error and it was not stored."""
        if (
            code.retriable
            and code is not ErrorCode.not_enough_replicas_after_append
            and len(records) >= HEADER_SIZE
            and records[MAGIC_POSITION] == MAGIC
        ):
            self.remember(partition, read_header(records), code)

    def remember(self, partition: PartitionKey, header: BatchHeader, code: ErrorCode) -> None:
        """Remember a batch that was refused with this error and was not stored."""
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
            return  # a client that never sends the first one again does not prolong the run
        else:
            end = run.next if behind == run.first else behind
            run = _Run(header.producer_epoch, header.base_sequence, end, code, 0.0)
        run.until = now + REMEMBERED_SECONDS
        self.runs.pop(key, None)
        self._make_room(now)
        self.runs[key] = run

    def cause(self, header: BatchHeader, *partitions: PartitionKey) -> BrokerError | None:
        """Error for a batch that cannot be stored before an earlier refused one; None otherwise."""
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
        """Forget runs that a stored batch, or a duplicate of one, has made obsolete."""
        for partition in partitions:
            run = self.runs.get((partition, header.producer_id))
            if run is not None and (
                header.producer_epoch > run.epoch
                or (header.producer_epoch == run.epoch and _is_at_or_after(run.first, header.base_sequence))
            ):
                del self.runs[partition, header.producer_id]

    def on_epoch_end(self, producer_id: int, below: int, *partitions: PartitionKey) -> None:
        """Forget runs of producer epochs below `below`, which a marker has ended."""
        for partition in partitions:
            run = self.runs.get((partition, producer_id))
            if run is not None and run.epoch < below:
                del self.runs[partition, producer_id]

    def _make_room(self, now: float) -> None:
        """Drop expired runs; at most two for each new one, so that no request pays for many."""
        for _ in range(2):
            if not self.runs:
                return
            oldest = next(iter(self.runs))
            if len(self.runs) < MAX_RUNS and self.runs[oldest].until >= now:
                return
            del self.runs[oldest]


def is_missing_batch(header: BatchHeader, entry: ProducerEntry | None) -> bool:
    """True when batches are missing between the last one that a log has stored for a producer and this one.

    `entry` is the state of the producer; None for one that the log does not know.
    """
    expected = 0
    if entry is not None and entry.batches and entry.epoch == header.producer_epoch:
        expected = _after(entry.batches[-1].last_sequence)
    return expected != header.base_sequence and _is_at_or_after(expected, header.base_sequence)


def _may_exist(topic: str | UUID) -> bool:
    """True when a topic can have this name; longer names would only cost memory."""
    return isinstance(topic, UUID) or len(topic) <= MAX_NAME_LENGTH


def _after(sequence: int) -> int:
    """Next sequence; it wraps around at 2^31 - 1."""
    return (sequence + 1) & MAX_SEQUENCE


def _is_within(first: int, sequence: int, end: int) -> bool:
    return (sequence - first) & MAX_SEQUENCE < (end - first) & MAX_SEQUENCE


def _is_at_or_after(first: int, sequence: int) -> bool:
    """True when a sequence is at or after another one that is less than half of all sequences away."""
    return (sequence - first) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
