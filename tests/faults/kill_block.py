"""Blocks of kills and restarts: settings, result, and the loop over blocks.

A run records each finished block, so that an interrupted run continues with the next block.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SETTINGS = (
    ("durability=auto", "event.loop=uvloop"),
    ("durability=os", "event.loop=asyncio"),
    ("durability=fsync", "event.loop=uvloop"),
)
"""Result of a block, identified by its seed."""


@dataclass(frozen=True, slots=True)
class BlockResult:
    cycles: int
    acknowledged: int
    stored: int
    violations: tuple[str, ...]
    longest_pause_s: float = 0.0
    """Seconds until all writers had an acknowledgement again, after one broker of a cluster in sync was
    killed or stopped.
    """


RunBlock = Callable[[Path, int, int, Callable[[str], None]], BlockResult]
"""Function that runs a block: directory, seed, number of cycles, and a function that prints progress."""


def run_blocks(
    run: RunBlock,
    state: Path,
    cycles: int,
    cycles_a_block: int,
    seed: int,
    what: str,
    kept: str = "nothing lost, nothing twice, order kept",
) -> int:
    """Run blocks up to this number of cycles; returns 1 if a block has violations, and keeps its data. `kept` is what
    the blocks have shown.
    """
    state.mkdir(parents=True, exist_ok=True)
    progress = state / "progress.json"
    done: list[dict[str, int]] = json.loads(progress.read_text()) if progress.exists() else []
    while (finished := sum(block["cycles"] for block in done)) < cycles:
        of_block = seed + len(done)
        result = _fresh_block(
            run, state / f"block-{of_block}", of_block, min(cycles_a_block, cycles - finished)
        )
        print(
            f"\rseed {of_block}: {result.cycles} {what}, {result.acknowledged:,} acknowledged,",
            f"{result.stored:,} stored",
            f"longest pause {result.longest_pause_s:.1f} s" if result.longest_pause_s else "",
            flush=True,
        )
        if result.violations:
            print(*result.violations, f"the data is kept in {state}", sep="\n")
            return 1
        done.append({"seed": of_block, "cycles": result.cycles, "acknowledged": result.acknowledged})
        progress.write_text(json.dumps(done))
    acknowledged = sum(block["acknowledged"] for block in done)
    print(f"{finished} {what}, {acknowledged:,} acknowledged: {kept}")
    progress.unlink()
    return 0


def _fresh_block(run: RunBlock, directory: Path, seed: int, cycles: int) -> BlockResult:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    result = run(directory, seed, cycles, lambda text: print(f"\r{text}", end="", flush=True))
    if not result.violations:
        shutil.rmtree(directory)
    return result
