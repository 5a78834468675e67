"""Rows as a Markdown table and as JSON, with a description of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench import interpreter
from bench.comparison import Bar, Row
from bench.measure import Spread
from penstock.build import current_build

KAFKA = "Kafka 4.3.1"
DEFAULT_HEADING = "default durability"
DEFAULT_PLACE = 3


def markdown(rows: Sequence[Row], beside: str = KAFKA) -> str:
    """Table with a column for the default durability if a row has it."""
    headings = ["scenario", "figure", "Penstock", beside, "ratio", "bar", ""]
    table = [headings, ["---"] * len(headings), *(_cells(row) for row in rows)]
    if any(row.default for row in rows):
        more = [DEFAULT_HEADING, "---", *(_show(row.default) for row in rows)]
        for cells, cell in zip(table, more, strict=True):
            cells.insert(DEFAULT_PLACE, cell)
    return "\n".join(_line(cells) for cells in table)


def machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()} {platform.release()}, {interpreter.describe()}, {current_build()} build"
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {system}"


def write_json(path: Path, rows: Sequence[Row], options: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [asdict(row) | {"verdict": row.verdict} for row in rows]
    path.write_text(json.dumps({"machine": machine(), "options": options, "rows": found}, indent=1))


def _cells(row: Row) -> list[str]:
    verdict = {True: "met", False: "**not met**", None: ""}[row.verdict]
    figure = f"{row.label} ({row.unit})" if row.unit else row.label
    spreads = [_show(row.penstock), _show(row.kafka), _show(row.ratio)]
    return [row.scenario, figure, *spreads, _show_bar(row.bar), verdict]


def _show(spread: Spread | None) -> str:
    if spread is None:
        return ""
    if spread.low == spread.high:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.low)} .. {_number(spread.high)})"


def _show_bar(bar: Bar | None) -> str:
    if bar is None:
        return ""
    sign = "≥" if bar.direction == "at least" else "≤"
    return f"{sign} {bar.limit:g}{' x' if bar.of == 'ratio' else ''}"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
