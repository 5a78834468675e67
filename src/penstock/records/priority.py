"""Priority of messages: the header `penstock-priority`, a digit from 0 to 9. Higher levels are delivered first.

The level is 0 for a record without the header, and for a value that is not one ASCII digit: records of any topic may
have a header with this name. If a record has several of these headers, the last one is used.
"""

from __future__ import annotations

from typing import Final

from penstock.records.content import Headers

PRIORITY: Final = "penstock-priority"
LEVELS: Final = 10
_DIGITS: Final = {str(level).encode(): level for level in range(LEVELS)}


def priority_of(headers: Headers) -> int:
    """Level of a record, 0 to 9."""
    for name, value in reversed(headers):
        if name == PRIORITY:
            return 0 if value is None else _DIGITS.get(value, 0)
    return 0
