from __future__ import annotations

from random import Random

import pytest

from simulation.faults import cluster_traits
from simulation.faults.cluster_traits import EVERY_TRAIT, draw_traits

SEEDS = 1000


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[str]]:
    monkeypatch.setattr(cluster_traits, "SWITCHED_ON", frozenset(EVERY_TRAIT))
    return [draw_traits(Random(seed)) for seed in range(SEEDS)]


def test_two_seeds_in_five_have_no_trait(drawn: list[frozenset[str]]) -> None:
    assert 0.4 * SEEDS < sum(not traits for traits in drawn) < 0.55 * SEEDS


def test_every_trait_is_drawn_with_and_without_every_other(drawn: list[frozenset[str]]) -> None:
    for trait in EVERY_TRAIT:
        for other in EVERY_TRAIT:
            assert trait == other or any(trait in traits and other not in traits for traits in drawn)
            assert any({trait, other} <= traits for traits in drawn)
