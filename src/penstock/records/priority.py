"""Priority of messages: the header `penstock-priority`, a digit from 0 to 9. Higher levels are delivered first.

A value that is not one ASCII digit, and a record without the header, is level 0: any topic may have such headers. If a
record has several of them, the last one counts.
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
