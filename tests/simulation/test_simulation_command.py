from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation import command


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Makes these seeds fail, without running a broker."""
    failing: set[int] = set()

    def outcomes(kind: str, seeds: range, workers: int) -> Iterator[tuple[int, str | None]]:
        for seed in seeds:
            yield seed, "I1: lost" if seed in failing else None

    monkeypatch.setattr(command, "_outcomes", outcomes)
    return failing


def test_failing_seed_is_named_with_the_command_that_replays_it(
    failing: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.add(3)
    assert command._run_many("cluster", 5, 1, None) == 1
    output = capsys.readouterr().out
    assert "cluster seed 3 failed: I1: lost" in output
    assert "python -m simulation --cluster --seed 3 --steps" in output
    assert "4 of 5 cluster seeds passed" in output


def test_run_continues_behind_the_last_seed_that_passed(failing: set[int], tmp_path: Path) -> None:
    progress = tmp_path / "build"
    failing.add(4)
    assert command._run_many("cluster", 6, 1, progress) == 1
    assert (progress / "cluster").read_text() == "3"
    failing.clear()
    failing.add(2)  # it would fail now, but has passed before
    assert command._run_many("cluster", 6, 1, progress) == 0
    assert not (progress / "cluster").exists(), "the next run starts from the beginning"


def test_one_seed_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert command._run_one("broker", 5, steps=True, everything=False) == 0
    output = capsys.readouterr().out
    assert " start broker 1" in output
    assert " op producer-0 produce" in output
    assert " disk pwrite" not in output
    assert "broker seed 5 passed" in output


@pytest.mark.slow
def test_seeds_run_in_worker_processes() -> None:
    assert list(command._outcomes("cluster", range(1, 3), 2)) == [(1, None), (2, None)]
