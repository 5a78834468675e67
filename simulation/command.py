"""The command that runs seeds: one with its events shown, or many on all cores.

A run of many seeds records its progress for each kind, so that it can be stopped and continued. The hash
seed of Python is fixed first: a seed must do the same in every process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulation.machine.process import SimulatedCrash
from simulation.seeds import BROKER, CLUSTER, KINDS

_HASH_SEED = "0"
_STEPS = {
    *("op", "start", "crash", "crash-in-operation", "power-loss", "log", "disk-error", "fault"),
    *("partition", "pause", "resume", "empty-disk", "restore", "damage", "swap"),
}
_LAST_EVENTS = 60
"""The number of events that are shown of a failed seed without `--steps` or `--trace`."""


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may close the pipe early
    options = _parser().parse_args()
    if options.seed is not None:
        kind = options.kind or BROKER
        sys.exit(_run_one(kind, options.seed, steps=options.steps, everything=options.trace))
    kinds = [options.kind] if options.kind else list(KINDS)
    sys.exit(max(_run_many(kind, options.seeds, options.workers, options.progress) for kind in kinds))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulation", description="Run whole brokers in virtual time, from seeds."
    )
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--cluster", dest="kind", action="store_const", const=CLUSTER, help="as a cluster")
    parser.add_argument("--broker", dest="kind", action="store_const", const=BROKER, help="as a broker alone")
    parser.add_argument("--steps", action="store_true", help="show what clients and faults did")
    parser.add_argument("--trace", action="store_true", help="show every event")
    parser.add_argument("--seeds", type=int, default=100, help="run the seeds from 1 to this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--progress", type=Path, help="remember in this directory how far a run came")
    return parser


# --- one seed


def _run_one(kind: str, seed: int, *, steps: bool, everything: bool) -> int:
    last: deque[str] = deque(maxlen=_LAST_EVENTS)

    def show(line: str) -> None:
        if everything or line.split(" ", 2)[1] in _STEPS:
            sys.stdout.write(line) if steps or everything else last.append(line)

    try:
        report = KINDS[kind](seed, show)
    except (Exception, SimulatedCrash):  # noqa: BLE001 - whatever it is, it is what the seed found
        sys.stdout.writelines(last)
        traceback.print_exc()
        print(f"{kind} seed {seed} failed")
        return 1
    print(
        f"{kind} seed {seed} passed: {report.operations} operations in {report.virtual_seconds:.1f} virtual seconds, "
        f"{report.starts} starts, {report.events} events, trace {report.digest}"
    )
    return 0


# --- many seeds


def _run_many(kind: str, count: int, workers: int, directory: Path | None) -> int:
    remembered = None if directory is None else directory / kind
    first = _remembered(remembered) + 1
    failed: list[int] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(f"{kind} seeds", total=count, completed=min(first - 1, count))
        for seed, problem in _outcomes(kind, range(first, count + 1), workers):
            progress.advance(task)
            if problem is not None:
                failed.append(seed)
                progress.console.print(f"{kind} seed {seed} failed: {problem}", markup=False, highlight=False)
                progress.console.print(f"  replay: python -m simulation --{kind} --seed {seed} --steps")
            elif not failed:
                _remember(remembered, seed)
    if not failed:
        _forget(remembered)
    print(f"{count - len(failed)} of {count} {kind} seeds passed")
    return 1 if failed else 0


def _outcomes(kind: str, seeds: range, workers: int) -> Iterator[tuple[int, str | None]]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=50) as pool:
        yield from pool.imap(partial(_try_seed, kind), seeds)


def _try_seed(kind: str, seed: int) -> tuple[int, str | None]:
    try:
        KINDS[kind](seed, None)
    except (Exception, SimulatedCrash) as error:  # noqa: BLE001 - as above
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
