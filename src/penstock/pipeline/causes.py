"""Short reasons of errors. Errors of Spark contain stack traces of Java and of Python tasks, which are removed."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^(?:[\w.]*\.)?(\w+)(?:: (.*))?$")
_JAVA_ERROR = re.compile(r"^: (?:[\w.$]*[.$])?(\w+)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] |\s*SQLSTATE: \w+.*")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_ANSWER = re.compile(r"<Error>.*?<Code>([^<]*)</Code>\s*(?:<Message>([^<]*)</Message>)?", re.DOTALL)
_ARROW = "\u21b3"


def cause_of(error: BaseException) -> str:
    """Return the reason of an error without stack traces: the last line of the traceback of a failed task, or the
    response of an object store that refused a request.
    """
    text = str(error)
    if (answer := _store_answer(text)) is not None:
        return answer
    for line in reversed(_traceback_lines(text)):
        if found := _PYTHON_ERROR.match(line):
            return found[2] or found[1]
    if text.startswith("An error occurred while calling") and (found := _JAVA_ERROR.search(text)):
        return _CONDITION.sub("", found[2] or found[1]).strip()
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CONDITION.sub("", first).strip()


def storage_reason(error: Exception) -> str:
    """Return the reason of an error of deltalake or of its object store in one line."""
    text = _COLOUR.sub("", str(error))
    if (answer := _store_answer(text)) is not None:
        return answer
    first, *inner = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix(_ARROW).strip() for line in inner if line.startswith(_ARROW)]
    return ": ".join([first, *causes])


def _store_answer(text: str) -> str | None:
    """Response of an S3 server that refused a request; None if the text contains none."""
    found = _ANSWER.search(text)
    if found is None:
        return None
    return (
        f"the object store answered {found[1]}: {found[2]}"
        if found[2]
        else f"the object store answered {found[1]}"
    )


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
