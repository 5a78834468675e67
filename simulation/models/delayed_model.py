"""The expected delivery of delayed messages: each once, not early, not after a cancellation, in the end all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from penstock.delay.headers import InvalidDelay, read_delay_headers
from penstock.records.iteration import Record
from simulation.models.history import InvariantViolated, label
from simulation.models.partition_history import Place


class Fate(Enum):
    UNKNOWN = auto()
    """The message may be stored, once."""
    STORED = auto()
    """The message is acknowledged, and its transaction is committed."""
    ABORTED = auto()
    CANCELLED = auto()
    """The cancellation of the message is acknowledged."""
    MAY_BE_CANCELLED = auto()


@dataclass(slots=True)
class DelayedMessage:
    place: Place
    delay_ms: int
    due_ms: int | None
    """Due time; None if it counts from the time at which the message is stored."""
    sent_ms: int
    fate: Fate = Fate.UNKNOWN
    offset: int | None = None
    """Offset that the producer got."""
    seen_at: int | None = None
    """Offset at which a reader has seen the message."""


class DelayedModel:
    def __init__(self, clocks: Callable[[], int]) -> None:
        """`clocks` returns the latest time that a broker's clock has shown, also between two looks."""
        self._clocks = clocks
        self.messages: dict[bytes, DelayedMessage] = {}
        self.deleted_before: dict[Place, int] = defaultdict(int)
        """The log start offset that an administrator has asked for is at most this."""
        self.retention_ms = 0
        """Age at which retention may delete a message that was delivered."""
        self.latest_ms = 0
        """Latest time that any broker's clock has shown."""
        self._skipped_at: dict[Place, int] = {}
        """Latest time of any clock when a reader last found that records were deleted before it has read them."""

    def look(self) -> None:
        """Note the time of all clocks."""
        self.latest_ms = max(self.latest_ms, self._clocks())

    def on_send(self, place: Place, value: bytes, delay_ms: int, due_ms: int | None, now_ms: int) -> None:
        self.messages[value] = DelayedMessage(place, delay_ms, due_ms, now_ms)

    def on_end(self, value: bytes, fate: Fate, offset: int | None = None) -> None:
        """Note the outcome of a send or of a cancellation."""
        message = self.messages[value]
        message.offset = message.offset if offset is None else offset
        message.fate = fate
        self._check_fate(value, message)

    def on_skip(self, place: Place) -> None:
        self.look()
        self._skipped_at[place] = self.latest_ms

    def on_seen(self, place: Place, record: Record) -> None:
        """Check a record that a reader was shown."""
        self.look()
        value = record.value or b""
        message = self.messages.get(value)
        try:
            found = read_delay_headers(record.headers)
        except InvalidDelay as error:
            raise InvariantViolated("I15", f"{place}: {record.offset}: {error}") from error
        if found.is_hidden:
            raise InvariantViolated("early", f"{place}: the hidden record {record.offset} is shown")
        if (
            message is None
            or message.place != place
            or found.origin is None
            or found.origin_timestamp is None
        ):
            raise InvariantViolated("I14", f"{place}: {record.offset} is {label(value)}")
        if message.seen_at not in (None, record.offset):
            raise InvariantViolated(
                "delivered once", f"{place}: {label(value)} is at {message.seen_at} and at {record.offset}"
            )
        if message.offset is not None and message.offset != found.origin:
            raise InvariantViolated(
                "I3", f"{place}: {label(value)} was stored at {message.offset}, not {found.origin}"
            )
        message.seen_at = record.offset
        due_ms = message.due_ms if message.due_ms is not None else found.origin_timestamp + message.delay_ms
        if record.timestamp != max(due_ms, found.origin_timestamp):
            raise InvariantViolated(
                "early", f"{place}: {label(value)} has time {record.timestamp}, due {due_ms}"
            )
        if self.latest_ms < due_ms:
            raise InvariantViolated(
                "early", f"{place}: {label(value)} is due at {due_ms}, it is {self.latest_ms}"
            )
        self._check_fate(value, message)

    def _check_fate(self, value: bytes, message: DelayedMessage) -> None:
        if message.seen_at is None:
            return
        if message.fate is Fate.ABORTED:
            raise InvariantViolated("I6", f"{message.place}: {label(value)} was aborted and is shown")
        if message.fate is Fate.CANCELLED:
            raise InvariantViolated("cancel", f"{message.place}: {label(value)} was cancelled and is shown")

    @property
    def missing(self) -> list[bytes]:
        """Stored messages that no reader has seen, and that were not deleted before one could."""
        return [
            value
            for value, message in self.messages.items()
            if message.fate is Fate.STORED and message.seen_at is None and not self._may_be_deleted(message)
        ]

    def _may_be_deleted(self, message: DelayedMessage) -> bool:
        if message.offset is not None and message.offset < self.deleted_before[message.place]:
            return True
        skipped_at = self._skipped_at.get(message.place)
        due_ms = message.sent_ms + message.delay_ms if message.due_ms is None else message.due_ms
        return skipped_at is not None and due_ms + self.retention_ms <= skipped_at
