"""Option types: parse and format the value of an option, one small class for each type.

`parse` raises ValueError for invalid text. `expected` completes the sentence "give ..." in error messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Generic, Protocol, TypeVar

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Kind(IntEnum):
    """Kafka's codes for option types in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ValueType(Protocol[T]):
    @property
    def kind(self) -> Kind: ...

    @property
    def expected(self) -> str: ...

    def parse(self, text: str) -> T: ...

    def format(self, value: T) -> str: ...


@dataclass(frozen=True, slots=True)
class Integer:
    at_least: int = 0
    at_most: int = LONG_MAX

    @property
    def kind(self) -> Kind:
        return Kind.LONG if self.at_most > INT_MAX else Kind.INT

    @property
    def expected(self) -> str:
        if self.at_most in (INT_MAX, LONG_MAX):
            return f"a whole number, {self.at_least} or more"
        return f"a whole number from {self.at_least} to {self.at_most}"

    def parse(self, text: str) -> int:
        value = int(text)
        if not self.at_least <= value <= self.at_most:
            raise ValueError(text)
        return value

    def format(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Fraction:
    """Number from 0 to `at_most`."""

    at_most: float = 1.0

    @property
    def kind(self) -> Kind:
        return Kind.DOUBLE

    @property
    def expected(self) -> str:
        return f"a number from 0 to {self.at_most:g}"

    def parse(self, text: str) -> float:
        value = float(text)
        if not 0 <= value <= self.at_most:
            raise ValueError(text)
        return value

    def format(self, value: float) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Boolean:
    @property
    def kind(self) -> Kind:
        return Kind.BOOLEAN

    @property
    def expected(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    def format(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Only(Generic[T]):
    """Option that has several values in Kafka and a single value here.

    `alternative` is a clause for the error message that says what to use instead of the other values.
    """

    type: ValueType[T]
    value: T
    alternative: str = ""

    @property
    def kind(self) -> Kind:
        return self.type.kind

    @property
    def expected(self) -> str:
        only = f"{self.format(self.value)}, which is the only choice"
        return f"{only}; {self.alternative}" if self.alternative else only

    def parse(self, text: str) -> T:
        value = self.type.parse(text)
        if value != self.value:
            raise ValueError(text)
        return value

    def format(self, value: T) -> str:
        return self.type.format(value)


@dataclass(frozen=True, slots=True)
class Text:
    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def expected(self) -> str:
        return "some text"

    def parse(self, text: str) -> str:
        if not text:
            raise ValueError(text)
        return text

    def format(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class MaybeText:
    """Text that may be empty."""

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def expected(self) -> str:
        return "some text, or nothing"

    def parse(self, text: str) -> str:
        return text

    def format(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Choice(Generic[E]):
    choices: type[E]

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def expected(self) -> str:
        return _either([str(choice) for choice in self.choices])

    def parse(self, text: str) -> E:
        return self.choices(text)

    def format(self, value: E) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class ListOf(Generic[E]):
    """One or more of the choices, separated by commas. The order is kept, because tools compare the text. Empty text is
    allowed if `may_be_empty` is set.
    """

    choices: type[E]
    may_be_empty: bool = False

    @property
    def kind(self) -> Kind:
        return Kind.LIST

    @property
    def expected(self) -> str:
        several = f"{_either([str(choice) for choice in self.choices])}, or several separated by commas"
        return f"{several}, or nothing" if self.may_be_empty else several

    def parse(self, text: str) -> tuple[E, ...]:
        if self.may_be_empty and not text.strip():
            return ()
        return tuple(dict.fromkeys(self.choices(item.strip()) for item in text.split(",")))

    def format(self, value: tuple[E, ...]) -> str:
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Optional(Generic[T]):
    """Value of another type; empty text means None."""

    inner: ValueType[T]

    @property
    def kind(self) -> Kind:
        return self.inner.kind

    @property
    def expected(self) -> str:
        return f"{self.inner.expected}, or nothing"

    def parse(self, text: str) -> T | None:
        return self.inner.parse(text) if text else None

    def format(self, value: T | None) -> str:
        return "" if value is None else self.inner.format(value)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """Text in a format that `read` parses."""

    read: Callable[[str], T]
    expected: str

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    def parse(self, text: str) -> T:
        return self.read(text)

    def format(self, value: T) -> str:
        return str(value)


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
