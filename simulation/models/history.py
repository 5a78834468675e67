"""The requests that clients sent, and the responses: the facts by which the models judge a broker.

Every record has a unique value that says where it was sent, so that each record can be traced to the one
write that may have stored it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from simulation.models.invariants import Invariant

FILLING = b" | "
"""The separator behind the readable part of a value."""


class InvariantViolated(Exception):
    """A broker broke a promise; `invariant` names the check that found it."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = Invariant(invariant)


class DamagedBatch(InvariantViolated):
    """A fetched batch has a wrong CRC; a consumer that checks it takes no record of the batch."""


class Outcome(Enum):
    PENDING = "pending"
    OK = "ok"
    FAIL = "fail"
    """The request certainly had no effect."""
    UNKNOWN = "unknown"
    """The request may have had its effect, may still have it, or not."""


@dataclass(slots=True, eq=False)
class Write:
    """One batch that was sent to a partition."""

    values: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    timestamps: tuple[int, ...]
    """Empty where the broker sets the timestamps."""
    lane: str
    """The idempotent session or connection whose batches must be stored in the order in which they were sent."""
    order: int
    acks: int
    weak_changes: int
    """The number of changes of the topic's durability before the write was first sent."""
    outcome: Outcome = Outcome.PENDING

    def __str__(self) -> str:
        origin = f"{self.lane}, number {self.order}, acks {self.acks}"
        return f"{label(self.values[0])} ({origin}, {self.outcome.value})"


def label(value: bytes) -> str:
    """Return the readable part of a value."""
    return value.partition(FILLING)[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ReadRecord:
    offset: int
    timestamp: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The result of one fetch: the records, and the offset up to which there are no others."""

    start: int
    end: int
    records: tuple[ReadRecord, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """A whole partition, read after a restart before clients are let in."""

    log_start: int
    log_end: int
    records: tuple[ReadRecord, ...]
