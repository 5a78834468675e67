"""Charts of statistics and tables: block characters for a terminal, or a PNG file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.pipeline.table_store import Store, storage_options

_MAX_CHARTS, _MAX_LINES = 6, 12
_BLOCKS = " ▁▂▃▄▅▆▇█"

Row = dict[str, Any]
"""Statistics of a topic in one window, with the columns of `stats.SCHEMA`."""


def in_terminal(rows: Sequence[Row], column: str, width: int) -> list[str]:
    """One line for each topic with its newest windows, scaled to the highest value."""
    lines = []
    for topic, windows in _by_topic(rows).items():
        values = [float(row[column] or 0) for row in windows[-width:]]
        highest = max(values, default=0.0) or 1.0
        blocks = "".join(_BLOCKS[round(value / highest * (len(_BLOCKS) - 1))] for value in values)
        lines.append(f"{topic}  {blocks}  highest {highest:,.0f}, last {values[-1] if values else 0:,.0f}")
    return lines


def to_png(rows: Sequence[Row], path: str) -> None:
    """Write a PNG file with charts of records, bytes, keys and latency over time, with a line for each topic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {
        "records": "records",
        "bytes": "bytes",
        "keys": "distinct keys",
        "latency_ms_p95": "latency, 95th percentile (ms)",
    }
    figure, axes = pyplot.subplots(len(shown), sharex=True, figsize=(10, 9), layout="constrained")
    for axis, (column, title) in zip(axes, shown.items(), strict=True):
        for topic, windows in _by_topic(rows).items():
            times: list[datetime] = [row["window_start"] for row in windows]
            axis.plot(times, [row[column] for row in windows], label=topic)
        axis.set_title(title, loc="left")
        axis.set_ylim(bottom=0)
    if rows:
        axes[0].legend()
    figure.autofmt_xdate()
    figure.savefig(path)
    pyplot.close(figure)


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["window_start"]):
        found.setdefault(row["topic"], []).append(row)
    return dict(sorted(found.items()))


def draw_table(store: Store, path: str) -> None:
    """Write a PNG file with a chart of each numeric column of a table, by its first time column or its row number.

    The file is replaced in one step. A column of text becomes one line for each of its values, up to 12.
    """
    import matplotlib

    matplotlib.use("Agg")
    from deltalake import DeltaTable
    from matplotlib import pyplot

    rows = DeltaTable(store.uri, storage_options=storage_options(store)).to_pyarrow_table()
    figure = _figure_of(rows)
    written = f"{path}.new"
    figure.savefig(written, format="png")
    pyplot.close(figure)
    os.replace(written, path)


def _figure_of(rows: pa.Table) -> Any:
    from matplotlib import pyplot

    times = [each.name for each in rows.schema if pa.types.is_temporal(each.type)]
    texts = [each.name for each in rows.schema if pa.types.is_string(each.type)]
    numbers = [each.name for each in rows.schema if _is_number(each.type)][:_MAX_CHARTS]
    found = (
        sorted(rows.to_pylist(), key=lambda row: (row[times[0]] is None, row[times[0]]))
        if times
        else rows.to_pylist()
    )
    figure, axes = pyplot.subplots(
        max(1, len(numbers)), sharex=True, squeeze=False, figsize=(10, 9), layout="constrained"
    )
    for axis, column in zip(axes[:, 0], numbers, strict=False):
        lines: dict[Any, tuple[list[Any], list[Any]]] = {}
        for place, row in enumerate(found):
            line = row[texts[0]] if texts else column
            if line in lines or len(lines) < _MAX_LINES:
                shown = lines.setdefault(line, ([], []))
                shown[0].append(row[times[0]] if times else place)
                shown[1].append(row[column])
        for line, (positions, values) in lines.items():
            axis.plot(positions, values, label=str(line), marker=".")
        axis.set_title(column, loc="left")
        if texts and lines:
            axis.legend()
    figure.autofmt_xdate()
    return figure


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
