"""Simulated users: the versions of each aspect that the store may hold.

The version of a credential is its number of SCRAM iterations, so that DescribeUserScramCredentials shows it; the one
of a token is its id, the one of a disabled user is 1. None is no credential, no token, or a user that is not disabled.
A change whose response was lost may be made at any later time, so its user is left alone afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from simulation.models.history import InvariantViolated

Version = int | None


class Aspect(StrEnum):
    SHA_256 = "SHA-256"
    SHA_512 = "SHA-512"
    DISABLED = "disabled"
    TOKEN = "token"


class UserModel:
    def __init__(self, name: str) -> None:
        self.name = name
        self._possible: dict[Aspect, set[Version]] = {aspect: {None} for aspect in Aspect}

    @property
    def is_certain(self) -> bool:
        """Whether the outcome of every change is known, of all aspects: two of them can change at a time."""
        return all(len(possible) == 1 for possible in self._possible.values())

    @property
    def exists(self) -> bool:
        return self.known(Aspect.SHA_512) is not None

    def known(self, aspect: Aspect) -> Version:
        """The version of a user whose changes are all known; else the greatest possible one."""
        return max(self._possible[aspect], key=lambda version: version or 0)

    def begin(self, aspect: Aspect, version: Version) -> None:
        """A change is sent."""
        self._possible[aspect].add(_noted(aspect, version))

    def acknowledge(self, aspect: Aspect, version: Version) -> None:
        self._possible[aspect] = {_noted(aspect, version)}

    def refuse(self, aspect: Aspect, version: Version) -> None:
        """A change was refused, so it is not made."""
        self._possible[aspect].discard(_noted(aspect, version))

    def check(self, aspect: Aspect, shown: Version, where: object) -> None:
        possible = self._possible[aspect]
        if shown not in possible:
            raise InvariantViolated(
                "user", f"{self.name} has {aspect}={shown} at {where}, which is none of {_shown(possible)}"
            )


def check_equal(shown: Iterable[tuple[str, Mapping[Any, Version]]]) -> None:
    """Check that every broker shows the same users."""
    (first, expected), *others = shown
    for name, users in others:
        if users != expected:
            raise InvariantViolated("user", f"{first} has {expected}, and {name} has {users}")


def _noted(aspect: Aspect, version: Version) -> Version:
    return 1 if aspect is Aspect.DISABLED and version is not None else version


def _shown(versions: set[Version]) -> str:
    return ", ".join(sorted(str(version) for version in versions))
