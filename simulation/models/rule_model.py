"""A rule of a simulated access control list: whether the store may hold it.

A change whose response was lost may be made at any later time, so its rule is left alone afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.models.history import InvariantViolated


class Rule(NamedTuple):
    resource: str
    user: str


class RuleModel:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.possible = {False}
        """Whether the rule may be present."""
        self.is_certain = True
        """Whether the outcome of every change is known."""

    def begin(self, is_present: bool) -> None:
        """A change is sent."""
        self.possible.add(is_present)
        self.is_certain = False

    def acknowledge(self, is_present: bool) -> None:
        self.possible = {is_present}
        self.is_certain = True

    def check(self, is_shown: bool, where: object) -> None:
        if is_shown not in self.possible:
            shown = "is shown" if is_shown else "is missing"
            raise InvariantViolated("rule", f"{self.rule} {shown} at {where}, against what was acknowledged")

    def check_applied(self, is_applied: bool | None, is_shown: bool, where: object) -> None:
        """Check that decisions follow the rules that the broker shows."""
        if is_applied != is_shown:
            raise InvariantViolated(
                "rule", f"{self.rule} is shown: {is_shown}, applied: {is_applied} at {where}"
            )
