"""Progress bar of Spark tasks on standard error, shown only on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.pipeline.session import PipelineSession

_LOOK_SECONDS = 0.25


@contextmanager
def progress_of(session: PipelineSession, what: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    is_over = threading.Event()
    task = progress.add_task(what, total=None)

    def look() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            if (tasks := _tasks(session)) is not None:
                progress.update(task, completed=tasks[0], total=tasks[1])

    watcher = threading.Thread(target=look, name="progress", daemon=True)
    with progress:
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


def _tasks(session: PipelineSession) -> tuple[int, int] | None:
    """Return the number of completed tasks and of all tasks of the active stages; None if there are none."""
    current = session.current
    if current is None:
        return None
    tracker = current.sparkContext.statusTracker()
    stages = [
        info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None
    ]
    if not stages:
        return None
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
