"""Python interpreter that runs Penstock in a benchmark: the fastest of this minor version on the machine.

Interpreters differ by how they were built: one without profile-guided optimisation, as version managers
compile it by default, costs a broker 10 to 30 % of its speed. Build flags are not always recorded, so a
short loop measures each. Any interpreter of the same minor version can use the packages of the environment
that runs the benchmark, because they share a binary interface.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import penstock

CLEARLY_FASTER = 0.9
"""Another interpreter is used only if its time is below this part of the environment's."""

_MEASURE = """
import json, platform, time

class Item:
    __slots__ = ("first", "second")
    def __init__(self, first, second):
        self.first, self.second = first, second
    def chosen(self, number):
        return self.first if number & 1 else self.second

def loop():
    items, total = [], 0
    for number in range(100_000):
        item = Item(number, total & 255)
        total += item.chosen(number)
        items.append((number, item))
        if len(items) > 100:
            items.clear()

def timed():
    began = time.process_time()
    loop()
    return time.process_time() - began

print(json.dumps([platform.python_version(), min(timed() for _ in range(25))]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    path: str
    version: str
    loop_s: float
    """Processor time of the calibration loop: the shortest, which other work on the machine disturbs least."""


@cache
def _found() -> tuple[Interpreter, ...]:
    """Interpreters of this minor version; the first is the one of the environment."""
    return tuple(each for path in _candidates() if (each := _measure(path)) is not None)


def chosen() -> Interpreter:
    own, best = _found()[0], min(_found(), key=lambda each: each.loop_s)
    return best if best.loop_s < CLEARLY_FASTER * own.loop_s else own


def describe() -> str:
    """Interpreter that runs Penstock, for the heading of a table."""
    own, used = _found()[0], chosen()
    speed = "" if used is own else f" ({own.loop_s / used.loop_s:.2f} x as fast as the environment's)"
    return f"Python {used.version}{speed}"


def program(module: str, *arguments: str) -> tuple[str, ...]:
    """Command that runs a module of this project with the chosen interpreter."""
    return (chosen().path, "-m", module, *arguments)


def environment(source: Path | None = None) -> dict[str, str]:
    """Environment of such a command: the packages of this process, or those of `source`, found by any interpreter."""
    # Installed programs have compiled files, which a development shell may forbid to write.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    places = (str(source or Path(str(penstock.__file__)).parents[1]), sysconfig.get_path("purelib"))
    return kept | {"PYTHONPATH": os.pathsep.join(places)}


def _candidates() -> Iterator[str]:
    yield sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    seen = {os.path.realpath(sys.executable)}
    for directory in dict.fromkeys((*os.get_exec_path(), "/usr/local/bin", "/usr/bin")):
        path = shutil.which(name, path=directory)
        if path is not None and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _measure(path: str) -> Interpreter | None:
    try:
        shown = subprocess.run([path, "-c", _MEASURE], capture_output=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version, loop_s = json.loads(shown)
    return Interpreter(path, version, loop_s)
