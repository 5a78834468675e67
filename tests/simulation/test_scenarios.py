"""Seeds of brokers and clusters; `make simulate` runs more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from mutants import catch
from planting import BUGS

from simulation.scenarios.scenario import Report
from simulation.seeds import BROKER, CLUSTER, Sink, run_cluster_seed, run_seed
from support.commit_seeds import PROPERTY, commit_seeds

SEEDS = range(1, 49)
CLUSTER_SEEDS = range(1, 49)
SEEDS_OF_THE_COMMIT = 48
SEEDS_PER_TEST = 8

Run = Callable[[int, Sink | None], Report]


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_broker_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check_broker(seed)


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("first", CLUSTER_SEEDS[::SEEDS_PER_TEST])
def test_cluster_keeps_its_promises(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check_cluster(seed)


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("part", range(SEEDS_OF_THE_COMMIT // SEEDS_PER_TEST))
@pytest.mark.parametrize("kind", [BROKER, CLUSTER])
def test_seeds_of_this_commit_pass(kind: str, part: int, record_property: Callable[[str, str], None]) -> None:
    seeds = commit_seeds(kind, SEEDS_OF_THE_COMMIT)[part * SEEDS_PER_TEST : (part + 1) * SEEDS_PER_TEST]
    record_property(PROPERTY, f"{kind} {' '.join(map(str, seeds))}")
    failed = {}
    for seed in seeds:
        try:
            (check_broker if kind == BROKER else check_cluster)(seed)
        except Exception as error:  # noqa: BLE001 - all seeds are tried, so that one run shows all that fail
            failed[f"--{kind} --seed {seed}"] = error
    assert failed == {}


def check_broker(seed: int) -> None:
    report = run_seed(seed)
    assert report.operations > 0
    assert report.starts > 2


def check_cluster(seed: int) -> None:
    report = run_cluster_seed(seed)
    assert report.operations > 0
    assert report.starts >= 3


def test_every_commit_has_its_own_seeds() -> None:
    assert commit_seeds(BROKER, 8, of="a") == commit_seeds(BROKER, 8, of="a")
    assert commit_seeds(BROKER, 8, of="a") != commit_seeds(BROKER, 8, of="b")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [127, 239, 1032, 2222, 3138, 3437, 4194, 5311])
def test_seed_that_found_a_loss_passes(seed: int) -> None:
    assert run_cluster_seed(seed).operations > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [94, 1319, 1477, 8172472])
def test_seed_that_did_not_heal_passes(seed: int) -> None:
    assert run_cluster_seed(seed).operations > 0


def test_seed_with_a_leader_of_a_deleted_topic_passes() -> None:
    assert run_cluster_seed(185).operations > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1024, 1479])
def test_seed_with_a_start_cut_short_after_a_swap_passes(seed: int) -> None:
    assert run_seed(seed).operations > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1004, 1206, 506155, 4498620, 8950618])
def test_seed_that_a_checker_of_groups_failed_passes(seed: int) -> None:
    assert run_seed(seed).operations > 0


@pytest.mark.parametrize(
    ("run", "seed"),
    [(run_seed, 3), (run_seed, 14), (run_seed, 15), (run_cluster_seed, 8), (run_cluster_seed, 9)],
)
def test_seed_does_the_same_twice(run: Run, seed: int) -> None:
    first: list[str] = []
    again: list[str] = []
    assert run(seed, first.append).digest == run(seed, again.append).digest
    assert first == again
    assert len(first) > 1000


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("run", [run_seed, run_cluster_seed])
def test_seed_does_the_same_in_another_process(run: Run) -> None:
    program = f"from simulation.seeds import {run.__name__} as run; print(run(9).digest)"
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert output.strip() == run(9, None).digest


@pytest.mark.slow
def test_different_seeds_have_different_traces() -> None:
    assert run_seed(1).digest != run_seed(2).digest


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.drawn
@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_caught_by_an_invariant_that_it_names(name: str) -> None:
    assert catch(name) is not None
