"""Reasons of errors without stack traces: errors of Spark contain those of Java and of Python tasks."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^(?:[\w.]*\.)?(\w+)(?:: (.*))?$")
_JAVA_ERROR = re.compile(r"^: (?:[\w.$]*[.$])?(\w+)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w+.*")


def cause_of(error: BaseException) -> str:
    """Return the reason of an error without stack traces: of a failed task the last line of its traceback."""
    text = str(error)
    for line in reversed(_traceback_lines(text)):
        if found := _PYTHON_ERROR.match(line):
            return found[2] or found[1]
    if text.startswith("An error occurred while calling") and (found := _JAVA_ERROR.search(text)):
        return _CONDITION.sub("", found[2] or found[1]).strip()
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CONDITION.sub("", first).strip()


def _traceback_lines(text: str) -> list[str]:
    """Return the unindented lines after the last Python traceback, up to a Java trace or section mark."""
    _, found, rest = text.rpartition("Traceback (most recent call last):")
    if not found:
        return []
    lines: list[str] = []
    for line in rest.splitlines()[1:]:
        if line.startswith(("\tat ", "===")) or (lines and not line.strip()):
            break
        if line and not line[0].isspace():
            lines.append(line)
    return lines
