"""Names of the topics of a consumer group with a retry policy. Pure; has few imports, because every consumer uses it.

The retry topic of group `billing` is `billing.retry`. Bytes of a group id that are not allowed in topic names, and
dots, which collide with underscores, are written as `-xHH`, so that topics of two groups never have the same name.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

SUFFIX: Final = ".retry"
DEAD_SUFFIX: Final = ".dead"
_MAX_NAME = 249
_DIGITS = 32
_ESCAPED = re.compile(rb"-(?=x[0-9a-f]{2})|[^a-zA-Z0-9_-]")


def retry_topic(group: str) -> str:
    """Name of the retry topic of a group."""
    return _escaped(group, SUFFIX)


def dead_letter_topic(group: str) -> str:
    """Default name of the dead-letter topic of a group."""
    return _escaped(group, DEAD_SUFFIX)


def _escaped(group: str, suffix: str) -> str:
    """Topic name for a group id. The end of a long group id is replaced by a digest of the group id."""
    name = _ESCAPED.sub(lambda found: b"-x%02x" % found[0][0], group.encode()).decode()
    longest = _MAX_NAME - len(suffix)
    if len(name) > longest:
        digest = hashlib.sha256(group.encode()).hexdigest()[:_DIGITS]
        name = f"{name[: longest - _DIGITS - 2]}-z{digest}"
    return name + suffix
