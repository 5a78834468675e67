"""Credentials of simulated users: the versions that the store may hold.

A version is a number of SCRAM iterations, so that DescribeUserScramCredentials shows it; None is no credential. A
change whose response was lost may be made at any later time, so its user is left alone afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulation.models.history import InvariantViolated

Version = int | None


class UserModel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.possible: set[Version] = {None}
        self.is_certain = True
        """Whether the outcome of every change is known."""

    def begin(self, version: Version) -> None:
        """A change is sent."""
        self.possible.add(version)
        self.is_certain = False

    def acknowledge(self, version: Version) -> None:
        self.possible = {version}
        self.is_certain = True

    def refuse(self, version: Version) -> None:
        """A change was refused, so it is not made."""
        self.possible.discard(version)
        self.is_certain = True

    def check(self, shown: Version, where: object) -> None:
        if shown not in self.possible:
            raise InvariantViolated(
                "user", f"{self.name} has {shown} at {where}, which is none of {_shown(self.possible)}"
            )


def check_equal(shown: Iterable[tuple[str, dict[str, Version]]]) -> None:
    """Check that every broker shows the same users."""
    (first, expected), *others = shown
    for name, users in others:
        if users != expected:
            raise InvariantViolated("user", f"{first} has {expected}, and {name} has {users}")


def _shown(versions: set[Version]) -> str:
    return ", ".join(sorted(str(version) for version in versions))
