"""Charts of statistics: block characters for a terminal, or a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
