"""Running seeds from the command line: one with everything it did shown, or many on all cores.

A run of many remembers how far it came, so that it can be stopped and go on later. Hash seeds are fixed first:
a seed must do the same in every process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.simulation.seeds import run_seed

_HASH_SEED = "0"
_STEPS = {"op", "start", "crash", "crash-in-operation", "power-loss", "log", "disk-error", "fault"}


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "penstock.simulation", *sys.argv[1:]])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader like `head` that has seen enough is no failure
    options = _parser().parse_args()
    if options.seed is not None:
        sys.exit(_run_one(options.seed, steps=options.steps, everything=options.trace))
    sys.exit(_run_many(options.seeds, options.workers, options.progress))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.simulation", description="Run whole brokers in virtual time, from seeds."
    )
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--steps", action="store_true", help="show what clients and faults did")
    parser.add_argument("--trace", action="store_true", help="show every event")
    parser.add_argument("--seeds", type=int, default=100, help="run the seeds from 1 to this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--progress", type=Path, help="remember in this file how far a run came")
    return parser


# --- one seed


def _run_one(seed: int, *, steps: bool, everything: bool) -> int:
    def show(line: str) -> None:
        if everything or line.split(" ", 2)[1] in _STEPS:
            sys.stdout.write(line)

    try:
        report = run_seed(seed, show if steps or everything else None)
    except Exception:  # noqa: BLE001 - whatever it is, it is what the seed found
        traceback.print_exc()
        print(f"seed {seed} failed")
        return 1
    print(
        f"seed {seed} passed: {report.operations} operations in {report.virtual_seconds:.1f} virtual seconds, "
        f"{report.starts} starts, {report.events} events, trace {report.digest}"
    )
    return 0


# --- many seeds


def _run_many(count: int, workers: int, remembered: Path | None) -> int:
    first = _remembered(remembered) + 1
    failed: list[int] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("seeds", total=count, completed=min(first - 1, count))
        for seed, problem in _outcomes(range(first, count + 1), workers):
            progress.advance(task)
            if problem is not None:
                failed.append(seed)
                progress.console.print(f"seed {seed} failed: {problem}", markup=False, highlight=False)
                progress.console.print(f"  replay: python -m penstock.simulation --seed {seed} --steps")
            elif not failed:
                _remember(remembered, seed)
    if not failed:
        _forget(remembered)
    print(f"{count - len(failed)} of {count} seeds passed")
    return 1 if failed else 0


def _outcomes(seeds: range, workers: int) -> Iterator[tuple[int, str | None]]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=50) as pool:
        yield from pool.imap(_try_seed, seeds)


def _try_seed(seed: int) -> tuple[int, str | None]:
    try:
        run_seed(seed)
    except Exception as error:  # noqa: BLE001 - as above
        return seed, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return seed, None


def _remembered(file: Path | None) -> int:
    return int(file.read_text()) if file is not None and file.exists() else 0


def _remember(file: Path | None, seed: int) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(seed))


def _forget(file: Path | None) -> None:
    if file is not None:
        file.unlink(missing_ok=True)
