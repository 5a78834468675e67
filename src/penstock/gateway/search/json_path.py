"""Simple JSON paths: `$.user.id`, `$.items[0].sku`, `$['a b']`. A path has only names and indexes, so it selects one
value. Pure.
"""

from __future__ import annotations

import re
from typing import Any

MAX_STEPS = 50
_STEP = re.compile(r"\.([^.\[\]'\"]+)|\[(\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")

Step = str | int
MISSING = object()
"""Result of `find` if the document has no value at the path."""


class WrongPath(ValueError):
    """The text is not a JSON path in the supported form."""


def parse_path(text: str) -> tuple[Step, ...]:
    """Parse a path; the leading `$` may be left out."""
    rest = text[1:] if text.startswith("$") else f".{text}" if not text.startswith(("[", ".")) else text
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None or len(steps) == MAX_STEPS:
            raise WrongPath(f"{text[:80]!r} is not a path such as $.user.id or $.items[0]")
        name, index, single, double = match.groups()
        steps.append(int(index) if index is not None else name or single or double or "")
        position = match.end()
    return tuple(steps)


def find(document: Any, path: tuple[Step, ...]) -> Any:
    """Return the value at a path of a document, or MISSING."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(document, list) or step >= len(document):
                return MISSING
            document = document[step]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return MISSING
    return document
