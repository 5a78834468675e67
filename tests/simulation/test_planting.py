"""The hunt for planted bugs: only an invariant that the bug names counts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest
from broker_mutants import reads_go_up_to_the_log_end
from planting import Plant, PlantedBug, hunt, planted_in_broker

from penstock.storage.log_reader import LogReader
from simulation.models.history import InvariantViolated
from simulation.models.invariants import Invariant
from simulation.scenarios.broker_scenario import BrokerScenario
from simulation.seeds import BROKER


def bug(plant: Plant, invariant: str) -> PlantedBug:
    return PlantedBug(plant, frozenset({Invariant(invariant)}), BROKER, needs=frozenset())


def wrong_signature() -> AbstractContextManager[Any]:
    return patch.object(LogReader, "read", lambda self: None)


def broken_simulation() -> AbstractContextManager[Any]:
    return patch.object(BrokerScenario, "run", lambda self, missing: None)


def test_hunt_ends_with_the_invariant_that_the_bug_names() -> None:
    caught = hunt(bug(reads_go_up_to_the_log_end, "I8"), [1])
    assert caught is not None
    assert caught[1].invariant is Invariant.NOTHING_ABOVE_THE_HIGH_WATERMARK


def test_another_invariant_does_not_count() -> None:
    assert hunt(bug(reads_go_up_to_the_log_end, "I2"), [1]) is None


def test_hunt_fails_when_the_planted_code_raises_in_a_broker() -> None:
    with pytest.raises(InvariantViolated, match="TypeError") as raised:
        hunt(bug(wrong_signature, "I8"), [1])
    assert raised.value.invariant is Invariant.NO_TRACEBACK


def test_hunt_fails_with_an_exception_that_is_no_violation() -> None:
    with pytest.raises(TypeError):
        hunt(bug(broken_simulation, "I8"), [1])


@pytest.mark.parametrize("caught_by", [(), ("traceback",), ("I99",)])
def test_planted_bug_names_a_known_invariant(caught_by: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        planted_in_broker(*caught_by)
