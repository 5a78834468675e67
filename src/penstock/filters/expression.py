"""Filter expressions in CEL over these variables of a record. Expressions are checked when they are compiled.

    key, value          text; empty if absent; bytes that are not UTF-8 become U+FFFD
    headers             map from name to text; of a repeated header the last value
    timestamp           time of the record
    size                bytes of key, value and headers
    partition, offset   numbers
    json                the value, parsed as JSON
    route(pattern)      true if the header `penstock-route` matches the pattern

The CEL library is imported when the first expression is compiled, so that a broker without views does not load it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigError
from penstock.filters.routes import route_matches
from penstock.filters.syntax_tree import (
    Comprehension,
    FunctionCall,
    Identifier,
    Node,
    Select,
    children,
    nodes_of,
    read_tree,
)

MAX_LENGTH = 4_096
MAX_NESTED_MACROS = 2
_ROUTE = "route"
_POSITION = re.compile(r"<input>:(\d+):(\d+): ([^\n]*)")
_MARK = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")

RouteTest = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled and checked expression."""

    text: str
    tree: Node
    variables: frozenset[str]
    """Variables that the expression refers to, `route` included."""
    json_fields: frozenset[str] | None
    """Fields of `json` that the expression refers to; None if it may refer to any."""
    evaluate: Callable[[dict[str, Any]], object]
    """Function that evaluates the expression with its variables. An exception, or a result that is not a bool, means
    that the evaluation has failed.
    """


def compile_expression(text: str, route: RouteTest) -> Expression:
    """Compile a filter; ConfigError with the position of the error if it is not valid. `route` implements
    `route(pattern)`.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigError(f"the filter has {len(text)} characters; {MAX_LENGTH} are allowed")
    cel = _load_cel()
    try:
        compiled = _environment(cel, route).compile(text)
        tree = read_tree(compiled.serialize())
    except (RuntimeError, ValueError, RecursionError) as error:
        raise ConfigError(_explain(str(error))) from None
    kind = compiled.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise ConfigError(
            f"the filter is of type {kind.name().lower()}; it must be true or false for a record"
        )
    if _macro_depth(tree) > MAX_NESTED_MACROS:
        raise ConfigError(f"macros such as all and exists may be nested {MAX_NESTED_MACROS} deep")
    return Expression(
        text,
        tree,
        frozenset(_variables(tree)),
        _json_fields(tree),
        lambda data: compiled.eval(data=data).value(),
    )


def check_expression(text: str) -> None:
    """Check a filter; ConfigError with the position of the error if it is not valid."""
    compile_expression(text, lambda pattern: False)


def route_test(read_route: Callable[[], str]) -> RouteTest:
    """The function `route(pattern)` of expressions; `read_route` returns the route of the present record."""
    return lambda pattern: route_matches(pattern, read_route())


def _load_cel() -> Any:
    try:
        from cel_expr_python import cel
    except ImportError as error:
        raise ConfigError(
            f"filters need the package cel-expr-python, which is not installed for this platform ({error})"
        ) from None
    return cel


def _environment(cel: Any, route: RouteTest) -> Any:
    kinds = cel.Type
    overload = cel.Overload("route_string", kinds.BOOL, [kinds.STRING], False, route)
    return cel.NewEnv(
        variables={
            "key": kinds.STRING,
            "value": kinds.STRING,
            "headers": kinds.Map(kinds.STRING, kinds.STRING),
            "timestamp": kinds.TIMESTAMP,
            "size": kinds.INT,
            "partition": kinds.INT,
            "offset": kinds.INT,
            "json": kinds.DYN,
        },
        functions=[cel.FunctionDecl(_ROUTE, [overload])],
    )


def _explain(error: str) -> str:
    """The error message of CEL's compiler, with the position moved to the front."""
    found = _POSITION.search(error)
    if found is None:
        return f"the filter is not valid: {_MARK.sub('', error.splitlines()[0])}"
    line, column, problem = found.groups()
    return f"the filter is not valid at line {line}, column {column}: {problem}"


def _macro_depth(node: Node) -> int:
    deepest, pending = 0, [(node, 0)]
    while pending:
        node, depth = pending.pop()
        depth += isinstance(node, Comprehension)
        deepest = max(deepest, depth)
        pending += ((child, depth) for child in children(node))
    return deepest


def _variables(tree: Node) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, Identifier):
            yield node.name
        elif isinstance(node, FunctionCall) and node.function == _ROUTE:
            yield _ROUTE


def _json_fields(tree: Node) -> frozenset[str] | None:
    nodes = list(nodes_of(tree))
    uses = sum(node == Identifier("json") for node in nodes)
    fields = [node.field for node in nodes if isinstance(node, Select) and node.operand == Identifier("json")]
    return frozenset(fields) if len(fields) == uses else None
