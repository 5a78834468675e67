"""Kafka's `ssl.principal.mapping.rules`: from the subject of a certificate to a user name.

A rule is `RULE:pattern/replacement/[L|U]` or `DEFAULT`. Patterns are matched in linear time, because clients choose the
subjects of their certificates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """One rule; `pattern` is None for DEFAULT."""

    pattern: str | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """User name of a subject; None if the rule does not match."""
        if self.pattern is None:
            return subject
        import re2  # type: ignore[import-untyped]  # late: few brokers have rules

        match = re2.compile(self.pattern).fullmatch(subject)
        if match is None:
            return None
        name = re.sub(
            r"\$(\d)", lambda group: match.group(int(group[1])) or "", self.replacement.replace("\\/", "/")
        )
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    text: str
    rules: tuple[PrincipalRule, ...]

    def __str__(self) -> str:
        return self.text

    def user_of(self, subject: str) -> str | None:
        """User name of a subject; None if no rule matches."""
        names = (rule.apply(subject) for rule in self.rules)
        return next((name for name in names if name is not None), None)


def parse_principal_rules(text: str) -> PrincipalRules:
    """Parse rules. Raises ValueError."""
    rules: list[PrincipalRule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(text)
        rules.append(_rule(match))
        position = match.end()
    if not rules:
        raise ValueError(text)
    return PrincipalRules(text, tuple(rules))


def _rule(match: re.Match[str]) -> PrincipalRule:
    pattern, replacement, case = match.groups()
    if pattern is None:
        return PrincipalRule()
    import re2

    pattern = pattern.replace("\\/", "/")
    try:
        groups = re2.compile(pattern).groups
    except re2.error as error:
        raise ValueError(pattern) from error
    if any(int(number) > groups for number in re.findall(r"\$(\d)", replacement)):
        raise ValueError(replacement)
    return PrincipalRule(pattern, replacement, case)
