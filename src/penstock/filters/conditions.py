"""Conditions: the part of CEL that is evaluated without the CEL library, in C or in Python, with the same results.

A condition compares key, value or a header with a text, or size, partition, offset or time with a number, or tests if a
header exists. `in` compares with each literal of a list; `&&`, `||` and `!` combine conditions. A result is FALSE, TRUE
or FAILED; results are combined by CEL's rules: `false && failed` is false and `true || failed` is true. `evaluating`
evaluates conditions in Python; `encode` makes the program that `_walker.choose` runs in C:

    postfix instructions: code 1 | arguments         (numbers are big-endian, texts have a length of 4 bytes)
    0 constant: value 1       1 and     2 or     3 not     4 text: subject 1, relation 1, header name, text
    5 number: subject 1, relation 1, number 8                6 has header: name
    7 JSON: kind 1, relation 1, number of names 1, names, then a text or a number 8 (none for kind 0, exists)

A condition on JSON runs only in C. Values that the C code cannot decide (`records/json_path.h`) are evaluated by CEL.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from struct import Struct

from penstock.filters.syntax_tree import Constant, FunctionCall, Identifier, Listing, Node, Select

FALSE, TRUE, FAILED = 0, 1, 2
MAX_DEPTH = 32
"""Maximum depth of the stack of a program; deeper expressions are evaluated by CEL."""
MAX_ITEMS = 100
"""Maximum length of a list after `in`; longer lists are evaluated by CEL."""
_REPLACEMENT = "�"
_LENGTH = Struct(">I").pack
_NUMBER = Struct(">q").pack
_LONG = range(-(2**63), 2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""First and last time that CEL can represent, in epoch milliseconds (years 1 to 9999). Conditions on the time of a
record outside of this range fail.
"""


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
class TextComparison:
    subject: Subject
    header: bytes
    relation: Relation
    literal: bytes


@dataclass(frozen=True, slots=True)
class NumberComparison:
    subject: Subject
    relation: Relation
    literal: int


@dataclass(frozen=True, slots=True)
class HasHeader:
    name: bytes


class JsonKind(IntEnum):
    EXISTS = 0
    TEXT = 1
    NUMBER = 2
    BOOL = 3


@dataclass(frozen=True, slots=True)
class Json:
    """Test of a field in a JSON value, which is given by a path of names."""

    path: tuple[bytes, ...]
    kind: JsonKind
    relation: Relation
    literal: bytes | int


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


Condition = Fixed | TextComparison | NumberComparison | HasHeader | Json | Not | Both | Either

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
    """Translate an expression to a condition; None if only CEL can evaluate it."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(node, Constant):
        return Fixed(node.value) if isinstance(node.value, bool) else None
    if isinstance(node, Select):
        if node.is_test and node.operand == Identifier("headers"):
            return HasHeader(node.field.encode())
        path = _json_path(Select(node.operand, node.field, is_test=False)) if node.is_test else None
        return None if path is None else Json(path, JsonKind.EXISTS, Relation.EQUAL, 0)
    if not isinstance(node, FunctionCall):
        return None
    if node.function in ("_&&_", "_||_", "!_"):
        return _combine(node, depth)
    if node.function in _RELATIONS and len(node.arguments) == 2:
        relation, (left, right) = _RELATIONS[node.function], node.arguments
        return _compare(left, relation, right) or _compare(right, _MIRRORED.get(relation, relation), left)
    if node.function in _TEXT_TESTS and node.target is not None and len(node.arguments) == 1:
        return _compare(node.target, _TEXT_TESTS[node.function], node.arguments[0])
    if node.function == "@in" and len(node.arguments) == 2:
        return _member(*node.arguments)
    return None


def _member(subject: Node, container: Node) -> Condition | None:
    """Translate `in`: `"name" in headers`, or a comparison with each literal of a list; None if not possible."""
    if container == Identifier("headers"):
        name = _literal_text(subject)
        return None if name is None else HasHeader(name)
    if not isinstance(container, Listing) or not 0 < len(container.items) <= MAX_ITEMS:
        return None
    either: Condition | None = None
    for item in container.items:
        equal = _compare(subject, Relation.EQUAL, item)
        if equal is None:
            return None
        either = equal if either is None else Either(either, equal)
    return either


def _combine(node: FunctionCall, depth: int) -> Condition | None:
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
        return NumberComparison(_NUMBERS[subject.name], relation, literal.value)
    if subject == Identifier("timestamp"):
        time_ms = _literal_time(literal)
        return None if time_ms is None else NumberComparison(Subject.TIMESTAMP, relation, time_ms)
    path = _json_path(subject)
    if path is not None:
        return _compare_json(path, relation, literal)
    text = _literal_text(literal)
    place = _text_subject(subject)
    # CEL orders texts by code points. For bytes that are not UTF-8 the order of the bytes is another one.
    if text is None or place is None or Relation.LESS <= relation <= Relation.AT_LEAST:
        return None
    return TextComparison(place[0], place[1], relation, text)


def _json_path(node: Node) -> tuple[bytes, ...] | None:
    """The names in the path of an expression such as `json.a.b`; None for other expressions."""
    names: list[bytes] = []
    while node != Identifier("json"):
        if isinstance(node, Select) and not node.is_test:
            name: bytes | None = node.field.encode()
            node = node.operand
        elif isinstance(node, FunctionCall) and node.function == "_[_]" and len(node.arguments) == 2:
            name = _literal_text(node.arguments[1])
            node = node.arguments[0]
        else:
            return None
        if name is None or len(names) >= MAX_DEPTH:
            return None
        names.append(name)
    return tuple(reversed(names)) or None


def _compare_json(path: tuple[bytes, ...], relation: Relation, literal: Node) -> Condition | None:
    text = _literal_text(literal)
    if text is not None and not Relation.LESS <= relation <= Relation.AT_LEAST:
        return Json(path, JsonKind.TEXT, relation, text)
    value = literal.value if isinstance(literal, Constant) else None
    if isinstance(value, bool):
        return Json(path, JsonKind.BOOL, relation, value) if relation <= Relation.NOT_EQUAL else None
    if isinstance(value, int) and relation <= Relation.AT_LEAST:
        return Json(path, JsonKind.NUMBER, relation, value)
    return None


def reads_json(condition: Condition) -> bool:
    match condition:
        case Json():
            return True
        case Not(inner):
            return reads_json(inner)
        case Both(left, right) | Either(left, right):
            return reads_json(left) or reads_json(right)
        case _:
            return False


def _text_subject(node: Node) -> tuple[Subject, bytes] | None:
    if isinstance(node, Identifier) and node.name in ("key", "value"):
        return (Subject.KEY if node.name == "key" else Subject.VALUE), b""
    if isinstance(node, Select) and not node.is_test and node.operand == Identifier("headers"):
        return Subject.HEADER, node.field.encode()
    if (
        isinstance(node, FunctionCall)
        and node.function == "_[_]"
        and node.arguments[0] == Identifier("headers")
    ):
        name = _literal_text(node.arguments[1])
        return None if name is None else (Subject.HEADER, name)
    return None


def _literal_text(node: Node) -> bytes | None:
    """The bytes of a text literal; None if it contains U+FFFD, which replaces bytes that are not UTF-8."""
    if not isinstance(node, Constant) or not isinstance(node.value, str) or _REPLACEMENT in node.value:
        return None
    return node.value.encode()


def _literal_time(node: Node) -> int | None:
    """Epoch milliseconds of `timestamp("...")`; None if the time is not a whole number of milliseconds."""
    if not isinstance(node, FunctionCall) or node.function != "timestamp" or len(node.arguments) != 1:
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
    """Encode a condition as a program for `_walker.choose`."""
    match condition:
        case Fixed(value):
            return bytes((0, value))
        case Both(left, right):
            return encode(left) + encode(right) + b"\x01"
        case Either(left, right):
            return encode(left) + encode(right) + b"\x02"
        case Not(inner):
            return encode(inner) + b"\x03"
        case TextComparison(subject, header, relation, literal):
            texts = _LENGTH(len(header)) + header + _LENGTH(len(literal)) + literal
            return bytes((4, subject, relation)) + texts
        case NumberComparison(subject, relation, number):
            return bytes((5, subject, relation)) + _NUMBER(number)
        case HasHeader(name):
            return b"\x06" + _LENGTH(len(name)) + name
        case Json(path, kind, relation, wanted):
            names = b"".join(_LENGTH(len(name)) + name for name in path)
            start = bytes((7, kind, relation, len(path))) + names
            if isinstance(wanted, bytes):
                return start + _LENGTH(len(wanted)) + wanted
            return start if kind is JsonKind.EXISTS else start + _NUMBER(wanted)
