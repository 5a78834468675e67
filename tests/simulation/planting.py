"""Planted bugs: the register that every `*mutants.py` file adds to, and the hunt for one of them.

A bug names the invariants that must catch it. A seed that fails with another invariant does not count, and
the hunt goes on. A hunt fails when no seed shows a named invariant, when a broker logs a traceback, and with
any exception that is not a violation: then the bug is planted wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from simulation.models.history import InvariantViolated
from simulation.models.invariants import Invariant
from simulation.seeds import BROKER, CLUSTER, KINDS, traits_of

Plant = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the bug is planted."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    plant: Plant
    caught_by: frozenset[Invariant]
    kind: str
    """The kind of seeds that must catch the bug."""
    needs: frozenset[str]
    """The traits of a seed without which the bug cannot show."""

    @property
    def name(self) -> str:
        return self.plant.__name__


BUGS: dict[str, PlantedBug] = {}


def planted_in_broker(*caught_by: str, needs: Collection[str] = ()) -> Callable[[Plant], Plant]:
    """Register a bug that seeds of a broker with all of these traits must catch, by one of these invariants."""
    return _planted(BROKER, caught_by, needs)


def planted_in_cluster(*caught_by: str, needs: Collection[str] = ()) -> Callable[[Plant], Plant]:
    """Register a bug that seeds of a cluster with all of these traits must catch, by one of these invariants."""
    return _planted(CLUSTER, caught_by, needs)


def _planted(kind: str, caught_by: Collection[str], needs: Collection[str]) -> Callable[[Plant], Plant]:
    invariants = frozenset(map(Invariant, caught_by))
    if not invariants or Invariant.NO_TRACEBACK in invariants:
        raise ValueError("a planted bug names the invariants that catch it, and none of them is a traceback")

    def register(plant: Plant) -> Plant:
        bug = PlantedBug(plant, invariants, kind, frozenset(needs))
        if BUGS.setdefault(bug.name, bug) is not bug:
            raise ValueError(f"there are two planted bugs named {bug.name}")
        return plant

    return register


def hunt(bug: PlantedBug, seeds: Iterable[int]) -> tuple[int, InvariantViolated] | None:
    """Return the first seed that fails with an invariant the bug names, and the violation; None if there is none.

    Any exception but a violation ends the hunt, and so does a traceback in the log of a broker.
    """
    with bug.plant():
        for seed in seeds:
            if not bug.needs <= traits_of(bug.kind, seed):
                continue
            try:
                KINDS[bug.kind](seed, None)
            except InvariantViolated as error:
                if error.invariant in bug.caught_by:
                    return seed, error
                if error.invariant is Invariant.NO_TRACEBACK:
                    raise
    return None
