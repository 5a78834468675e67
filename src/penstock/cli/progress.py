"""Progress bars on standard error, shown only on a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Protocol, cast


class CopyProgress(Protocol):
    def show(self, copied_bytes: int, partitions: int) -> None:
        """Show the number of bytes copied and of partitions completed so far."""
        ...


class SearchProgress(Protocol):
    def advance_to(self, fraction: float, matches: int) -> None:
        """Show the fraction of the messages that was searched, and the number of matches so far."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Remove the bar from the screen while matches are printed."""
        ...


class ReadingProgress(Protocol):
    def watch(self, stream: BinaryIO) -> BinaryIO:
        """Return a stream with the same content, which advances the bar when it is read."""
        ...

    def advance(self, count: int) -> None:
        """Advance the bar by a number of bytes."""
        ...


class _Silent:
    def watch(self, stream: BinaryIO) -> BinaryIO:
        return stream

    def advance(self, count: int) -> None:
        pass

    def show(self, copied_bytes: int, partitions: int) -> None:
        pass

    def advance_to(self, fraction: float, matches: int) -> None:
        pass

    def pause(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Bar:
    def __init__(self, total_bytes: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = [
            TextColumn("{task.description}"),
            *(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
        ]
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self.progress.add_task("", total=total_bytes)

    def watch(self, stream: BinaryIO) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Counting(stream, self)))

    def advance(self, count: int) -> None:
        self.progress.advance(self._task, count)


class _CopyBar(_Bar):
    def __init__(self, total_bytes: int, partitions: int) -> None:
        super().__init__(total_bytes)
        self._partitions = partitions
        self.show(0, 0)

    def show(self, copied_bytes: int, partitions: int) -> None:
        description = f"{partitions} of {self._partitions} partitions"
        self.progress.update(self._task, completed=copied_bytes, description=description)


class _SearchBar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()]
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self.progress.add_task("0 matches", total=1.0)

    def advance_to(self, fraction: float, matches: int) -> None:
        self.progress.update(self._task, completed=fraction, description=f"{matches:,} matches")

    @contextmanager
    def pause(self) -> Iterator[None]:
        self.progress.stop()
        try:
            yield
        finally:
            self.progress.start()


class _Counting(io.RawIOBase):
    def __init__(self, stream: BinaryIO, bar: _Bar) -> None:
        self._stream = stream
        self._bar = bar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = (
            self._stream.read1(len(buffer))
            if hasattr(self._stream, "read1")
            else self._stream.read(len(buffer))
        )
        buffer[: len(content)] = content
        self._bar.advance(len(content))
        return len(content)


@contextmanager
def reading_progress(files: Sequence[Path]) -> Iterator[ReadingProgress]:
    """Show a bar for the total size of the files, or a byte count for a pipe; nothing without a terminal."""
    if not sys.stderr.isatty() or (sys.stdin.isatty() and not files):
        yield _Silent()
        return
    bar = _Bar(sum(file.stat().st_size for file in files) if files else None)
    with bar.progress:
        yield bar


@contextmanager
def copy_progress(total_bytes: int, partitions: int) -> Iterator[CopyProgress]:
    """Show a bar for the bytes that reassignments copy; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    bar = _CopyBar(total_bytes, partitions)
    with bar.progress:
        yield bar


@contextmanager
def search_progress() -> Iterator[SearchProgress]:
    """Show a bar for the messages that a search has read; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    bar = _SearchBar()
    with bar.progress:
        yield bar
