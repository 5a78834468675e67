"""Formats of query results: a table, CSV, JSON, or a bar chart in the terminal."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import NONE, print_json, print_table

_LEAST_BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


class ResultFormat(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    CHART = "chart"


def show_result(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: ResultFormat) -> None:
    if form is ResultFormat.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif form is ResultFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(["" if value is None else value for value in row] for row in rows)
    elif form is ResultFormat.CHART:
        for line in bars(columns, rows, shutil.get_terminal_size().columns):
            typer.echo(line)
    else:
        print_table(columns, [[NONE if value is None else value for value in row] for row in rows])


def bars(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Return one bar for each row. Its length is the last column with numbers, its label the columns before that."""
    numeric = [
        place
        for place in range(len(columns))
        if rows and all(row[place] is None or _is_number(row[place]) for row in rows)
    ]
    if rows and not numeric:
        raise Failure(
            "no column of the result has numbers, so there is nothing to draw",
            "Select a count or a sum, such as count(*).",
            code=ExitCode.USAGE,
        )
    labels = [
        " ".join("" if row[place] is None else str(row[place]) for place in range(numeric[-1]))
        for row in rows
    ]
    values = [float(row[numeric[-1]] or 0) for row in rows]
    label_width = max(map(len, labels), default=0)
    highest = max((abs(value) for value in values), default=0.0) or 1.0
    room = max(_LEAST_BAR, width - label_width - 20)
    return [
        f"{label:<{label_width}}  {_bar(abs(value) / highest * room)} {value:,.10g}"
        for label, value in zip(labels, values, strict=True)
    ]


def _bar(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
