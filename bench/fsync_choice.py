"""`python -m bench.fsync_choice`: cost of one durable round at 1 to 1,000 dirty files, for three designs.

A round appends 1 KB to each file and makes all of it durable: with an fdatasync of each file in a pool, with
a shared write-ahead log, or with one syncfs of the file system. Decision:
docs/decisions/0002-log-is-its-own-wal.md.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.kafka_install import BUILD
from bench.measure import Spread

FILES = (1, 10, 100, 1_000)
RECORD = random.Random(1).randbytes(1_024)
POOL_SIZE = 8
MAX_BUFFERS = 1_000
libc = ctypes.CDLL(None, use_errno=True)


class Round:
    """Dirty files of one measurement, and three ways to make a round of appends durable."""

    def __init__(self, directory: Path, files: int, delay_s: float) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self.files = [os.open(directory / f"{number}.log", flags) for number in range(files)]
        self.shared = os.open(directory / "shared.wal", flags)
        self.pool = ThreadPoolExecutor(POOL_SIZE)
        self.delay_s = delay_s
        self.position = 0

    def each_file(self) -> None:
        self._append()
        list(self.pool.map(self._sync, self.files))

    def shared_log(self) -> None:
        """Write every byte twice: to the shared log, which is synced, and to its own file."""
        self._append()
        start = (self.position - len(RECORD)) * len(self.files)
        for first in range(0, len(self.files), MAX_BUFFERS):
            buffers = [RECORD] * min(MAX_BUFFERS, len(self.files) - first)
            os.pwritev(self.shared, buffers, start + first * len(RECORD))
        self._sync(self.shared)

    def whole_file_system(self) -> None:
        self._append()
        time.sleep(self.delay_s)
        if libc.syncfs(self.shared) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")

    def close(self) -> None:
        self.pool.shutdown()
        for file in (*self.files, self.shared):
            os.close(file)

    def _append(self) -> None:
        for file in self.files:
            os.pwrite(file, RECORD, self.position)
        self.position += len(RECORD)

    def _sync(self, file: int) -> None:
        time.sleep(self.delay_s)
        os.fdatasync(file)


DESIGNS: dict[str, Callable[[Round], None]] = {
    "fdatasync of each file": Round.each_file,
    "shared log": Round.shared_log,
    "syncfs": Round.whole_file_system,
}


def measure(design: Callable[[Round], None], files: int, seconds: float, delay_s: float) -> float:
    """Milliseconds per round, the mean of `seconds` of rounds."""
    with tempfile.TemporaryDirectory(dir=BUILD) as directory:
        dirty = Round(Path(directory), files, delay_s)
        design(dirty)
        began, rounds = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            design(dirty)
            rounds += 1
        dirty.close()
    return elapsed / rounds * 1_000


def main() -> None:
    options = _parser().parse_args()
    BUILD.mkdir(exist_ok=True)
    print(f"| dirty files | {' | '.join(f'{name} (ms)' for name in DESIGNS)} |", "|---" * 4 + "|", sep="\n")
    for files in FILES:
        times: dict[str, list[float]] = {name: [] for name in DESIGNS}
        for _ in range(options.rounds):
            for name, design in DESIGNS.items():
                times[name].append(measure(design, files, options.seconds, options.delay_ms / 1_000))
        spreads = [Spread.of(values) for values in times.values()]
        cells = [f"{spread.median:.2f} ({spread.low:.2f} .. {spread.high:.2f})" for spread in spreads]
        print(f"| {files:,} | {' | '.join(cells)} |", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.fsync_choice", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each cell")
    parser.add_argument("--seconds", type=float, default=1.5, help="time of each")
    parser.add_argument(
        "--delay-ms", type=float, default=0, help="time added to every sync, as of a slower disk"
    )
    return parser


if __name__ == "__main__":
    main()
