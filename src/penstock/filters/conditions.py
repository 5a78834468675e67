"""Conditions: the part of CEL that is evaluated without CEL, in C or here, with the same results.

A condition compares key, value or a header with a text, or size, partition, offset or time with a number, or tests
whether a header is there; `&&`, `||` and `!` combine conditions. A result is FALSE, TRUE or FAILED, combined by CEL's
rules: `false && failed` is false and `true || failed` is true. `encode` makes the program that `_walker.select` runs:

    postfix instructions: code 1 | arguments         (numbers are big-endian, texts have a length of 4 bytes)
    0 constant: value 1       1 and     2 or     3 not     4 text: subject 1, relation 1, header name, text
    5 number: subject 1, relation 1, number 8                6 has header: name
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from struct import Struct

from penstock.filters.syntax_tree import Call, Constant, Identifier, Node, Select

FALSE, TRUE, FAILED = 0, 1, 2
MAX_DEPTH = 32
"""Depth of the stack that a program may need; a deeper expression is left to CEL."""
_REPLACEMENT = "�"
_LENGTH = Struct(">I").pack
_NUMBER = Struct(">q").pack
_LONG = range(-(2**63), 2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""First and last time of CEL, the years 1 to 9999. The time of a record outside of them fails."""


class Subject(IntEnum):
    KEY = 0
    VALUE = 1
    HEADER = 2
    SIZE = 3
    PARTITION = 4
    OFFSET = 5
    TIMESTAMP = 6


class Relation(IntEnum):
    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    AT_MOST = 3
    GREATER = 4
    AT_LEAST = 5
    STARTS_WITH = 6
    ENDS_WITH = 7
    CONTAINS = 8


@dataclass(frozen=True, slots=True)
class Fixed:
    value: bool


@dataclass(frozen=True, slots=True)
class Text:
    subject: Subject
    header: bytes
    relation: Relation
    literal: bytes


@dataclass(frozen=True, slots=True)
class Number:
    subject: Subject
    relation: Relation
    literal: int


@dataclass(frozen=True, slots=True)
class HasHeader:
    name: bytes


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class Both:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Either:
    left: Condition
    right: Condition


Condition = Fixed | Text | Number | HasHeader | Not | Both | Either

_NUMBERS = {"size": Subject.SIZE, "partition": Subject.PARTITION, "offset": Subject.OFFSET}
_RELATIONS = {
    "_==_": Relation.EQUAL,
    "_!=_": Relation.NOT_EQUAL,
    "_<_": Relation.LESS,
    "_<=_": Relation.AT_MOST,
    "_>_": Relation.GREATER,
    "_>=_": Relation.AT_LEAST,
}
_MIRRORED = {
    Relation.LESS: Relation.GREATER,
    Relation.AT_MOST: Relation.AT_LEAST,
    Relation.GREATER: Relation.LESS,
    Relation.AT_LEAST: Relation.AT_MOST,
}
_TEXT_TESTS = {
    "startsWith": Relation.STARTS_WITH,
    "endsWith": Relation.ENDS_WITH,
    "contains": Relation.CONTAINS,
}


def translate(node: Node, depth: int = 1) -> Condition | None:
    """The condition that an expression is; None if only CEL can evaluate it."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(node, Constant):
        return Fixed(node.value) if isinstance(node.value, bool) else None
    if isinstance(node, Select):
        is_header = node.is_test and node.operand == Identifier("headers")
        return HasHeader(node.field.encode()) if is_header else None
    if not isinstance(node, Call):
        return None
    if node.function in ("_&&_", "_||_", "!_"):
        return _combine(node, depth)
    if node.function in _RELATIONS and len(node.arguments) == 2:
        relation, (left, right) = _RELATIONS[node.function], node.arguments
        return _compare(left, relation, right) or _compare(right, _MIRRORED.get(relation, relation), left)
    if node.function in _TEXT_TESTS and node.target is not None and len(node.arguments) == 1:
        return _compare(node.target, _TEXT_TESTS[node.function], node.arguments[0])
    if node.function == "@in" and len(node.arguments) == 2 and node.arguments[1] == Identifier("headers"):
        name = _literal_text(node.arguments[0])
        return None if name is None else HasHeader(name)
    return None


def _combine(node: Call, depth: int) -> Condition | None:
    parts = [translate(argument, depth + 1) for argument in node.arguments]
    combined: Condition | None = parts[0]
    if node.function == "!_":
        return None if combined is None else Not(combined)
    for part in parts[1:]:
        if combined is None or part is None:
            return None
        combined = Both(combined, part) if node.function == "_&&_" else Either(combined, part)
    return combined


def _compare(subject: Node, relation: Relation, literal: Node) -> Condition | None:
    if isinstance(subject, Identifier) and subject.name in _NUMBERS:
        is_number = isinstance(literal, Constant) and type(literal.value) is int
        if not is_number or relation > Relation.AT_LEAST:
            return None
        assert isinstance(literal, Constant)
        assert isinstance(literal.value, int)
        return Number(_NUMBERS[subject.name], relation, literal.value)
    if subject == Identifier("timestamp"):
        time_ms = _literal_time(literal)
        return None if time_ms is None else Number(Subject.TIMESTAMP, relation, time_ms)
    text = _literal_text(literal)
    place = _text_subject(subject)
    # CEL orders texts by code points; the order of texts that are not UTF-8 would differ here.
    if text is None or place is None or Relation.LESS <= relation <= Relation.AT_LEAST:
        return None
    return Text(place[0], place[1], relation, text)


def _text_subject(node: Node) -> tuple[Subject, bytes] | None:
    if isinstance(node, Identifier) and node.name in ("key", "value"):
        return (Subject.KEY if node.name == "key" else Subject.VALUE), b""
    if isinstance(node, Select) and not node.is_test and node.operand == Identifier("headers"):
        return Subject.HEADER, node.field.encode()
    if isinstance(node, Call) and node.function == "_[_]" and node.arguments[0] == Identifier("headers"):
        name = _literal_text(node.arguments[1])
        return None if name is None else (Subject.HEADER, name)
    return None


def _literal_text(node: Node) -> bytes | None:
    """The bytes of a literal; None if it has the character that replaces bytes outside of UTF-8."""
    if not isinstance(node, Constant) or not isinstance(node.value, str) or _REPLACEMENT in node.value:
        return None
    return node.value.encode()


def _literal_time(node: Node) -> int | None:
    """Milliseconds of `timestamp("...")`; None for a time that is no whole number of them."""
    if not isinstance(node, Call) or node.function != "timestamp" or len(node.arguments) != 1:
        return None
    literal = node.arguments[0]
    if not isinstance(literal, Constant) or not isinstance(literal.value, str):
        return None
    try:
        time = datetime.strptime(literal.value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(milliseconds=1)


def encode(condition: Condition) -> bytes:
    """The program of a condition."""
    match condition:
        case Fixed(value):
            return bytes((0, value))
        case Both(left, right):
            return encode(left) + encode(right) + b"\x01"
        case Either(left, right):
            return encode(left) + encode(right) + b"\x02"
        case Not(inner):
            return encode(inner) + b"\x03"
        case Text(subject, header, relation, literal):
            texts = _LENGTH(len(header)) + header + _LENGTH(len(literal)) + literal
            return bytes((4, subject, relation)) + texts
        case Number(subject, relation, number):
            return bytes((5, subject, relation)) + _NUMBER(number)
        case HasHeader(name):
            return b"\x06" + _LENGTH(len(name)) + name


@dataclass(frozen=True, slots=True)
class Plain:
    """The parts of a record that conditions compare. A header that is repeated has its last value."""

    key: bytes
    value: bytes
    headers: dict[bytes, bytes]
    size: int
    partition: int
    offset: int
    timestamp: int


def evaluate(condition: Condition, record: Plain) -> int:
    """FALSE, TRUE or FAILED."""
    match condition:
        case Fixed(value):
            return int(value)
        case Both(left, right):
            results = evaluate(left, record), evaluate(right, record)
            return FALSE if FALSE in results else max(results)
        case Either(left, right):
            results = evaluate(left, record), evaluate(right, record)
            return TRUE if TRUE in results else max(results)
        case Not(inner):
            return (TRUE, FALSE, FAILED)[evaluate(inner, record)]
        case HasHeader(name):
            return int(name in record.headers)
        case Text(subject, header, relation, literal):
            text = _text_of(subject, header, record)
            return FAILED if text is None else int(_holds_for_text(text, relation, literal))
        case Number(subject, relation, number):
            return _compare_numbers(_number_of(subject, record), relation, number, subject)


def _text_of(subject: Subject, header: bytes, record: Plain) -> bytes | None:
    if subject is Subject.HEADER:
        return record.headers.get(header)
    return record.key if subject is Subject.KEY else record.value


def _holds_for_text(text: bytes, relation: Relation, literal: bytes) -> bool:
    match relation:
        case Relation.EQUAL:
            return text == literal
        case Relation.NOT_EQUAL:
            return text != literal
        case Relation.STARTS_WITH:
            return text.startswith(literal)
        case Relation.ENDS_WITH:
            return text.endswith(literal)
        case _:
            return literal in text


def _number_of(subject: Subject, record: Plain) -> int:
    return {
        Subject.SIZE: record.size,
        Subject.PARTITION: record.partition,
        Subject.OFFSET: record.offset,
    }.get(subject, record.timestamp)


def _compare_numbers(number: int, relation: Relation, literal: int, subject: Subject) -> int:
    if subject is Subject.TIMESTAMP and not FIRST_MS <= number <= LAST_MS:
        return FAILED
    match relation:
        case Relation.EQUAL:
            return int(number == literal)
        case Relation.NOT_EQUAL:
            return int(number != literal)
        case Relation.LESS:
            return int(number < literal)
        case Relation.AT_MOST:
            return int(number <= literal)
        case Relation.GREATER:
            return int(number > literal)
        case _:
            return int(number >= literal)
