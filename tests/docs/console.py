"""Examples in documents: ```console blocks, in which `$ ` begins a command and what follows is its output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = "..."


@dataclass(frozen=True, slots=True)
class Example:
    command: str
    expected: tuple[str, ...]

    def matches(self, output: str) -> bool:
        """Line by line without trailing blanks; `...` is anything within a line, and alone any lines."""
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


def python_blocks(document: Path) -> list[str]:
    return _PYTHON.findall(document.read_text())
