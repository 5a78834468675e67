"""Whole brokers from seeds. `make simulate` runs more of them, `make mutants` hunts each bug for longer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from mutants import MUTANTS, hunt

from penstock.simulation.seeds import run_seed

SEEDS = range(1, 65)
SEEDS_PER_TEST = 8


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_a_broker_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = run_seed(seed)
        assert report.operations > 0
        assert report.starts > 2


@pytest.mark.parametrize("seed", [3, 14, 15])
def test_a_seed_does_the_same_twice(seed: int) -> None:
    first: list[str] = []
    again: list[str] = []
    assert run_seed(seed, first.append).digest == run_seed(seed, again.append).digest
    assert first == again
    assert len(first) > 1000


def test_a_seed_does_the_same_in_another_process() -> None:
    program = "from penstock.simulation.seeds import run_seed; print(run_seed(9).digest)"
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert output.strip() == run_seed(9).digest


def test_seeds_differ() -> None:
    assert run_seed(1).digest != run_seed(2).digest


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    assert hunt(MUTANTS[name], range(1, 121)) is not None
