"""A fifth of expensive test families, drawn by commit, for `make test`.

Tests with the mark `drawn` are families of similar cases: planted bugs, simulation seeds, fuzz targets, clients on
the second event loop. The tests of some directories that start processes count as marked too. `--draw-by-commit`
runs a fifth of the marked tests of each file. Each commit has its own fifth, and all runs of a commit have the same;
the compiled build runs the next fifth. Without the option all tests run.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from penstock.build import current_build
from support.commit_seeds import commit

MARK = "drawn"
PARTS = 5
DIRECTORIES = tuple(
    f"tests/{name}/"
    for name in ("clients", "cluster", "console", "docs", "faults", "hostile", "pipeline", "security")
)
"""Directories whose tests that start processes are drawn."""
_OPTION = "--draw-by-commit"


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        _OPTION, action="store_true", help="run a fifth of the tests with the mark `drawn`, by commit"
    )


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(_OPTION):
        return
    marked = [item.nodeid for item in items if _is_marked(item)]
    left_out = set(marked) - drawn(marked, commit(), current_build())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _is_marked(item: pytest.Item) -> bool:
    if item.get_closest_marker(MARK):
        return True
    return item.nodeid.startswith(DIRECTORIES) and item.get_closest_marker("process") is not None


def drawn(nodeids: list[str], of: str, build: str = "pure") -> set[str]:
    """Return every fifth test of each file, beginning at a place that depends on the commit and the build."""
    turn = int(build == "compiled")
    files: defaultdict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        files[nodeid.partition("::")[0]].append(nodeid)
    return {
        nodeid
        for file, tests in files.items()
        for nodeid in tests[(random.Random(f"draw {file} {of}").randrange(PARTS) + turn) % PARTS :: PARTS]
    }
