"""Records of retry topics (`retry.group`): the leader counts the attempts and sets the delay. Pure.

A consumer that could not process a message produces it with its headers to the retry topic of the group. The header
`penstock-retry-attempts` is the number of failed attempts. Headers of an earlier delivery from the retry topic are
removed; a delay that the producer has set is kept.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from penstock.config.retry_backoff import RetryBackoff
from penstock.delay.headers import CANCEL, DELAY_MS, ORIGIN, InvalidDelay, is_hidden
from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.content import Headers
from penstock.records.expiry import read_number

RETRY_ATTEMPTS: Final = "penstock-retry-attempts"
RETRY_TOPIC: Final = "penstock-retry-topic"
RETRY_PARTITION: Final = "penstock-retry-partition"
RETRY_OFFSET: Final = "penstock-retry-offset"
RETRY_REASON: Final = "penstock-retry-reason"
RETRY_PREFIX: Final = "penstock-retry-"


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Settings of a retry topic."""

    max_attempts: int
    backoff: RetryBackoff
    dead_letter: str
    """Topic for messages that have failed `max_attempts` times; empty if there is none."""
    max_delay_ms: int

    def counted(self, headers: Headers, content: bytes, index: int) -> Headers:
        """Headers for a record that is produced to the topic: with an increased number of attempts, and a delay.

        The jitter of the delay is derived from `content`. InvalidDelay if the number of attempts is malformed;
        InvalidBatch with POLICY_VIOLATION if no attempt is left.
        """
        if any(name == CANCEL for name, _ in headers):
            return headers
        failed = failed_attempts(headers) + 1
        if failed >= self.max_attempts:
            raise InvalidBatch(ErrorCode.policy_violation, self._exhausted(failed), (index,))
        kept = tuple(each for each in headers if each[0] not in ORIGIN and each[0] != RETRY_ATTEMPTS)
        kept = (*kept, (RETRY_ATTEMPTS, str(failed).encode()))
        delay_ms = min(self.max_delay_ms, self.backoff.delay_ms(failed, zlib.crc32(content)))
        if is_hidden(kept) or not delay_ms:
            return kept
        return (*kept, (DELAY_MS, str(delay_ms).encode()))

    def _exhausted(self, failed: int) -> str:
        place = f"the dead-letter topic {self.dead_letter}" if self.dead_letter else "a dead-letter topic"
        return f"failed {failed} times, and retry.max.attempts is {self.max_attempts}: send the message to {place}"


def failed_attempts(headers: Headers) -> int:
    """Number of failed attempts in the headers of a message; InvalidDelay if the header is malformed."""
    values = [value for name, value in headers if name == RETRY_ATTEMPTS]
    if not values:
        return 0
    number = read_number(values[-1])
    if number is None or len(values) > 1:
        raise InvalidDelay(f"{RETRY_ATTEMPTS}={values[-1]!r}: give one whole number")
    return number
