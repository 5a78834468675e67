"""Columns as text, as in Spark's DDL strings: `id bigint not null, tags array<string>, at timestamp`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from penstock.declared.problems import SchemaProblem
from penstock.declared.value_types import (
    ALIASES,
    MAX_DEPTH,
    SIMPLE,
    Array,
    Decimal,
    Field,
    Map,
    Simple,
    Struct,
    ValueType,
)

T = TypeVar("T")

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|(\w+)|([<>(),:]))", re.ASCII)
_MAX_PRECISION = 38


def parse_ddl(text: str) -> tuple[Field, ...]:
    """Parse column definitions. Raises SchemaProblem."""
    return _Parser(text).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    def columns(self) -> tuple[Field, ...]:
        fields = self._fields(":", 0)
        if self._peek():
            raise SchemaProblem(f"expected a comma or the end before {self._peek()!r}")
        return fields

    def _fields(self, separator: str, depth: int) -> tuple[Field, ...]:
        fields: list[Field] = []
        while True:
            name = self._name()
            if any(each.name.lower() == name.lower() for each in fields):
                raise SchemaProblem(f"the column {name!r} is given twice")
            if self._peek() == separator:
                self._take()
            kind = self._type(depth)
            fields.append(Field(name, kind, self._is_required()))
            if self._peek() != ",":
                return tuple(fields)
            self._take()

    def _is_required(self) -> bool:
        if self._peek().lower() != "not":
            return False
        self._take()
        self._expect("null")
        return True

    def _type(self, depth: int) -> ValueType:
        if depth > MAX_DEPTH:
            raise SchemaProblem(f"types are nested more than {MAX_DEPTH} deep")
        word = self._take().lower()
        name = ALIASES.get(word, word)
        if name in SIMPLE:
            if word == "varchar":
                self._numbers()
            return Simple(name)
        if name in ("decimal", "numeric", "dec"):
            return self._decimal()
        if name == "array":
            return Array(self._inside(lambda: self._type(depth + 1)))
        if name == "map":
            return self._inside(lambda: self._map(depth))
        if name == "struct":
            return Struct(self._inside(lambda: self._fields(":", depth + 1)))
        raise SchemaProblem(
            f"unknown type {word!r}; types are {', '.join(SIMPLE)}, decimal(p,s), array<...>, map<string,...> "
            "and struct<...>"
        )

    def _inside(self, read: Callable[[], T]) -> T:
        self._expect("<")
        found = read()
        self._expect(">")
        return found

    def _map(self, depth: int) -> Map:
        if self._type(depth + 1) != Simple("string"):
            raise SchemaProblem("keys of a map are of type string")
        self._expect(",")
        return Map(self._type(depth + 1))

    def _decimal(self) -> Decimal:
        numbers = self._numbers()
        precision, scale = [*numbers, 0][:2] if numbers else (10, 0)
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise SchemaProblem(
                f"decimal({precision},{scale}): give a precision of 1 to 38 and a scale up to it"
            )
        return Decimal(precision, scale)

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        self._take()
        found = []
        while True:
            token = self._take()
            if not token.isdigit():
                raise SchemaProblem(f"expected a number before {token!r}")
            found.append(int(token))
            if self._peek() != ",":
                self._expect(")")
                return found
            self._take()

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token, re.ASCII):
            raise SchemaProblem(f"expected a column name, not {token!r}")
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token.lower() != wanted:
            raise SchemaProblem(f"expected {wanted!r}, not {token!r}")

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise SchemaProblem("the text ends in the middle of a column: give `name type, name type`")
        self._next += 1
        return token


def _tokens(text: str) -> list[str]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise SchemaProblem(f"unexpected {text[place:].strip()[:20]!r}")
        found.append(match[1] or match[2] or match[3])
        place = match.end()
    return found
