"""Progress bar of reassignments on standard error, shown only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class MovingProgress(Protocol):
    def show(self, copied_bytes: int, partitions: int) -> None:
        """Show the number of bytes copied and of partitions completed so far."""
        ...


class _Silent:
    def show(self, copied_bytes: int, partitions: int) -> None:
        pass


class _Bar:
    def __init__(self, total_bytes: int, partitions: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._partitions = partitions
        columns = [
            TextColumn("{task.description}"),
            *(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
        ]
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self.progress.add_task(self._describe(0), total=total_bytes)

    def show(self, copied_bytes: int, partitions: int) -> None:
        self.progress.update(self._task, completed=copied_bytes, description=self._describe(partitions))

    def _describe(self, partitions: int) -> str:
        return f"{partitions} of {self._partitions} partitions"


@contextmanager
def moving_progress(total_bytes: int, partitions: int) -> Iterator[MovingProgress]:
    if not sys.stderr.isatty():
        yield _Silent()
        return
    bar = _Bar(total_bytes, partitions)
    with bar.progress:
        yield bar
