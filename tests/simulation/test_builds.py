from __future__ import annotations

from pathlib import Path

from simulation.builds import COMPILED, PURE, differences


def test_same_traces_are_no_difference() -> None:
    asked: list[tuple[Path, str, int]] = []

    def run(package: Path, kind: str, seed: int) -> str:
        asked.append((package, kind, seed))
        return f"{kind} seed {seed} passed: trace {seed}"

    assert differences([1, 2], run) == []
    assert {package for package, _, _ in asked} == {PURE, COMPILED}
    assert {(kind, seed) for _, kind, seed in asked} == {
        ("broker", 1), ("broker", 2), ("cluster", 1), ("cluster", 2),
    }  # fmt: skip


def test_other_trace_is_a_difference() -> None:
    def run(package: Path, kind: str, seed: int) -> str:
        return f"{kind} seed {seed} passed: trace {seed if package == PURE else kind}"

    assert len(differences([1, 2], run)) == 4


def test_seed_that_fails_on_both_builds_is_reported() -> None:
    found = differences([7], lambda package, kind, seed: f"{kind} seed {seed} failed")
    assert found[0] == "pure: broker seed 7 failed\ncompiled: broker seed 7 failed"
