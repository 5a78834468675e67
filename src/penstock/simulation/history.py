"""What clients sent and what they were told about it: the facts the model judges a broker by.

Every record's value is unique and says where it was sent, so that whatever a reader finds can be traced to
the one write that may have put it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.simulation.invariants import Invariant

FILLING = b" | "
"""Where the readable part of a value ends."""


class InvariantViolated(Exception):
    """A broker broke a promise; `invariant` is the name of the check that found it."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = Invariant(invariant)


class DamagedBatch(InvariantViolated):
    """A reader was given a batch whose CRC does not match; a consumer that checks it takes nothing of the batch."""


class Outcome(Enum):
    PENDING = "pending"
    OK = "ok"
    FAIL = "fail"
    """It certainly did not happen."""
    UNKNOWN = "unknown"
    """It may have happened, may yet happen, or not."""


@dataclass(slots=True, eq=False)
class Write:
    """One batch on its way into a partition."""

    values: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    timestamps: tuple[int, ...]
    """Empty where the broker sets the time."""
    lane: str
    """Batches of one lane, an idempotent producer's session or a connection, are stored as they were sent."""
    order: int
    acks: int
    weak_changes: int
    """How often the topic's promise had changed when the write was first sent."""
    outcome: Outcome = Outcome.PENDING

    def __str__(self) -> str:
        origin = f"{self.lane}, number {self.order}, acks {self.acks}"
        return f"{label(self.values[0])} ({origin}, {self.outcome.value})"


def label(value: bytes) -> str:
    """The part of a value that says what it is; the rest is filling."""
    return value.partition(FILLING)[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ReadRecord:
    offset: int
    timestamp: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What one fetch showed: the records, and up to where there are no others."""

    start: int
    end: int
    records: tuple[ReadRecord, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """A whole partition, read after a restart before anybody else was let in."""

    log_start: int
    log_end: int
    records: tuple[ReadRecord, ...]
