"""Back-off after failures: one second, doubled by each consecutive failure, up to a minute."""

from __future__ import annotations

FIRST_MS, MOST_MS = 1_000, 60_000


def backoff_ms(failures: int) -> int:
    """Pause before the next attempt after this number of consecutive failures."""
    return min(MOST_MS, FIRST_MS << min(failures - 1, 16)) if failures else 0
