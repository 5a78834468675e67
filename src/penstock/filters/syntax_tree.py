"""Syntax tree of a checked CEL expression, read from its serialized form (the protobuf message `CheckedExpr`).

Only the parts that `expression` checks and `conditions` translates are decoded; all other kinds of expressions become
an `Other` with its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_ANY_VALUE, _CHECKED_EXPRESSION = 2, 4
_CONSTANT, _IDENTIFIER, _SELECT, _CALL, _LIST, _COMPREHENSION = 3, 4, 5, 6, 7, 9
_BOOL, _INT, _TEXT = 2, 3, 6
_OPTIONAL_ITEMS = 2
_LONG_BITS = 64

Fields = dict[int, list[int | bytes]]


@dataclass(frozen=True, slots=True)
class Constant:
    """Literal; None if it has a type that `conditions` does not translate."""

    value: bool | int | str | None


@dataclass(frozen=True, slots=True)
class Identifier:
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    operand: Node
    field: str
    is_test: bool
    """True for `has(operand.field)`."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    function: str
    target: Node | None
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """Expansion of a macro such as `all` and `exists`."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """List in the expression, such as `["eu", "us"]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Other:
    children: tuple[Node, ...]


Node = Constant | Identifier | Select | FunctionCall | Comprehension | Listing | Other


def read_tree(serialized: bytes) -> Node:
    """Decode the tree from the result of `Expression.serialize()`."""
    checked = _fields(_message(_fields(serialized), _ANY_VALUE))
    return _node(_message(checked, _CHECKED_EXPRESSION))


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, FunctionCall):
        return node.arguments if node.target is None else (node.target, *node.arguments)
    if isinstance(node, Listing):
        return node.items
    return node.children if isinstance(node, Comprehension | Other) else ()


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all of its descendants."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)


def _node(message: bytes) -> Node:
    fields = _fields(message)
    if _CONSTANT in fields:
        return _constant(_fields(_message(fields, _CONSTANT)))
    if _IDENTIFIER in fields:
        return Identifier(_text(_fields(_message(fields, _IDENTIFIER)), 1))
    if _SELECT in fields:
        select = _fields(_message(fields, _SELECT))
        return Select(_node(_message(select, 1)), _text(select, 2), is_test=bool(select.get(3)))
    if _CALL in fields:
        call = _fields(_message(fields, _CALL))
        target = _node(_message(call, 1)) if 1 in call else None
        return FunctionCall(_text(call, 2), target, _nodes(call, 3))
    if _COMPREHENSION in fields:
        parts = _fields(_message(fields, _COMPREHENSION))
        return Comprehension(tuple(node for number in (2, 4, 5, 6, 7) for node in _nodes(parts, number)))
    if _LIST in fields:
        return _list(_fields(_message(fields, _LIST)))
    return Other(())


def _list(fields: Fields) -> Node:
    """Decode a list; `Other` if it has optional elements."""
    items = _nodes(fields, 1)
    return Other(items) if _OPTIONAL_ITEMS in fields else Listing(items)


def _constant(fields: Fields) -> Constant:
    if _TEXT in fields:
        return Constant(_text(fields, _TEXT))
    for number in (_BOOL, _INT):
        if number in fields:
            value = fields[number][-1]
            assert isinstance(value, int)
            if number == _BOOL:
                return Constant(bool(value))
            return Constant(value - (1 << _LONG_BITS) if value >> (_LONG_BITS - 1) else value)
    return Constant(None)


def _nodes(fields: Fields, number: int) -> tuple[Node, ...]:
    return tuple(_node(each) for each in fields.get(number, ()) if isinstance(each, bytes))


def _message(fields: Fields, number: int) -> bytes:
    value = fields[number][-1] if number in fields else b""
    assert isinstance(value, bytes)
    return value


def _text(fields: Fields, number: int) -> str:
    return _message(fields, number).decode()


def _fields(message: bytes) -> Fields:
    """The fields of a protobuf message by number."""
    fields: Fields = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint(message, position)
        else:
            if kind == _BYTES:
                size, position = _varint(message, position)
            else:
                size = {_FIXED_64: 8, _FIXED_32: 4}[kind]
            value = message[position : position + size]
            position += size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
