"""Back-off of a share group: the time until a released record is delivered again, which depends on its number of
deliveries.

The text is a list of delays, of which the last one repeats (`1000,10000,60000` or `1s,10s,1m`), or
`exponential:FIRST:MAXIMUM`, whose delay doubles with each delivery; a jitter subtracts up to a quarter, so that records
do not all return at the same time. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_DELAYS: Final = 100
"""Limit of the number of delays in a list: `share.delivery.count.limit` is at most 100."""
MAX_DELAY_MS: Final = 365 * 86_400_000
EXPONENTIAL: Final = "exponential"
EXPECTED: Final = (
    f"up to {MAX_DELAYS} delays such as 1s,10s,1m (milliseconds without a unit, up to 365d), "
    "or exponential:FIRST:MAXIMUM"
)
_DELAY = re.compile(r"(\d{1,15})(ms|s|m|h|d|w|)")
_UNIT_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SCATTER: Final = 0x9E3779B1
_PARTS: Final = 1_024


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    delays_ms: tuple[int, ...] = ()
    """Delay after each delivery in milliseconds; the last one applies to all further deliveries. Empty if records are
    available at once.
    """
    is_exponential: bool = False
    """True if `delays_ms` contains the first delay and the maximum of an exponential back-off."""
    text: str = ""

    def __str__(self) -> str:
        return self.text

    def delay_ms(self, delivery_count: int, offset: int) -> int:
        """Delay of a record after this number of deliveries, in milliseconds. The jitter of an exponential back-off is
        derived from `offset`.
        """
        if not self.delays_ms:
            return 0
        place = max(0, delivery_count - 1)
        if not self.is_exponential:
            return self.delays_ms[min(place, len(self.delays_ms) - 1)]
        first_ms, maximum_ms = self.delays_ms
        delay_ms = min(maximum_ms, first_ms << min(place, 64))
        drawn = (((offset + 1) * _SCATTER ^ delivery_count * 0x85EBCA6B) & 0xFFFFFFFF) * _SCATTER >> 7
        return delay_ms - delay_ms * (drawn % _PARTS) // (4 * _PARTS)


NO_BACKOFF: Final = RetryBackoff()


def parse_retry_backoff(text: str) -> RetryBackoff:
    """Parse a back-off. Raises ValueError if it is malformed, has too many delays, or its maximum is below its first
    delay.
    """
    stripped = text.strip()
    if not stripped:
        return NO_BACKOFF
    kind, _, rest = stripped.partition(":")
    is_exponential = kind.strip() == EXPONENTIAL
    parts = rest.split(":") if is_exponential else stripped.split(",")
    if len(parts) > MAX_DELAYS:
        raise ValueError(f"the list has {len(parts)} delays; at most {MAX_DELAYS} are allowed")
    delays = tuple(parse_delay_ms(part) for part in parts)
    if is_exponential and (len(delays) != 2 or not 0 < delays[0] <= delays[1]):
        raise ValueError(f"{text[:80]} is not exponential:FIRST:MAXIMUM, with 0 < FIRST <= MAXIMUM")
    return RetryBackoff(delays, is_exponential, stripped)


def parse_delay_ms(text: str) -> int:
    """Parse a duration such as `10s`; a number without a unit is in milliseconds. Raises ValueError for other texts."""
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a duration")
    delay_ms = int(match[1]) * _UNIT_MS[match[2]]
    if delay_ms > MAX_DELAY_MS:
        raise ValueError(f"{text[:80]!r} is longer than 365d")
    return delay_ms


def delay_text(delay_ms: int) -> str:
    """Format a delay in the largest unit that gives a whole number; `parse_delay_ms` parses the result."""
    units = sorted(((size, unit) for unit, size in _UNIT_MS.items() if unit), reverse=True)
    size, unit = next((each for each in units if delay_ms and delay_ms % each[0] == 0), (1, "ms"))
    return f"{delay_ms // size}{unit}"
