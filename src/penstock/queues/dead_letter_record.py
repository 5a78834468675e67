"""Dead letters of a share group: the records of its dead-letter topic, made from the records that were given up. Pure.

The headers of KIP-1191 contain the place of the record; headers `penstock-dead-*` contain the reason and the time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.delay.headers import NOT_COPIED
from penstock.queues.states import DeadReason, Reason
from penstock.records.building import NewRecord
from penstock.records.content import Headers
from penstock.records.iteration import Record

DLQ_TOPIC: Final = "__dlq.errors.topic"
DLQ_PARTITION: Final = "__dlq.errors.partition"
DLQ_OFFSET: Final = "__dlq.errors.offset"
DLQ_GROUP: Final = "__dlq.errors.group"
DLQ_COUNT: Final = "__dlq.errors.delivery.count"
DLQ_MESSAGE: Final = "__dlq.errors.message"
DEAD_REASON: Final = "penstock-dead-reason"
DEAD_AT: Final = "penstock-dead-at"
DEAD_ATTEMPTS: Final = "penstock-dead-attempts"
_OWN: Final = ("__dlq.errors.", "penstock-dead-")
_NAMES: Final = {
    DeadReason.REJECTED: "rejected",
    DeadReason.ATTEMPTS: "attempts",
    DeadReason.EXPIRED: "expired",
    DeadReason.OVERFLOW: "overflow",
}
_MESSAGES: Final = {
    DeadReason.REJECTED: "Offset rejected by client.",
    DeadReason.ATTEMPTS: "Offset delivery count exceeded the threshold.",
    DeadReason.EXPIRED: "The lifetime of the record is over.",
    DeadReason.OVERFLOW: "The queue was longer than its maximum length.",
}


class Origin(NamedTuple):
    """The place of a record that gets a dead letter."""

    group: str
    topic: str
    partition: int
    offset: int


def reason_name(code: int) -> str:
    """Name of a reason in headers and metrics."""
    return _NAMES.get(DeadReason(code), "rejected") if code in set(DeadReason) else "rejected"


def dead_letter(
    origin: Origin,
    record: Record | None,
    delivery_count: int,
    reason: Reason,
    now_ms: int,
    *,
    is_copied: bool,
) -> NewRecord:
    """Make the dead letter of a record. It has only headers if the record does not exist or `is_copied` is False."""
    known = reason.code if reason.code in _MESSAGES else DeadReason.REJECTED
    own = {
        DLQ_TOPIC: origin.topic,
        DLQ_PARTITION: str(origin.partition),
        DLQ_OFFSET: str(origin.offset),
        DLQ_GROUP: origin.group,
        DLQ_COUNT: str(delivery_count),
        DLQ_MESSAGE: reason.text or _MESSAGES[DeadReason(known)],
        DEAD_REASON: reason_name(known),
        DEAD_AT: str(now_ms),
        DEAD_ATTEMPTS: str(delivery_count),
    }
    headers: Headers = tuple((name, text.encode()) for name, text in own.items())
    if record is None or not is_copied:
        return NewRecord(None, None, now_ms, headers)
    kept = tuple(each for each in record.headers if is_copied_header(each[0]))
    return NewRecord(record.key, record.value, now_ms, (*kept, *headers))


def is_copied_header(name: str) -> bool:
    """True if a header of a record is copied to its dead letter, and back if the dead letter is redriven."""
    return not name.startswith(_OWN) and name not in NOT_COPIED
