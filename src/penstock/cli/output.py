"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer

from penstock.cli.failures import Failure

MAX_TABLE_WIDTH = 2_000
NONE = "-"
"""Text of an empty cell."""


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Print a table with right-aligned numbers. Cells are never shortened, so that values can be copied."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows if row[position] != NONE]
        is_number = all(isinstance(cell, int) for cell in cells) and bool(cells)
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if type(cell) is int else str(cell)) for cell in row))
    console = Console()
    console.width = max(console.width, Console(width=MAX_TABLE_WIDTH).measure(table).maximum)
    console.print(table)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation of an irreversible action. Asks only if standard input is a terminal and `yes` is not
    set.
    """
    if not yes and sys.stdin.isatty() and not typer.confirm(question):
        raise Failure("not confirmed; nothing was changed", "Answer y, or give --yes.")


def show_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
