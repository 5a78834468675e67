"""Subscriptions by regular expression in RE2 syntax, which matches in linear time.

An expression must match the whole topic name. Internal topics match too, as in Kafka. Each expression is
matched against a topic name once, so after a change of the cluster only new names are matched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from penstock.errors import BrokerError, ErrorCode

MAX_REGEX_CHARACTERS: Final = 10_000

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20


def compile_regex(pattern: str) -> Any:
    """Compile a regular expression. Raises BrokerError if it is invalid."""
    if len(pattern) > MAX_REGEX_CHARACTERS:
        message = f"the regular expression has {len(pattern)} characters; at most {MAX_REGEX_CHARACTERS} are allowed"
        raise BrokerError(ErrorCode.invalid_regular_expression, message)
    return _compile(pattern)


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"invalid RE2 regular expression: {text}"
        raise BrokerError(ErrorCode.invalid_regular_expression, message) from None


@dataclass(slots=True)
class _Expression:
    regex: Any
    topics: frozenset[str]


class Regexes:
    """Regular expressions of one group, and the topics that each of them matches."""

    def __init__(self) -> None:
        self._expressions: dict[str, _Expression] = {}
        self._names: frozenset[str] = frozenset()

    def topics(self, pattern: str) -> frozenset[str]:
        """Topics that the expression matches. An invalid expression, which an old log may contain, matches
        nothing, so that the rest of the group is not affected.
        """
        expression = self._expressions.get(pattern)
        if expression is None:
            try:
                regex = _compile(pattern)
            except BrokerError:
                return frozenset()
            expression = self._expressions[pattern] = _Expression(regex, _matching(regex, self._names))
        return expression.topics

    def update(self, names: Iterable[str], patterns: Iterable[str]) -> None:
        """Set the topic names of the cluster, and drop expressions that are not among `patterns`."""
        for pattern in self._expressions.keys() - set(patterns):
            del self._expressions[pattern]
        names = frozenset(names)
        new, gone = names - self._names, self._names - names
        self._names = names
        for expression in self._expressions.values():
            expression.topics = expression.topics - gone | _matching(expression.regex, new)


def _matching(regex: Any, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if regex.fullmatch(name) is not None)
