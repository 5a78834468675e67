"""`python -m simulation.builds`: run seeds on the pure and on the compiled build; both must have the same trace.

A trace covers every disk operation and every packet, so a compiled module that behaves in any other way than its
source shows, even where no invariant is violated.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PURE = ROOT / "src"
COMPILED = ROOT / "build" / "compiled"
DEFAULT_SEEDS = 20
KINDS = ("broker", "cluster")

Run = Callable[[Path, str, int], str]
"""Runs a seed of a kind with the package in a directory, and returns the last line that the run has printed."""


def differences(seeds: Iterable[int], run: Run) -> list[str]:
    """Descriptions of the seeds that failed, or whose traces differ."""
    found = []
    for seed in seeds:
        for kind in KINDS:
            pure, compiled = run(PURE, kind, seed), run(COMPILED, kind, seed)
            if pure != compiled or f"{kind} seed {seed} passed" not in pure:
                found.append(f"pure: {pure}\ncompiled: {compiled}")
    return found


def run_seed(package: Path, kind: str, seed: int) -> str:
    command = [sys.executable, "-m", "simulation", f"--{kind}", "--seed", str(seed)]
    environment = os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_SEEDS
    if not (COMPILED / "penstock" / "sources.json").exists():
        print("there is no compiled build: run `make compile`", file=sys.stderr)
        return 2
    found = differences(range(1, count + 1), run_seed)
    print(*found, f"{len(found)} of {len(KINDS) * count} seeds differ or fail", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
