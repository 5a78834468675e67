"""Examples in documents.

A ```console block has commands after `$ `, each followed by its output. The output of a ```python block is
in the
```text block after it, if there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
ANYTHING = "..."


@dataclass(frozen=True, slots=True)
class Example:
    command: str
    expected: tuple[str, ...]

    def matches(self, output: str) -> bool:
        """Compare line by line, without trailing blanks; `...` matches any text within a line, and alone any
        lines.
        """
        pattern = "".join(
            r"(?:.*\n)*" if line == ANYTHING else ".*".join(map(re.escape, line.split(ANYTHING))) + r"\n"
            for line in self.expected
        )
        lines = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        return re.fullmatch(pattern, lines) is not None


def examples(document: Path) -> list[Example]:
    found: list[Example] = []
    for block in _BLOCK.findall(document.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Example(line[2:], ()))
            else:
                found[-1] = Example(found[-1].command, (*found[-1].expected, line.rstrip()))
    return found


@dataclass(frozen=True, slots=True)
class Program:
    code: str
    output: str | None

    @property
    def is_test(self) -> bool:
        """Whether the program is a test for pytest."""
        return "def test_" in self.code


def programs(document: Path) -> list[Program]:
    return [Program(found[1], found[2]) for found in _PYTHON.finditer(document.read_text())]
