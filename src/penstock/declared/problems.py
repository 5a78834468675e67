"""Problems of a document, each with the JSON pointer of the invalid value. A check finds all problems."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    pointer: str
    """JSON pointer (RFC 6901) of the value; empty for the whole document."""
    text: str


class SchemaProblem(PenstockError):
    """A schema of values that cannot be used. `pointer` is relative to the schema."""

    def __init__(self, text: str, pointer: str = "") -> None:
        super().__init__(text)
        self.pointer = pointer


@dataclass(slots=True)
class Problems:
    found: list[DefinitionProblem] = field(default_factory=list)

    def add(self, pointer: str, text: str) -> None:
        self.found.append(DefinitionProblem(pointer, text))

    def mapping(self, value: Any, pointer: str, known: Collection[str]) -> Mapping[str, Any]:
        """Return the entries of a mapping whose names are known; unknown names are problems. A value that is not a
        mapping is a problem, and an empty mapping is returned.
        """
        if not isinstance(value, Mapping):
            self.add(pointer, f"give a mapping with {', '.join(known)}, not {shown(value)}")
            return {}
        for name in value:
            if name not in known:
                self.add(below(pointer, name), f"unknown name {name!r}{_hint(str(name), known)}")
        return {name: each for name, each in value.items() if name in known}

    def text(self, values: Mapping[str, Any], name: str, pointer: str) -> str | None:
        """Return a non-empty text; None if it is absent. Any other value is a problem, and None is returned."""
        value = values.get(name)
        if value is None and name not in values:
            return None
        if not isinstance(value, str) or not value.strip():
            self.add(below(pointer, name), f"give a string, not {shown(value)}")
            return None
        return value


def below(pointer: str, name: object) -> str:
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


def shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else repr(value)


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known names: {', '.join(known)}"
