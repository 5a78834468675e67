"""Decision by the response of a receiver: accept the message, release it, or pause the webhook. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

BACK_OFF_MS: Final = (1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000)
"""Delays after the first, second and later attempts of a message, for queues without a configured back-off."""
QUEUE_BACK_OFF: Final = -1
"""Value of `Decision.delay_ms` that means: use the back-off of the queue."""
MAX_DELAY_MS: Final = 24 * 3_600_000
FAILURES_BEFORE_HOLD: Final = 5
FIRST_HOLD_MS: Final = 250
MAX_HOLD_MS: Final = 60_000
_GONE, _TOO_MANY, _UNAVAILABLE = 410, 429, 503
_JITTER: Final = 0.2


class Action(Enum):
    ACCEPT = "accept"
    RELEASE = "release"
    PAUSE = "pause"
    """Return the message to the queue, and pause the webhook."""


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    delay_ms: int = 0
    """Delay before the next attempt of the message; QUEUE_BACK_OFF for the back-off of the queue."""
    hold_ms: int = 0
    """Time for which the webhook makes no calls at all, because the receiver asked for it."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver a message to the receiver."""

    number: int
    """Number of this attempt; the first is 1."""
    has_queue_back_off: bool
    jitter: float
    """Random number between 0 and 1 that varies the delay before the next attempt."""


def decide(status: int, retry_after_ms: int | None, attempt: Attempt) -> Decision:
    """Decide by the status of a response. `retry_after_ms` is the delay in its Retry-After header, None without one."""
    if 200 <= status < 300:
        return Decision(Action.ACCEPT)
    if status == _GONE:
        return Decision(Action.PAUSE, 0, reason="the receiver answered 410 Gone")
    reason = f"the receiver answered {status}"
    if 300 <= status < 400:
        reason += "; only redirects 307 and 308 are followed"
    delay_ms = back_off_ms(attempt)
    if retry_after_ms is None:
        return Decision(Action.RELEASE, delay_ms, reason=reason)
    asked_ms = min(max(0, retry_after_ms), MAX_DELAY_MS)
    holds = status in (_TOO_MANY, _UNAVAILABLE)
    return Decision(Action.RELEASE, max(asked_ms, delay_ms), asked_ms if holds else 0, reason)


def failed(reason: str, attempt: Attempt) -> Decision:
    """Return the decision for a call that got no response: release the message."""
    return Decision(Action.RELEASE, back_off_ms(attempt), reason=reason)


def back_off_ms(attempt: Attempt) -> int:
    if attempt.has_queue_back_off:
        return QUEUE_BACK_OFF
    base_ms = BACK_OFF_MS[min(max(1, attempt.number), len(BACK_OFF_MS)) - 1]
    return round(base_ms * (1 + _JITTER * (2 * attempt.jitter - 1)))


def hold_after(failures: int) -> int:
    """Time in milliseconds without calls after `failures` failed calls in a row.

    Without such pauses, an unreachable receiver would use up the attempts of all messages.
    """
    if failures < FAILURES_BEFORE_HOLD:
        return 0
    return min(MAX_HOLD_MS, FIRST_HOLD_MS << min(failures - FAILURES_BEFORE_HOLD, 20))


def read_retry_after(value: str, now_ms: int) -> int | None:
    """Delay in milliseconds that a Retry-After header demands, in seconds or as HTTP date. None if it is malformed."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, MAX_DELAY_MS)
    try:
        at_ms = round(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, OverflowError, TypeError):
        return None
    return max(0, at_ms - now_ms)
