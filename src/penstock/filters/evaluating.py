"""Evaluation of conditions in Python, for installations without the compiled C module."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.filters.conditions import (
    FAILED,
    FALSE,
    FIRST_MS,
    LAST_MS,
    TRUE,
    Both,
    Condition,
    Either,
    Fixed,
    HasHeader,
    Json,
    Not,
    NumberComparison,
    Relation,
    Subject,
    TextComparison,
)


@dataclass(frozen=True, slots=True)
class Plain:
    """The parts of a record that conditions compare. Of a repeated header the last value is used."""

    key: bytes
    value: bytes
    headers: dict[bytes, bytes]
    size: int
    partition: int
    offset: int
    timestamp: int


def evaluate(condition: Condition, record: Plain) -> int:
    """Evaluate a condition for a record; return FALSE, TRUE or FAILED."""
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
        case TextComparison(subject, header, relation, literal):
            text = _text_of(subject, header, record)
            return FAILED if text is None else int(_holds_for_text(text, relation, literal))
        case Json():
            raise AssertionError("conditions on JSON run in C")
        case NumberComparison(subject, relation, number):
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
